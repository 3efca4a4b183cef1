/* SPDX-License-Identifier: Apache-2.0
 *
 * merge.c: the answers of shards as one file, byte for byte what one run would have written. The input
 * says which shard has which request, and the key at the beginning of each answer whether it answers
 * this request, in the same run as all others: no model is needed. What shards have not answered is
 * counted to the end, so that one look tells everything that is missing.
 */
#include "base/os/file.h"
#include "base/os/mem.h"
#include "cli/batch/batch.h"
#include "app/interrupt.h"
#include "app/term.h"
#include <stdlib.h>

struct part {
    struct line_reader answers;
    uint64_t n, n_missing; /* requests; those without an answer */
    bool ended;
};

struct merge {
    struct line_reader requests;
    struct batch_shards shards;
    struct part *parts; /* [shards.n] */
    struct bn_out out;
    uint64_t index, run_key, n_answers, n_missing;
    bool have_run_key;
};

static bitnet_status check_key(struct merge *m, const struct part *p, const struct line *request,
                               const struct line *answer, bitnet_error *err)
{
    uint64_t key;
    bool ours = batch_line_key(answer, &key);
    uint64_t run_key = ours ? batch_key_run(key, m->index, request) : 0;
    if (!m->have_run_key) m->run_key = run_key;
    m->have_run_key = true;
    if (ours && run_key == m->run_key) return BITNET_OK;
    return bn_fail(
        err, BITNET_E_STATE,
        "line %llu of '%.100s' does not answer line %llu of '%.100s' in the run of the "
        "lines before; give the same input, all shards in order, and answers made with one "
        "model and the same options",
        (unsigned long long)answer->number, p->answers.name, (unsigned long long)request->number,
        m->requests.name);
}

/* The next whole answer of a shard; NULL: it has no more. */
static bitnet_status next_answer(struct part *p, struct line *answer, bool *got, bitnet_error *err)
{
    *got = false;
    if (p->ended) return BITNET_OK;
    BN_TRY(line_reader_next(&p->answers, answer, got, err));
    if (*got && !answer->whole)
        return bn_fail(err, BITNET_E_LIMIT, "line %llu of '%.100s' is longer than %d bytes",
                       (unsigned long long)answer->number, p->answers.name, LINE_READER_MAX_BYTES);
    *got = *got && answer->ended;
    p->ended = !*got;
    return BITNET_OK;
}

static bitnet_status merge_one(struct merge *m, const struct line *request, bitnet_error *err)
{
    struct part *p = &m->parts[batch_shards_give(&m->shards, request->n) - 1];
    struct line answer;
    bool got;
    m->index++;
    p->n++;
    BN_TRY(next_answer(p, &answer, &got, err));
    if (!got) {
        p->n_missing++;
        m->n_missing++;
        return BITNET_OK;
    }
    BN_TRY(check_key(m, p, request, &answer, err));
    m->n_answers++;
    BN_TRY(bn_out_write(&m->out, answer.text, answer.n, err));
    return bn_out_write(&m->out, "\n", 1, err);
}

static bitnet_status check_ends(struct merge *m, bitnet_error *err)
{
    for (uint32_t i = 0; i < m->shards.n; i++) {
        struct part *p = &m->parts[i];
        struct line answer;
        bool got;
        if (p->n_missing)
            return bn_fail(
                err, BITNET_E_STATE,
                "%llu of %llu answers are missing, %llu of them of shard %u/%u in '%.100s'; "
                "run it with --shard %u/%u again, it goes on where it stopped",
                (unsigned long long)m->n_missing, (unsigned long long)m->index,
                (unsigned long long)p->n_missing, i + 1, m->shards.n, p->answers.name, i + 1,
                m->shards.n);
        BN_TRY(next_answer(p, &answer, &got, err));
        if (got)
            return bn_fail(err, BITNET_E_STATE,
                           "'%.100s' holds more answers than shard %u/%u has requests (%llu)",
                           p->answers.name, i + 1, m->shards.n, (unsigned long long)p->n);
    }
    return BITNET_OK;
}

static bitnet_status merge_all(struct merge *m, const struct batch_config *c, bitnet_error *err)
{
    struct line request;
    bool got = true;
    while (got && (!c->limit || m->index < c->limit)) {
        if (interrupt_pending()) return bn_fail(err, BITNET_E_CANCELLED, "interrupted");
        BN_TRY(line_reader_next(&m->requests, &request, &got, err));
        if (got && !batch_line_is_blank(&request)) BN_TRY(merge_one(m, &request, err));
    }
    BN_TRY(check_ends(m, err));
    return bn_out_commit(&m->out, err);
}

static bitnet_status open_all(struct merge *m, const struct batch_config *c, char *const *files,
                              bitnet_error *err)
{
    bool to_stdout = strcmp(c->output, "-") == 0;
    BN_TRY(line_reader_open(&m->requests, c->input, err));
    for (uint32_t i = 0; i < m->shards.n; i++)
        BN_TRY(line_reader_open(&m->parts[i].answers, files[i], err));
    return bn_out_open(&m->out, to_stdout ? "/proc/self/fd/1" : c->output, to_stdout || c->restart,
                       err);
}

int batch_merge(const struct batch_config *c, char *const *files, size_t n_files)
{
    struct merge m = {.requests.fd = -1, .out.fd = -1};
    bitnet_error err = {0};
    m.parts = bn_calloc(n_files, sizeof *m.parts);
    bitnet_status s =
        m.parts ? BITNET_OK : bn_fail_nomem(&err, n_files * sizeof *m.parts, "the shards' files");
    for (size_t i = 0; m.parts && i < n_files; i++) m.parts[i].answers.fd = -1;
    if (s == BITNET_OK) s = batch_shards_open(&m.shards, (uint32_t)n_files, &err);
    if (s == BITNET_OK) s = open_all(&m, c, files, &err);
    if (s == BITNET_OK) s = merge_all(&m, c, &err);
    bn_out_close(&m.out);
    for (size_t i = 0; m.parts && i < n_files; i++) line_reader_close(&m.parts[i].answers);
    line_reader_close(&m.requests);
    batch_shards_close(&m.shards);
    free(m.parts);
    if (s != BITNET_OK) return term_fail(&err);
    if (c->json)
        return term_print_json(bn_json_pack("{s:I, s:I}", "answers", (int64_t)m.n_answers, "shards",
                                            (int64_t)n_files));
    if (!c->quiet)
        fprintf(stderr, "%llu answers of %zu shards\n", (unsigned long long)m.n_answers, n_files);
    return EXIT_DONE;
}
