/* SPDX-License-Identifier: Apache-2.0
 * Models on several nodes, most of them pretended: the same bits in every mode; copies that are read by
 * the workers of their node and by no others, are counted, scrubbed and freed. On a machine that has
 * several nodes also where the weights are. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <bitnet/bitnet.h>
#include <cmocka.h>

#include "base/machine/cores.h"
#include "engine/engine.h"
#include "engine/health.h"

enum { PROMPT = 40, STEPS = 12, CTX = 64 };

static struct bn_model *open_on(const char *numa, const char *topology, uint32_t threads,
                                const char *head, const char *ffn)
{
    struct bn_numa_pretend two = {.topology = topology};
    assert_true(bn_cpus_parse(&two.usable, "0-5"));
    const bitnet_model_options o = {.numa = numa, .threads = threads, .head = head, .ffn = ffn};
    bitnet_error err = {0};
    struct bn_model *m;
    if (bn_model_open_on(&m, TEST_MODEL, &o, topology ? &two : NULL, &err))
        fail_msg("%s", err.text);
    return m;
}

static struct bitnet_engine *engine_on(const struct bn_model *m, uint32_t threads, const char *head,
                                       const char *ffn)
{
    bitnet_engine_options o = {.size = sizeof o};
    bitnet_error err = {0};
    struct bitnet_engine *e;
    o.threads = threads;
    o.ctx_tokens = CTX;
    o.head = head;
    o.ffn = ffn;
    if (bn_engine_open(&e, m, &o, &err)) fail_msg("%s", err.text);
    return e;
}

static uint32_t best_of(const float *x, uint32_t n)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < n; i++)
        if (x[i] > x[best]) best = i;
    return best;
}

static void eval(struct bitnet_engine *e, const int32_t *tokens, size_t n, float *logits)
{
    bitnet_error err = {0};
    if (bn_engine_eval(e, 0, tokens, n, true, logits, &err)) fail_msg("%s", err.text);
}

/* Logits after a prompt and after each of some greedy steps: [STEPS + 1][n_vocab]. */
static float *logits_of(const struct bn_model *m, uint32_t threads, const char *head,
                        const char *ffn)
{
    struct bitnet_engine *e = engine_on(m, threads, head, ffn);
    size_t vocab = m->config.n_vocab;
    float *all = calloc((STEPS + 1) * vocab, sizeof *all);
    int32_t tokens[PROMPT];
    assert_non_null(all);
    for (int i = 0; i < PROMPT; i++) tokens[i] = i * 37 % 1000 + 3;
    eval(e, tokens, PROMPT, all);
    for (size_t i = 1; i <= STEPS; i++) {
        int32_t next = (int32_t)best_of(all + (i - 1) * vocab, (uint32_t)vocab);
        eval(e, &next, 1, all + i * vocab);
    }
    bn_engine_close(e);
    return all;
}

/* ------------------------------------------------------------------ the same bits */

static const struct {
    const char *head, *ffn;
} forms[] = {{"exact", "dense"}, {"screened", "skip"}, {"int8", "skip"}};
static const char *const modes[] = {"off", "distribute", "isolate", "replicate"};

static void every_mode_gives_the_same_bits(void **state)
{
    (void)state;
    for (size_t f = 0; f < BN_ARRAY_LEN(forms); f++) {
        struct bn_model *m = open_on("off", NULL, 2, forms[f].head, forms[f].ffn);
        size_t bytes = (STEPS + 1) * m->config.n_vocab * sizeof(float);
        float *want = logits_of(m, 2, forms[f].head, forms[f].ffn);
        bn_model_close(m);
        for (size_t i = 0; i < BN_ARRAY_LEN(modes); i++)
            for (uint32_t packers = 1; packers <= 4; packers += 3) {
                m = open_on(modes[i], "numa:3 core:2 pu:1", packers, forms[f].head, forms[f].ffn);
                for (uint32_t threads = 1; threads <= 5; threads += 2) {
                    float *got = logits_of(m, threads, forms[f].head, forms[f].ffn);
                    assert_memory_equal(got, want, bytes);
                    free(got);
                }
                bn_model_close(m);
            }
        free(want);
    }
}

/* ------------------------------------------------------------------ copies */

static void copies_are_counted(void **state)
{
    (void)state;
    struct bn_model *off = open_on("off", NULL, 3, "screened", "skip");
    struct bn_model *m = open_on("replicate", "numa:3 core:2 pu:1", 3, "screened", "skip");
    assert_int_equal(m->n_nodes, 3);
    assert_int_equal(m->n_replicas, 2);
    assert_int_equal(m->replica_bytes, m->replicas[0].bytes + m->replicas[1].bytes);
    assert_int_equal(m->packed_bytes, off->packed_bytes + m->replica_bytes);
    assert_true(m->replicas[0].bytes >= off->packed_bytes);
    assert_int_equal(bn_model_layer_bytes(m), bn_model_layer_bytes(off));
    assert_int_equal(m->note.len, off->note.len);
    assert_int_equal(m->near_bytes, 0); /* a pretended node holds nothing */
    bn_model_close(m);

    m = open_on("distribute", "numa:3 core:2 pu:1", 2, "screened", "skip");
    assert_int_equal(m->n_nodes, 2); /* as many as have workers */
    assert_int_equal(m->packed_bytes, off->packed_bytes);
    bn_model_close(m);
    m = open_on("isolate", "numa:3 core:2 pu:1", 2, "screened", "skip");
    assert_int_equal(m->n_nodes, 1);
    assert_int_equal(m->packed_bytes, off->packed_bytes);
    bn_model_close(m);
    bn_model_close(off);
}

static void one_node_is_said_and_changes_nothing(void **state)
{
    (void)state;
    struct bn_model *m = open_on("replicate", "numa:1 core:6 pu:1", 2, "exact", "dense");
    assert_non_null(strstr(m->note.data, "numa 'replicate' changes nothing: all usable CPUs and "
                                         "memory are one node."));
    assert_null(m->numa);
    assert_int_equal(m->n_nodes, 1);
    assert_int_equal(m->n_replicas, 0);
    bn_model_close(m);
}

/* Rows of `up` in the first layer that are the share of worker `rows_of`, in the memory of `node`, are
 * turned round and back again: does the prompt's result change? Of so many tokens every worker keeps its
 * share. */
static bool sees(const struct bn_model *m, struct bitnet_engine *e, const float *good,
                 uint32_t node, uint32_t rows_of)
{
    const struct bn_matrix *w = &bn_model_layers(m, node)->proj[BN_P_UP - BN_P_Q];
    size_t half =
        bn_div_up(w->packed.rows, w->gemm->group_rows) / 2 * w->gemm->group_bytes(w->packed.cols);
    size_t from = rows_of == 0 ? 0 : half, to = rows_of == 0 ? half : bn_matrix_bytes(w);
    uint8_t *data = (uint8_t *)w->packed.data;
    uint8_t *kept = malloc(to - from);
    float *got = calloc(m->config.n_vocab, sizeof *got);
    int32_t tokens[PROMPT];
    assert_true(kept && got);
    for (int i = 0; i < PROMPT; i++) tokens[i] = i * 37 % 1000 + 3;
    memcpy(kept, data + from, to - from);
    memset(data + from, 0, to - from);
    eval(e, tokens, PROMPT, got);
    memcpy(data + from, kept, to - from);
    assert_int_equal(bn_engine_eval_reset(e, 0, NULL), BITNET_OK);
    bool differs = memcmp(got, good, m->config.n_vocab * sizeof *got) != 0;
    free(kept);
    free(got);
    return differs;
}

static void workers_read_the_copy_of_their_node(void **state)
{
    (void)state;
    struct bn_model *m = open_on("replicate", "numa:2 core:3 pu:1", 2, "exact", "dense");
    struct bitnet_engine *e = engine_on(m, 2, "exact", "dense");
    float *good = logits_of(m, 2, "exact", "dense");
    assert_true(sees(m, e, good, 0, 0));
    assert_false(sees(m, e, good, 0, 1));
    assert_false(sees(m, e, good, 1, 0));
    assert_true(sees(m, e, good, 1, 1));
    free(good);
    bn_engine_close(e);
    bn_model_close(m);
}

static bitnet_scrub scrub_all(struct bitnet_engine *e)
{
    bitnet_scrub s = {.size = sizeof s};
    assert_int_equal(bn_engine_scrub(e, UINT64_MAX, &s, NULL), BITNET_OK);
    return s;
}

static void copies_are_scrubbed(void **state)
{
    (void)state;
    struct bn_model *off = open_on("off", NULL, 2, "screened", "skip");
    struct bn_model *m = open_on("replicate", "numa:2 core:3 pu:1", 2, "screened", "skip");
    struct bitnet_engine *plain = engine_on(off, 2, NULL, NULL);
    struct bitnet_engine *e = engine_on(m, 2, NULL, NULL);
    const struct bn_layer *y = &m->replicas[0].layers[3];
    const struct {
        const void *data;
        const char *name;
    } parts[] = {{y->proj[BN_P_UP - BN_P_Q].packed.data, "blk.3.ffn_up.weight (node 1)"},
                 {y->down_cols.w.data, "blk.3.ffn_down.weight (copy) (node 1)"},
                 {m->replicas[0].screen.coarse.data, "token_embd.weight (copy) (node 1)"},
                 {m->layers[3].proj[BN_P_UP - BN_P_Q].packed.data, "blk.3.ffn_up.weight"}};
    uint64_t once = scrub_all(plain).total_bytes, twice = scrub_all(e).total_bytes;
    /* pieces of the copy are aligned, and so is its size a little larger than what is in it */
    assert_true(twice > once && twice - once <= m->replica_bytes);
    assert_true(twice - once >= off->packed_bytes);
    for (size_t i = 0; i < BN_ARRAY_LEN(parts); i++) {
        uint8_t *byte = (uint8_t *)parts[i].data + 100;
        uint64_t before = scrub_all(e).mismatches;
        *byte ^= 4;
        bitnet_scrub s = scrub_all(e);
        assert_int_equal(s.mismatches, before + 1);
        assert_string_equal(s.tensor, parts[i].name);
        *byte ^= 4;
        assert_int_equal(scrub_all(e).mismatches, before + 2);
    }
    bn_engine_close(e);
    bn_engine_close(plain);
    bn_model_close(m);
    bn_model_close(off);
}

/* ------------------------------------------------------------------ real nodes */

/* Opened on this machine; NULL: it has one node. */
static struct bn_model *open_here(const char *numa, uint32_t threads)
{
    struct bn_model *m = open_on(numa, NULL, threads, "screened", "skip");
    if (m->numa) return m;
    bn_model_close(m);
    return NULL;
}

/* Pages of [p, p + bytes) that the node holds, of those whose place is known. */
static void count_pages(const struct bn_numa *n, const void *p, size_t bytes, uint32_t node,
                        size_t *there, size_t *known)
{
    for (const uint8_t *at = p, *end = at + bytes; at < end; at += 4096) {
        int where = bn_numa_where(n, at);
        *known += where >= 0;
        *there += where == (int)node;
    }
}

static void copies_lie_on_their_node(void **state)
{
    (void)state;
    struct bn_model *m = open_here("replicate", 4);
    if (!m) skip();
    for (uint32_t node = 0; node < m->n_nodes; node++) {
        size_t there = 0, known = 0;
        for (uint32_t i = 0; i < m->config.n_layer; i++)
            for (int k = 0; k < BN_N_PROJ; k++) {
                const struct bn_matrix *w = &bn_model_layers(m, node)[i].proj[k];
                if (!w->dense)
                    count_pages(m->numa, w->packed.data, bn_matrix_bytes(w), node, &there, &known);
            }
        print_message("node %u: %zu of %zu pages of its matrices are there\n", node, there, known);
        assert_int_equal(there, known);
    }
    assert_int_equal(m->near_bytes, bn_model_layer_bytes(m)); /* nothing is dense or has scales */
    float *got = logits_of(m, 4, NULL, NULL);
    struct bn_model *off = open_on("off", NULL, 2, "screened", "skip");
    float *want = logits_of(off, 2, NULL, NULL);
    assert_memory_equal(got, want, (STEPS + 1) * m->config.n_vocab * sizeof *got);
    free(got);
    free(want);
    bn_model_close(off);
    bn_model_close(m);
}

struct writing {
    struct bn_pool *pool;
    uint8_t *data;
    size_t rows, grain, grain_bytes;
};

static void write_share(void *arg, uint32_t worker)
{
    struct writing *x = arg;
    struct bn_range r = bn_pool_share(x->pool, worker, x->rows, x->grain);
    memset(x->data + r.begin / x->grain * x->grain_bytes, 1,
           bn_div_up(r.end - r.begin, x->grain) * x->grain_bytes);
}

/* Matrices of several sizes, one after the other in a block: of every one at least what does not share
 * a huge page with other nodes' rows is where its readers are. */
static void rows_lie_on_their_node(void **state)
{
    (void)state;
    struct bn_model *m = open_here("distribute", 4);
    if (!m) skip();
    print_message("the model: %llu of %llu bytes are with their reader\n",
                  (unsigned long long)m->near_bytes, (unsigned long long)bn_model_layer_bytes(m));
    assert_true(m->near_bytes > 0 && m->near_bytes <= bn_model_layer_bytes(m));
    enum { BYTES = 32 * BN_HUGE_PAGE, GRAIN = 8, GRAIN_BYTES = 5120 };
    struct writing x = {.grain = GRAIN, .grain_bytes = GRAIN_BYTES};
    uint8_t *block = bn_block_alloc(BYTES);
    assert_non_null(block);
    assert_int_equal(bn_pool_open(&x.pool, 4, NULL), BITNET_OK);
    bn_pool_place(x.pool, m->numa);
    size_t used = 64;
    for (size_t rows = 700; used + rows / GRAIN * GRAIN_BYTES < BYTES - BN_HUGE_PAGE; rows *= 3) {
        size_t bytes = bn_div_up(rows, GRAIN) * GRAIN_BYTES, there = 0, known = 0;
        x.data = block + used;
        x.rows = rows;
        bn_place_weights(m, x.pool, x.data, bytes, rows, GRAIN);
        bn_pool_run(x.pool, write_share, &x);
        for (uint32_t w = 0; w < 4; w++) {
            struct bn_range r = bn_pool_share(x.pool, w, rows, GRAIN);
            count_pages(m->numa, x.data + r.begin / GRAIN * GRAIN_BYTES,
                        (r.end - r.begin) / GRAIN * GRAIN_BYTES, bn_pool_node(x.pool, w), &there,
                        &known);
        }
        print_message("%zu bytes: %zu of %zu pages are with their reader\n", bytes, there, known);
        /* at most half a page is wrong at a cut between nodes, a whole one at the beginning and end */
        size_t wrong = (m->n_nodes - 1) * BN_HUGE_PAGE / 2 + 2 * BN_HUGE_PAGE;
        assert_true((known - there) * 4096 <= wrong);
        used += bytes;
    }
    bn_pool_close(x.pool);
    bn_block_free(block, BYTES);
    bn_model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_mode_gives_the_same_bits),
        cmocka_unit_test(copies_are_counted),
        cmocka_unit_test(one_node_is_said_and_changes_nothing),
        cmocka_unit_test(workers_read_the_copy_of_their_node),
        cmocka_unit_test(copies_are_scrubbed),
        cmocka_unit_test(copies_lie_on_their_node),
        cmocka_unit_test(rows_lie_on_their_node),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
