/* SPDX-License-Identifier: Apache-2.0
 * Files of the types of 128 weights, and of models with delta nets, with bytes changed or cut off, in header, metadata, directory
 * and weights: opened, run and converted. Each either works or is refused with one sentence that
 * names the file or a tensor. Meant for sanitizers; the same files every time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <bitnet/bitnet.h>
#include <cmocka.h>

#include "base/os/file.h"
#include "base/threads/pool.h"
#include "base/rng.h"
#include "effort.h"
#include "forge/forge.h"
#include "gguf_build.h"
#include "model/files/source.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { FILES = 300, MAX_BYTES = 1 << 22 };

static char folder[] = "/tmp/bitnet-mutated-XXXXXX";

static const char *in_folder(char out[64], const char *name)
{
    snprintf(out, 64, "%s/%s", folder, name);
    return out;
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) == NULL;
}

static int remove_folder(void **state)
{
    (void)state;
    char command[96];
    snprintf(command, sizeof command, "rm -r '%s'", folder);
    return system(command);
}

/* ------------------------------------------------------------------ good files */

static void put_meta(struct bn_buf *b, const struct bn_meta *m)
{
    put_s(b, m->key);
    put32(b, m->type);
    if (m->type == BN_META_ARRAY) put32(b, m->elem);
    if (m->type == BN_META_ARRAY || m->type == BN_META_STR) put64(b, m->count);
    bn_buf_append(b, m->raw, m->raw_bytes);
}

/* A file of PQ2_0 as one of type 42: with the scale before the codes, or behind them and so marked. */
static void as_type_42(struct bn_buf *b, const struct bn_source *s, bool behind)
{
    put_head(b, s->n_tensors, s->n_meta);
    for (size_t i = 0; i < s->n_meta; i++) {
        if (behind && strcmp(s->meta[i].key, "general.quantization_version") == 0)
            put_kv_str(b, "general.quantization_version", "TQ2_0_G128");
        else put_meta(b, &s->meta[i]);
    }
    uint64_t offset = 0;
    for (size_t i = 0; i < s->n_tensors; i++) {
        const struct bn_tensor *t = &s->tensors[i];
        put_s(b, t->name);
        put32(b, t->n_dims);
        for (uint32_t d = 0; d < t->n_dims; d++) put64(b, t->dims[d]);
        put32(b, t->type == BN_PQ2_0 ? 42 : (uint32_t)bn_type_info(t->type)->gguf_id);
        put64(b, offset);
        offset = bn_align_up(offset + t->bytes, 32);
    }
    for (size_t i = 0; i < s->n_tensors; i++) {
        const struct bn_tensor *t = &s->tensors[i];
        put_align(b, 32);
        if (t->type != BN_PQ2_0 || !behind) {
            bn_buf_append(b, t->data, t->bytes);
            continue;
        }
        for (uint64_t k = 0; k < t->bytes; k += 34) {
            bn_buf_append(b, t->data + k + 2, 32);
            bn_buf_append(b, t->data + k, 2);
        }
    }
}

/* type: of "tiny"; or the name of another shape, which has its own. */
static void make_file(struct bn_buf *b, const char *type)
{
    char path[64], *data;
    size_t n;
    bitnet_error err = {0};
    bool shape = strncmp(type, "qwen35", 6) == 0;
    bool is_42 = !shape && strcmp(type, "ptq1_0") != 0 && strcmp(type, "pq2_0") != 0;
    bitnet_synth_options o = {
        .size = sizeof o, .type = is_42 ? "pq2_0" : type, .overwrite = 1, .seed = 3};
    if (shape) o.type = NULL;
    if (bn_synth(shape ? type : "tiny", in_folder(path, "good.gguf"), &o, &err))
        fail_msg("%s", err.text);
    assert_int_equal(bn_read_file(&data, &n, path, MAX_BYTES, NULL), BITNET_OK);
    bn_buf_init(b, MAX_BYTES);
    if (is_42) {
        struct bn_source s;
        assert_int_equal(bn_source_open(&s, path, BN_I2S_AUTO, &err), BITNET_OK);
        as_type_42(b, &s, strcmp(type, "TQ2_0_G128") == 0);
        bn_source_close(&s);
    } else {
        bn_buf_append(b, data, n);
    }
    assert_false(b->failed);
    free(data);
}

/* ------------------------------------------------------------------ what is done with each */

static void check_sentence(bitnet_status s, const bitnet_error *err, int number)
{
    if (s == BITNET_OK) return;
    assert_int_equal(err->status, s);
    assert_int_not_equal(s, BITNET_E_INTERNAL);
    size_t n = strlen(err->text);
    if (n < 20 || strchr(err->text, '\n') ||
        !(strstr(err->text, "gguf") || strstr(err->text, "weight") || strstr(err->text, "token") ||
          strstr(err->text, "blk.")))
        fail_msg("file %d: '%s'", number, err->text);
}

/* Opens it and computes a few tokens. */
static bool use(const char *path, int number)
{
    bitnet_model *m = NULL;
    bitnet_engine *e = NULL;
    bitnet_error err = {0};
    bitnet_model_options mo = {.size = sizeof mo};
    bitnet_engine_options eo = {.size = sizeof eo};
    mo.threads = 1;
    bitnet_status s = bitnet_model_open(&m, path, &mo, &err);
    check_sentence(s, &err, number);
    if (s != BITNET_OK) return false;
    eo.threads = 1;
    eo.ctx_tokens = 64;
    if (bitnet_engine_open(&e, m, &eo, &err) == BITNET_OK) {
        static const int32_t prompt[] = {1, 2, 3};
        bitnet_request r;
        uint64_t id;
        bitnet_request_init(&r, sizeof r);
        r.tokens = prompt;
        r.n_tokens = 3;
        r.max_new_tokens = 3;
        if (bitnet_submit(e, &r, &id, &err) == BITNET_OK)
            for (int k = 0; k < 8; k++) {
                bitnet_event ev[8] = {{.size = sizeof *ev}};
                size_t n = BN_ARRAY_LEN(ev);
                if (bitnet_step(e, ev, &n, &err)) break;
            }
        bitnet_engine_close(e);
    }
    bitnet_model_close(m);
    return true;
}

static void convert(const char *path, int number)
{
    static const char *const types[] = {"keep", "i2_s", "pq2_0", "ptq1_0", "q2_0", "tq2_0"};
    char out[64];
    bitnet_error err = {0};
    bitnet_convert_options o = {
        .size = sizeof o, .type = types[number % (int)BN_ARRAY_LEN(types)], .overwrite = 1};
    check_sentence(bn_convert(path, in_folder(out, "out.gguf"), &o, &err), &err, number);
}

/* Where keys of rotated inputs begin and end; nowhere: the whole of the metadata. */
static struct bn_range find_rotation(const struct bn_buf *b, size_t weights)
{
    static const char key[] = "prism.hadamard.";
    struct bn_range found = {0, weights};
    for (size_t i = 0; i + sizeof key < weights; i++) {
        if (memcmp(b->data + i, key, sizeof key - 1) != 0) continue;
        if (found.begin == 0) found.begin = i;
        found.end = i + 64;
    }
    return found;
}

/* Random bytes at random places of data[n]; most of them before `weights`. Returns the new length. */
static size_t mutate(uint8_t *data, size_t n, size_t weights, struct bn_range rotation,
                     struct bn_rng *g)
{
    uint32_t kind = bn_rng_below(g, 8);
    if (kind == 0) return bn_rng_below(g, (uint32_t)n);
    size_t from = 0, to = weights;
    if (kind <= 2) from = weights, to = n;
    if (kind == 3) to = 24;               /* the header */
    if (kind >= 6) from = weights - 1700; /* the directory */
    if (kind == 4) from = rotation.begin, to = rotation.end;
    if (kind == 5 && rotation.begin) from = rotation.begin, to = from + 500; /* but lists */
    uint32_t changes = 1 + bn_rng_below(g, 8);
    for (uint32_t k = 0; k < changes; k++) {
        size_t at = from + bn_rng_below(g, (uint32_t)(to - from));
        data[at] = bn_rng_below(g, 2) ? data[at] ^ (uint8_t)(1u << bn_rng_below(g, 8))
                                      : (uint8_t)bn_rng_u64(g);
    }
    return bn_rng_below(g, 16) == 0 ? n - bn_rng_below(g, 64) : n;
}

static void write_file(const char *path, const void *data, size_t n)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static void mutated(const char *type)
{
    char path[64];
    struct bn_buf b;
    struct bn_rng g = {2026};
    struct bn_source s;
    make_file(&b, type);
    uint8_t *data = malloc(b.len);
    if (bn_source_open_memory(&s, b.data, b.len, "good", NULL)) fail_msg("%s", type);
    size_t weights = b.len;
    for (size_t i = 0; i < s.n_tensors; i++)
        weights = bn_min_size(weights, (size_t)s.tensors[i].offset);
    bn_source_close(&s);
    struct bn_range rotation = find_rotation(&b, weights);
    in_folder(path, "mutated.gguf");
    write_file(path, b.data, b.len);
    assert_true(use(path, -1));
    int opened = 0, n_files = (int)repeats(FILES, 60);
    for (int i = 0; i < n_files; i++) {
        memcpy(data, b.data, b.len);
        write_file(path, data, mutate(data, b.len, weights, rotation, &g));
        opened += use(path, i);
        if (i % 3 == 0) convert(path, i);
    }
    print_message("%s: %d of %d opened\n", type, opened, n_files);
    assert_true(opened > 0 && opened < n_files);
    free(data);
    bn_buf_free(&b);
}

static void pq2_0(void **state) { (void)state, mutated("pq2_0"); }
static void ptq1_0(void **state) { (void)state, mutated("ptq1_0"); }
static void q2_0_128(void **state) { (void)state, mutated("Q2_0_128"); }
static void tq2_0_g128(void **state) { (void)state, mutated("TQ2_0_G128"); }
static void hybrid(void **state) { (void)state, mutated("qwen35-tiny"); }
static void hybrid_rotated(void **state) { (void)state, mutated("qwen35-tiny-rotated"); }

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pq2_0),      cmocka_unit_test(ptq1_0), cmocka_unit_test(q2_0_128),
        cmocka_unit_test(tq2_0_g128), cmocka_unit_test(hybrid), cmocka_unit_test(hybrid_rotated),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
