/* SPDX-License-Identifier: Apache-2.0 */
#include "base/os/mem.h"
#include "cli/batch/batch.h"
#include "cli/ranks/ranks.h"
#include <ctype.h>
#include <stdlib.h>

/* What computing an answer costs beside reading its prompt, as bytes of a line: 256 tokens, of which
 * one takes as long as four tokens of a prompt, of four bytes each. */
enum { ANSWER_BYTES = 4096 };

static bool read_number(uint32_t *out, const char **at)
{
    char *end;
    if (!isdigit((unsigned char)**at)) return false;
    unsigned long v = strtoul(*at, &end, 10);
    if (v < 1 || v > BATCH_MAX_SHARDS) return false;
    *at = end;
    *out = (uint32_t)v;
    return true;
}

bitnet_status batch_shard_parse(struct batch_shard *out, const char *typed, bitnet_error *err)
{
    const char *at = typed;
    bool good = read_number(&out->number, &at) && *at++ == '/' && read_number(&out->n, &at) && !*at;
    if (good && out->number <= out->n) return BITNET_OK;
    return bn_fail(
        err, BITNET_E_ARG,
        "--shard '%.40s' is not a part of a batch: 1/4 is the first of four; there can be "
        "%d",
        typed, BATCH_MAX_SHARDS);
}

/* A task of a Slurm array; they may be numbered from any number on. */
static bool slurm_shard(struct batch_shard *out)
{
    const char *task = getenv("SLURM_ARRAY_TASK_ID"), *n = getenv("SLURM_ARRAY_TASK_COUNT");
    const char *first = getenv("SLURM_ARRAY_TASK_MIN");
    if (!task || !n) return false;
    long number = strtol(task, NULL, 10) - (first ? strtol(first, NULL, 10) : 0) + 1;
    long all = strtol(n, NULL, 10);
    if (number < 1 || number > all || all > BATCH_MAX_SHARDS) return false;
    *out = (struct batch_shard){.number = (uint32_t)number, .n = (uint32_t)all};
    return true;
}

bitnet_status batch_shard_here(struct batch_shard *out, bitnet_error *err)
{
    uint32_t n = ranks_started();
    if (slurm_shard(out)) return BITNET_OK;
    if (n > 1 && n <= BATCH_MAX_SHARDS) {
        *out = (struct batch_shard){.number = ranks_number() + 1, .n = n};
        return BITNET_OK;
    }
    return bn_fail(err, BITNET_E_ARG,
                   "--shard auto is for processes of mpirun (2 to %d) and tasks of a Slurm array; "
                   "elsewhere say --shard 1/4",
                   BATCH_MAX_SHARDS);
}

bitnet_status batch_shard_name(struct bn_buf *out, const char *typed, const struct batch_shard *s,
                               bitnet_error *err)
{
    const char *mark = strchr(typed, '%');
    if (!mark)
        return bn_fail(
            err, BITNET_E_ARG,
            "with --shard auto, --output needs a %% where the part's number is to stand: "
            "part-%%.jsonl");
    bn_buf_append(out, typed, (size_t)(mark - typed));
    bn_buf_printf(out, "%u%s", s->number, mark + 1);
    return out->failed ? bn_fail_nomem(err, strlen(typed), "a file's name") : BITNET_OK;
}

bitnet_status batch_shards_open(struct batch_shards *s, uint32_t n, bitnet_error *err)
{
    *s = (struct batch_shards){.n = n};
    if (n) s->given = bn_calloc(n, sizeof *s->given);
    return s->given || !n ? BITNET_OK : bn_fail_nomem(err, n * sizeof *s->given, "shards");
}

void batch_shards_close(struct batch_shards *s)
{
    free(s->given);
    *s = (struct batch_shards){.n = 0};
}

uint32_t batch_shards_give(struct batch_shards *s, size_t line_bytes)
{
    if (!s->n) return 0;
    uint32_t least = 0;
    for (uint32_t i = 1; i < s->n; i++)
        if (s->given[i] < s->given[least]) least = i;
    s->given[least] += line_bytes + ANSWER_BYTES;
    return least + 1;
}
