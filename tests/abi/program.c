/* SPDX-License-Identifier: Apache-2.0
 * A program as users have it: it gives every struct of bitnet.h that has a size to the library and
 * prints what comes back. abi.py builds it with the header as it is and with a later one, and runs it
 * with a library of the other kind.
 *
 * Every struct lies directly before memory that cannot be touched, so that a library which reads or
 * writes beyond `size` ends the program. */
#include <bitnet/bitnet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void need(int ok, const char *what)
{
    if (ok) return;
    fprintf(stderr, "%s\n", what);
    exit(1);
}

static void *at_the_edge(size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), room = (bytes + page - 1) / page * page;
    char *p = mmap(NULL, room + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    need(p != MAP_FAILED && mprotect(p + room, page, PROT_NONE) == 0, "no memory");
    return p + room - bytes;
}

/* All zero, but for its size. */
#define NEW(type, var)                     \
    type *var = at_the_edge(sizeof(type)); \
    var->size = sizeof(type)

#ifdef BITNET_GROWN /* the header is a later one: the library must know of what it does not know */
#define NOTHING_MORE(var)                                                \
    do {                                                                 \
        need(var->grown_number == 0, "a new member was written: " #var); \
        need(var->size == sizeof *var, "another size: " #var);           \
    } while (0)
#define REFUSED(var, call)                                                        \
    do {                                                                          \
        var->grown_number = 1;                                                    \
        need((call) == BITNET_E_UNSUPPORTED, "a new option was ignored: " #call); \
        var->grown_number = 0;                                                    \
    } while (0)
#else
#define NOTHING_MORE(var)  (void)var
#define REFUSED(var, call) (void)var
#endif

static bitnet_error err;
#define TRY(call) need((call) == BITNET_OK, err.text[0] ? err.text : #call)

static void look_at_file(const char *path)
{
    bitnet_file *f;
    TRY(bitnet_file_open(&f, path, &err));
    NEW(bitnet_file_model, model);
    NEW(bitnet_tensor_info, tensor);
    NEW(bitnet_tensor_stats, stats);
    NEW(bitnet_sampling, advice);
    bitnet_sampling_init(advice, sizeof *advice);
    TRY(bitnet_file_get_model(f, model, &err));
    TRY(bitnet_file_tensor(f, 2, tensor));
    TRY(bitnet_file_tensor_stats(f, 2, stats, &err));
    printf("file: %u, %g, %s %u layers, %s %s %llu bytes, %s %g\n", bitnet_file_sampling(f, advice),
           (double)advice->top_p, model->architecture, model->n_layer, tensor->name, tensor->type,
           (unsigned long long)tensor->bytes, stats->dtype, stats->zero_share);
    NOTHING_MORE(model);
    NOTHING_MORE(tensor);
    NOTHING_MORE(stats);
    bitnet_file_close(f);
}

static void make_files(const char *in, const char *folder)
{
    char path[512];
    NEW(bitnet_convert_options, convert);
    NEW(bitnet_synth_options, synth);
    snprintf(path, sizeof path, "%s/converted.gguf", folder);
    REFUSED(convert, bitnet_convert(in, path, convert, NULL));
    convert->overwrite = 1;
    convert->head_type = "q8_0";
    TRY(bitnet_convert(in, path, convert, &err));
    look_at_file(path);
    snprintf(path, sizeof path, "%s/made.gguf", folder);
    REFUSED(synth, bitnet_synth("tiny", path, synth, NULL));
    synth->overwrite = 1;
    synth->seed = 7;
    TRY(bitnet_synth("tiny", path, synth, &err));
    look_at_file(path);
}

static void generate(bitnet_engine *e, const bitnet_model *m, const int32_t *ids, size_t n)
{
    NEW(bitnet_request, ask);
    uint64_t id;
    bitnet_request_init(ask, sizeof *ask);
    ask->tokens = ids, ask->n_tokens = n, ask->max_new_tokens = 12, ask->n_choices = 2;
    ask->sampling.seed = 11;
    bitnet_model_sampling(m, &ask->sampling);
    REFUSED(ask, bitnet_submit(e, ask, &id, NULL));
#ifdef BITNET_GROWN
    ask->sampling.grown_number = 1; /* was a reserved word */
    need(bitnet_submit(e, ask, &id, NULL) == BITNET_E_UNSUPPORTED, "a new sampler was ignored");
    ask->sampling.grown_number = 0;
#endif
    TRY(bitnet_submit(e, ask, &id, &err));
    enum { ROOM = 3 };
    bitnet_event *events = at_the_edge(ROOM * sizeof *events);
    events->size = sizeof *events;
    for (size_t got = ROOM; got > 0;) {
        TRY((got = ROOM, bitnet_step(e, events, &got, &err)));
        for (size_t i = 0; i < got; i++) {
            const bitnet_event *ev = &events[i];
            printf("%u: %d '%.*s' %d, %u of %u\n", ev->choice, ev->token, (int)ev->text_bytes,
                   ev->text, (int)ev->finish, ev->n_generated, ev->n_prompt);
            NOTHING_MORE(ev);
        }
    }
}

static void embed(bitnet_engine *e, const int32_t *ids, size_t n, uint32_t n_embd)
{
    const bitnet_embed_input in = {ids, n};
    NEW(bitnet_embed_options, o);
    float *out = calloc(n_embd, sizeof *out);
    REFUSED(o, bitnet_embed(e, &in, 1, o, out, NULL));
    o->pooling = BITNET_POOL_LAST;
    TRY(bitnet_embed(e, &in, 1, o, out, &err));
    printf("embedding: %.9g %.9g\n", (double)out[0], (double)out[n_embd - 1]);
    free(out);
}

/* A base that knows nothing: all tokens are alike. */
static void even(void *user, size_t row, double *out)
{
    const bitnet_model_info *info = user;
    (void)row;
    for (uint32_t i = 0; i < info->shape.n_vocab; i++) out[i] = -8;
}

static void measure(bitnet_engine *e, const bitnet_model *m, const int32_t *ids, size_t n)
{
    NEW(bitnet_ppl_options, how);
    NEW(bitnet_ppl_result, ppl);
    NEW(bitnet_compare_options, compare);
    NEW(bitnet_divergence, apart);
    NEW(bitnet_model_info, model);
    NEW(bitnet_health, health);
    NEW(bitnet_kv_health, kv);
    NEW(bitnet_ffn_layer, layer);
    NEW(bitnet_scrub, scrub);
    NEW(bitnet_profile_entry, entry);
    NEW(bitnet_profile_info, profile);
    NEW(bitnet_profile_span, span);
    NEW(bitnet_kernel_info, kernel);
    NEW(bitnet_kernel_case, timed);
    REFUSED(how, bitnet_perplexity(e, ids, n, how, ppl, NULL));
    TRY(bitnet_perplexity(e, ids, n, how, ppl, &err));
    compare->ctx_tokens = 4;
    compare->base = even;
    compare->base_user = model;
    TRY(bitnet_model_get_info(m, model));
    REFUSED(compare, bitnet_compare(NULL, e, ids, n, compare, apart, NULL));
    TRY(bitnet_compare(NULL, e, ids, n, compare, apart, &err));
    TRY(bitnet_engine_health(e, health));
    TRY(bitnet_engine_kv_health(e, 0, kv, &err));
    TRY(bitnet_engine_scrub(e, 1 << 20, scrub, &err));
    TRY(bitnet_profile_get_info(e, profile, &err));
    need(bitnet_engine_ffn_layer(e, 1, layer), "no layer");
    need(bitnet_profile_get(e, 1, entry), "no entry");
    need(bitnet_profile_get_span(e, 0, 0, span), "no span");
    need(bitnet_kernel_get(0, kernel), "no kernel");
    bitnet_kernel_timer *t;
    TRY(bitnet_kernel_timer_open(&t, m, NULL, &err));
    need(bitnet_kernel_timer_case(t, 0, timed), "no case");
    printf("measured: %.9g, %llu choices, %llu rows, %g, %llu bytes, %s %s, %llu workers, %s, %s, "
           "%s, %.9g\n",
           ppl->perplexity, (unsigned long long)health->choices, (unsigned long long)kv->rows,
           kv->values.max_abs, (unsigned long long)scrub->pass_bytes, entry->op, entry->kind,
           (unsigned long long)profile->workers, span->op, kernel->op, timed->op, apart->kl_mean);
    bitnet_kernel_timer_close(t);
    NOTHING_MORE(ppl);
    NOTHING_MORE(apart);
    NOTHING_MORE(health);
    NOTHING_MORE(kv);
    NOTHING_MORE(layer);
    NOTHING_MORE(scrub);
    NOTHING_MORE(entry);
    NOTHING_MORE(profile);
    NOTHING_MORE(span);
    NOTHING_MORE(kernel);
    NOTHING_MORE(timed);
}

int main(int argc, char **argv)
{
    need(argc == 3, "usage: program MODEL FOLDER");
    static const char prompt[] = "Once upon a time there was a little dog";
    bitnet_model *m;
    bitnet_engine *e;
    int32_t ids[64];
    size_t n = 64;
    NEW(bitnet_model_options, mo);
    NEW(bitnet_engine_options, eo);
    NEW(bitnet_model_info, model);
    NEW(bitnet_engine_info, engine);
    REFUSED(mo, bitnet_model_open(&m, argv[1], mo, NULL));
    mo->threads = 1;
    mo->prefetch_bytes = BITNET_OFF;
    TRY(bitnet_model_open(&m, argv[1], mo, &err));
    REFUSED(eo, bitnet_engine_open(&e, m, eo, NULL));
    eo->threads = 1;
    eo->max_seqs = 2;
    eo->profile = "trace";
    TRY(bitnet_engine_open(&e, m, eo, &err));
    TRY(bitnet_encode(m, prompt, sizeof prompt - 1, BITNET_TOK_BOS, ids, &n, &err));
    generate(e, m, ids, n);
    TRY(bitnet_model_get_info(m, model));
    TRY(bitnet_engine_get_info(e, engine));
    printf("%s, %u layers, prefetch %u, %s; %u threads, %llu steps, %u pages, head %s, ffn %s\n",
           model->name, model->shape.n_layer, model->memory.prefetch_bytes, model->memory.hugepages,
           engine->threads, (unsigned long long)engine->work.steps, engine->kv.pages,
           engine->head.type, engine->ffn.type);
    NOTHING_MORE(model);
    NOTHING_MORE(engine);
    embed(e, ids, n, model->shape.n_embd);
    measure(e, m, ids, n);
    bitnet_engine_close(e);
    bitnet_model_close(m);
    look_at_file(argv[1]);
    make_files(argv[1], argv[2]);
    return 0;
}
