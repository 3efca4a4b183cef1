/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_logits.c: `bitnet logits`: the logits of given ids as little-endian float32 [n_ids][vocab],
 * in a file that appears whole or not at all. The ids pass in pieces, so that memory holds the
 * logits of one piece only; the numbers do not depend on the pieces.
 */
#include "base/os/file.h"
#include "base/os/mem.h"
#include "cli/core/command.h"
#include "app/interrupt.h"
#include "cli/options/model_opts.h"
#include "app/term.h"
#include "app/textio.h"
#include <errno.h>
#include <stdlib.h>

enum { CHUNK_MAX_TOKENS = 1 << 16, PIECE_DEFAULT_TOKENS = 512 };
static const size_t piece_max_bytes = (size_t)64
                                      << 20; /* of logits, when --chunk does not say otherwise */

struct logits_config {
    struct model_opts model;
    struct adapter_opts adapters;
    const char *ids, *out, *head;
    struct kv_opts kv;
    uint32_t chunk;
    bool last;
};

#define AT(field) offsetof(struct logits_config, field)
static const struct opt table[] = {
    {.kind = OPT_STR,
     .name = "ids",
     .metavar = "LIST|@FILE",
     .help = "token ids, as 1,2,3 or from a file (@- is standard input)",
     .offset = AT(ids),
     .own = true},
    {.kind = OPT_STR,
     .letter = 'o',
     .name = "out",
     .metavar = "FILE",
     .help = "file for the float32 values; - is standard output",
     .offset = AT(out)},
    {.kind = OPT_FLAG,
     .name = "last",
     .help = "only the logits of the last id",
     .offset = AT(last)},
    {.kind = OPT_U32,
     .name = "chunk",
     .metavar = "N",
     .help = "compute N tokens at a time; the result is the same",
     .offset = AT(chunk),
     .shown = "up to 512",
     .min = 1,
     .max = CHUNK_MAX_TOKENS},
    MODEL_KV_OPTS(AT(kv), "f32"), /* for comparing: nothing rounded that need not be */
    MODEL_HEAD_OPT(AT(head)),
    {.kind = OPT_END},
};
static const struct opt_part parts[] = {
    {"Logits", table, 0},
    {"Model", model_opts_table, AT(model)},
    {"Adapters", adapter_opts_table, AT(adapters)},
    {NULL, NULL, 0},
};
#undef AT

/* Both ways out: a file that appears at the end, or standard output. */
struct sink {
    bool to_stdout;
    struct bn_out file;
};

static bitnet_status sink_open(struct sink *s, const char *path, bitnet_error *err)
{
    *s = (struct sink){.to_stdout = strcmp(path, "-") == 0, .file.fd = -1};
    return s->to_stdout ? BITNET_OK : bn_out_open(&s->file, path, true, err);
}

static bitnet_status sink_write(struct sink *s, const void *p, size_t n, bitnet_error *err)
{
    if (!s->to_stdout) return bn_out_write(&s->file, p, n, err);
    if (fwrite(p, 1, n, stdout) == n) return BITNET_OK;
    return bn_fail(err, BITNET_E_IO, "cannot write to standard output: %s", strerror(errno));
}

static bitnet_status read_ids(int32_t **ids, size_t *n, const char *typed, bitnet_error *err)
{
    if (typed[0] != '@') return textio_parse_ids(ids, n, typed, strlen(typed), "--ids", err);
    char *text;
    size_t len;
    BN_TRY(textio_read(&text, &len, typed + 1, err));
    bitnet_status s = textio_parse_ids(ids, n, text, len, typed + 1, err);
    free(text);
    return s;
}

/* Evaluates all ids and hands the wanted logits to the sink. */
static bitnet_status write_logits(struct sink *to, bitnet_engine *e, const struct logits_config *c,
                                  const int32_t *ids, size_t n, size_t vocab, size_t piece,
                                  bitnet_error *err)
{
    size_t rows = c->last ? 1 : bn_min_size(piece, n);
    float *logits = bn_calloc(rows * vocab, sizeof *logits);
    if (!logits) return bn_fail_nomem(err, rows * vocab * sizeof *logits, "logits");
    struct term_progress bar = {0};
    bitnet_status s = BITNET_OK;
    for (size_t i = 0; i < n && s == BITNET_OK; i += piece) {
        size_t k = bn_min_size(piece, n - i);
        bool wanted = !c->last || i + k == n;
        s = bitnet_eval(e, 0, ids + i, k, c->last, wanted ? logits : NULL, err);
        if (s == BITNET_OK && wanted)
            s = sink_write(to, logits, (c->last ? 1 : k) * vocab * sizeof *logits, err);
        if (s == BITNET_OK && term_progress_show(&bar, "logits", i + k, n))
            s = bn_fail(err, BITNET_E_CANCELLED, "interrupted");
    }
    term_progress_end(&bar);
    free(logits);
    return s;
}

static bitnet_status compute(const struct logits_config *c, const bitnet_model *m,
                             const int32_t *ids, size_t n, bitnet_error *err)
{
    bitnet_model_info info = {.size = sizeof info};
    bitnet_model_get_info(m, &info);
    size_t vocab = info.shape.n_vocab, piece = c->chunk;
    if (!piece) {
        piece = bn_min_size(PIECE_DEFAULT_TOKENS,
                            piece_max_bytes / (bn_max_size(vocab, 1) * sizeof(float)));
        piece = bn_max_size(piece, 1);
    }
    bitnet_engine_options eo = {.size = sizeof eo};
    eo.threads = c->model.threads;
    eo.pin = c->model.pin;
    eo.ctx_tokens = (uint32_t)n;
    eo.max_batch_tokens = (uint32_t)bn_max_size(piece, PIECE_DEFAULT_TOKENS);
    model_kv_types(&eo, &c->kv);
    eo.kv_type_otherwise = BITNET_KV_F32;
    eo.head = c->head;
    bitnet_engine *e = NULL;
    struct adapters adapters = {.n = 0};
    struct sink to = {.file.fd = -1};
    bitnet_status s = model_adapted_open(&e, &adapters, m, &eo, &c->adapters, false, err);
    if (s == BITNET_OK) s = sink_open(&to, c->out, err);
    if (s == BITNET_OK) s = write_logits(&to, e, c, ids, n, vocab, piece, err);
    if (s == BITNET_OK && !to.to_stdout) s = bn_out_commit(&to.file, err);
    bn_out_close(&to.file);
    bitnet_engine_close(e);
    adapters_close(&adapters);
    return s;
}

static int run(void *config, const struct arg_words *words)
{
    struct logits_config *c = config;
    const char *model;
    int code = model_word(&model, c->model.model, c->model.model_typed, words, "logits");
    if (code != EXIT_DONE) return code;
    if (!c->ids) return term_usage("logits", "--ids is missing: --ids 1,2,3 or --ids @FILE");
    if (!c->out) return term_usage("logits", "--out is missing: --out FILE");
    bitnet_error err = {0};
    int32_t *ids;
    size_t n;
    if (read_ids(&ids, &n, c->ids, &err) != BITNET_OK)
        return err.status == BITNET_E_ARG && c->ids[0] != '@' ? term_usage("logits", "%s", err.text)
                                                              : term_fail(&err);
    if (n == 0 || n > UINT32_MAX) {
        free(ids);
        return term_usage("logits", n ? "--ids holds too many ids" : "--ids holds no ids");
    }
    bitnet_model *m;
    code = model_open(&m, model, &c->model, c->head, "dense", "logits");
    if (code == EXIT_DONE && compute(c, m, ids, n, &err) != BITNET_OK) code = term_fail(&err);
    bitnet_model_close(m);
    free(ids);
    return code;
}

const struct command cmd_logits = {
    .name = "logits",
    .ranks = true,
    .usage = "[MODEL] --ids 1,2,3|@FILE --out FILE [options]",
    .about = "\n"
             "Writes little-endian float32 values, [number of ids][vocabulary], without a header. "
             "The ids are\n"
             "taken as they are: no token is prepended.\n"
             "\n"
             "  bitnet logits model.gguf --ids 128000,9906 --out logits.f32\n",
    .first = "ids out last model threads",
    .parts = parts,
    .config_bytes = sizeof(struct logits_config),
    .max_words = 1,
    .run = run,
};
