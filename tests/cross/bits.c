/* SPDX-License-Identifier: Apache-2.0
 *
 * bits: one number for all logits of a prompt. Evaluates a fixed list of tokens through bitnet.h in
 * the way the options say and prints the SHA-256 of the logits' bytes, [n_ids][n_vocab] float32, so
 * that builds, CPUs, thread counts, chunks and files can be compared by one line
 * (tests/e2e/same_bits.py). It needs the core of the library only, no tokenizer, and therefore also
 * builds with a bare cross compiler.
 *
 * With --answer the list is a prompt instead, and the hash is that of the tokens that a greedy and
 * two sampled requests make of it with the given head (exact or screened).
 *
 * With --company a second sequence is fed between the chunks of the first: it must not change a
 * bit.
 */
#include <bitnet/bitnet.h>
#include "sha256.h"

#include <errno.h>
#include <stdlib.h>

/* --backend is an upper limit: a build without such kernels would quietly use lesser ones, and a comparison would compare
 * nothing. So a named backend that is not the one in use has an exit status of its own. */
enum { MAX_IDS = 1 << 16, EXIT_OTHER_KERNELS = 3, MAX_ANSWER = 256 };

/* the first 64 ids of a validation story for models/stories-31m.gguf */
static const int32_t default_ids[] = {
    0,   390,  389, 262, 365, 15,   372, 287,  262, 359,  472, 368, 369,  17,  369,  404,
    517, 328,  353, 497, 15,  1525, 353, 1461, 352, 1664, 17,  408, 329,  15,  369,  340,
    382, 1001, 515, 730, 268, 318,  17,  397,  395, 386,  655, 480, 1827, 262, 1690, 328,
    669, 1664, 17,  428, 823, 15,   369, 340,  359, 1497, 515, 333, 270,  431, 268,  318};

struct args {
    const char *model, *ids, *backend, *layout, *activations, *out, *head, *ffn;
    unsigned long threads, chunk, batch, answer;
    bitnet_kv_type kv;
    bool company;
};

static int usage(const char *why)
{
    fprintf(stderr,
            "bits: %s\n"
            "usage: bits MODEL [--ids 1,2,3|@FILE] [--backend B] [--layout L] [--threads T]\n"
            "            [--chunk C] [--batch B] [--kv f16|f32] [--company] [--out FILE|-]\n"
            "            [--activations int16|int8|f32] [--ffn dense|skip] [--head "
            "exact|screened|int8]\n"
            "            [--answer N]\n"
            "       bits --self-test\n"
            "Prints the SHA-256 of the logits. --chunk: tokens a call (0: all); --batch: tokens a "
            "step;\n"
            "--out: the logits themselves as well (-: to stdout, and the hash to stderr).\n",
            why);
    return 2;
}

static bool parse_kv(bitnet_kv_type *out, const char *text)
{
    const char *name;
    for (int t = BITNET_KV_AUTO + 1; (name = bitnet_kv_type_name((bitnet_kv_type)t)); t++)
        if (strcmp(name, text) == 0) {
            *out = (bitnet_kv_type)t;
            return true;
        }
    return false;
}

static bool parse_ulong(unsigned long *out, const char *s, unsigned long max)
{
    char *end;
    errno = 0;
    *out = strtoul(s, &end, 10);
    return *s >= '0' && *s <= '9' && *end == 0 && errno == 0 && *out <= max;
}

static int parse(struct args *a, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        const char *o = argv[i], *v = i + 1 < argc ? argv[i + 1] : NULL;
        if (strcmp(o, "--company") == 0) {
            a->company = true;
            continue;
        }
        if (o[0] != '-') {
            if (a->model) return usage("more than one model");
            a->model = o;
            continue;
        }
        if (!v) return usage("an option lacks its value or is unknown");
        i++;
        bool good = true;
        if (strcmp(o, "--ids") == 0) a->ids = v;
        else if (strcmp(o, "--backend") == 0) a->backend = v;
        else if (strcmp(o, "--layout") == 0) a->layout = v;
        else if (strcmp(o, "--activations") == 0) a->activations = v;
        else if (strcmp(o, "--out") == 0) a->out = v;
        else if (strcmp(o, "--head") == 0) a->head = v;
        else if (strcmp(o, "--ffn") == 0) a->ffn = v;
        else if (strcmp(o, "--answer") == 0) good = parse_ulong(&a->answer, v, MAX_ANSWER);
        else if (strcmp(o, "--threads") == 0) good = parse_ulong(&a->threads, v, 4096);
        else if (strcmp(o, "--chunk") == 0) good = parse_ulong(&a->chunk, v, MAX_IDS);
        else if (strcmp(o, "--batch") == 0) good = parse_ulong(&a->batch, v, MAX_IDS);
        else if (strcmp(o, "--kv") == 0) good = parse_kv(&a->kv, v);
        else good = false;
        if (!good) return usage("an option or its value is wrong");
    }
    return a->model ? 0 : usage("no model given");
}

/* Numbers separated by anything that is no digit. Returns how many, or 0 if there are none or too
 * many. */
static size_t read_ids(int32_t *ids, const char *text)
{
    size_t n = 0;
    while (*text) {
        if (*text < '0' || *text > '9') {
            text++;
            continue;
        }
        if (n == MAX_IDS) return 0;
        char *end;
        ids[n++] = (int32_t)strtol(text, &end, 10);
        text = end;
    }
    return n;
}

static size_t get_ids(int32_t *ids, const char *arg)
{
    static char text[1 << 20];
    if (!arg) {
        memcpy(ids, default_ids, sizeof default_ids);
        return sizeof default_ids / sizeof default_ids[0];
    }
    if (arg[0] != '@') return read_ids(ids, arg);
    FILE *f = fopen(arg + 1, "rb");
    if (!f) return 0;
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    fclose(f);
    return read_ids(ids, text);
}

static bitnet_status evaluate(float *logits, const bitnet_model *m, const struct args *a,
                              const int32_t *ids, size_t n, size_t n_vocab, bitnet_error *err)
{
    bitnet_engine_options eo = {.size = sizeof eo};
    bitnet_engine *e = NULL;
    eo.threads = (uint32_t)a->threads;
    eo.ctx_tokens = (uint32_t)n;
    eo.max_seqs = a->company ? 2 : 1;
    eo.max_batch_tokens = (uint32_t)a->batch;
    eo.kv_type = a->kv;
    eo.head = a->head;
    eo.ffn = a->ffn;
    bitnet_status s = bitnet_engine_open(&e, m, &eo, err);
    size_t chunk = a->chunk ? a->chunk : n;
    for (size_t at = 0; s == BITNET_OK && at < n; at += chunk) {
        size_t take = n - at < chunk ? n - at : chunk;
        if (a->company) { /* the same tokens backwards */
            for (size_t i = at; s == BITNET_OK && i < at + take; i++)
                s = bitnet_eval(e, 1, &ids[n - 1 - i], 1, 1, NULL, err);
        }
        if (s == BITNET_OK) s = bitnet_eval(e, 0, ids + at, take, 0, logits + at * n_vocab, err);
    }
    bitnet_engine_info info = {.size = sizeof info};
    bitnet_engine_get_info(e, &info);
    if (s == BITNET_OK && a->ffn)
        fprintf(stderr, "bits: ffn %s, %llu of up and %llu of down in part\n", info.ffn.type,
                (unsigned long long)info.ffn.up_skipped, (unsigned long long)info.ffn.down_skipped);
    bitnet_engine_close(e);
    return s;
}

/* Greedy, top-k, top-k with top-p and min-p, and plain, side by side. */
static bitnet_status answer(struct sha256 *sha, const bitnet_model *m, const struct args *a,
                            const int32_t *ids, size_t n, bitnet_error *err)
{
    enum { N = 4 };
    static const bitnet_sampling ways[N] = {
        {.temperature = 0, .top_p = 1},
        {.temperature = 0.9f, .top_p = 1, .top_k = 40, .seed = 1},
        {.temperature = 0.8f, .top_p = 0.95f, .min_p = 0.05f, .top_k = 40, .seed = 2},
        {.temperature = 1, .top_p = 1, .seed = 3}};
    int32_t tokens[N][MAX_ANSWER] = {{0}};
    uint64_t request[N];
    size_t made[N] = {0};
    bitnet_engine_options eo = {.size = sizeof eo};
    bitnet_engine *e = NULL;
    eo.threads = (uint32_t)a->threads;
    eo.max_seqs = a->company ? N : 1;
    eo.max_batch_tokens = (uint32_t)a->batch;
    eo.kv_type = a->kv;
    eo.ffn = a->ffn;
    eo.head = a->head;
    bitnet_status s = bitnet_engine_open(&e, m, &eo, err);
    for (int i = 0; s == BITNET_OK && i < N; i++) {
        bitnet_request r;
        bitnet_request_init(&r, sizeof r);
        r.tokens = ids;
        r.n_tokens = n;
        r.max_new_tokens = (uint32_t)a->answer;
        r.ignore_end = 1;
        r.sampling = ways[i];
        r.sampling.size = sizeof r.sampling;
        s = bitnet_submit(e, &r, &request[i], err);
    }
    for (size_t some = 1; s == BITNET_OK && some;) {
        bitnet_event ev[2 * N] = {{.size = sizeof *ev}};
        some = 2 * N;
        s = bitnet_step(e, ev, &some, err);
        for (size_t k = 0; s == BITNET_OK && k < some; k++)
            for (int i = 0; i < N; i++)
                if (request[i] == ev[k].id && ev[k].token >= 0) tokens[i][made[i]++] = ev[k].token;
    }
    if (s == BITNET_OK) {
        bitnet_engine_info info = {.size = sizeof info};
        bitnet_engine_get_info(e, &info);
        fprintf(stderr, "bits: head %s, %llu tokens screened, %llu survivors\n", info.head.type,
                (unsigned long long)info.head.screened, (unsigned long long)info.head.survivors);
    }
    bitnet_engine_close(e);
    sha256_add(sha, tokens, sizeof tokens);
    return s;
}

static bool write_logits(const char *path, const float *logits, size_t n)
{
    FILE *f = strcmp(path, "-") == 0 ? stdout : fopen(path, "wb");
    if (!f) return false;
    bool good = fwrite(logits, sizeof *logits, n, f) == n;
    if (f != stdout) good &= fclose(f) == 0;
    return good;
}

int main(int argc, char **argv)
{
    static int32_t ids[MAX_IDS];
    struct args a = {0};
    if (argc == 2 && strcmp(argv[1], "--self-test") == 0) {
        bool good = sha256_test();
        printf("SHA-256 %s the examples of FIPS 180-4\n", good ? "agrees with" : "DIFFERS from");
        return !good;
    }
    int rc = parse(&a, argc, argv);
    if (rc) return rc;
    size_t n = get_ids(ids, a.ids);
    if (n == 0) return usage("no token ids, or more than fit");

    bitnet_error err = {0};
    bitnet_model *m = NULL;
    bitnet_model_options mo = {.size = sizeof mo};
    mo.threads = (uint32_t)a.threads;
    mo.backend = a.backend;
    mo.layout = a.layout;
    mo.activations = a.activations;
    mo.head = a.head;
    mo.ffn = a.ffn;
    float *logits = NULL;
    bitnet_status s = bitnet_model_open(&m, a.model, &mo, &err);
    if (s == BITNET_OK) {
        bitnet_model_info info = {.size = sizeof info};
        bitnet_model_get_info(m, &info);
        fprintf(stderr, "bits: kernels %s\nbits: layout %s\n", info.backend, info.layout);
        if (a.backend && strcmp(a.backend, "auto") != 0 && strcmp(a.backend, info.backend) != 0) {
            fprintf(stderr, "bits: no %s kernels in this build\n", a.backend);
            bitnet_model_close(m);
            return EXIT_OTHER_KERNELS;
        }
        if (a.answer) {
            struct sha256 sha;
            char hex[65];
            sha256_init(&sha);
            s = answer(&sha, m, &a, ids, n, &err);
            sha256_hex(&sha, hex);
            if (s == BITNET_OK) printf("%s\n", hex);
            else fprintf(stderr, "bits: %s\n", err.text);
            bitnet_model_close(m);
            return s != BITNET_OK;
        }
        logits = calloc(n, info.shape.n_vocab * sizeof *logits);
        if (!logits) {
            fprintf(stderr, "bits: no memory for %zu logits\n", n * info.shape.n_vocab);
            bitnet_model_close(m);
            return 1;
        }
        s = evaluate(logits, m, &a, ids, n, info.shape.n_vocab, &err);
        if (s == BITNET_OK) {
            struct sha256 sha;
            char hex[65];
            sha256_init(&sha);
            sha256_add(&sha, logits, n * info.shape.n_vocab * sizeof *logits);
            sha256_hex(&sha, hex);
            bool to_stdout = a.out && strcmp(a.out, "-") == 0;
            if (a.out && !write_logits(a.out, logits, n * info.shape.n_vocab)) {
                fprintf(stderr, "bits: cannot write %s\n", a.out);
                rc = 1;
            }
            fprintf(to_stdout ? stderr : stdout, "%s\n", hex);
        }
    }
    if (s != BITNET_OK) {
        fprintf(stderr, "bits: %s\n", err.text);
        rc = 1;
    }
    free(logits);
    bitnet_model_close(m);
    return rc;
}
