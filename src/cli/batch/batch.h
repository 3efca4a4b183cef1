/* SPDX-License-Identifier: Apache-2.0
 *
 * batch.h: the parts of `bitnet batch`: requests come from a file line by line (batch_input), run
 * in a bounded window (batch_run) or are only looked at (batch_plan), and their answers go to
 * another file in the same order (batch_output).
 *
 * An output line begins with an id that is a hash of everything its answer depends on: the input
 * line and its place, the model, the options. So the output itself says how far an interrupted run
 * came, and whether it belongs to this one. A batch may be divided into shards, each computed by
 * itself; batch_merge puts their answers in order.
 */
#ifndef BN_CLI_BATCH_BATCH_H
#define BN_CLI_BATCH_BATCH_H

#include "app/line_reader.h"
#include "cli/options/model_opts.h"
#include "cli/options/scrub_opts.h"
#include "server/openai/request.h"

enum { BATCH_MAX_SHARDS = 1024 };
struct batch_shard {
    uint32_t number, n; /* 1 of 4; n = 0: the batch is not divided */
};

struct batch_config {
    struct model_opts model;
    struct engine_opts engine;
    struct adapter_opts adapters;
    struct seqs_opts seqs;
    struct scrub_opts scrub;
    const char *input, *output, *chat_template, *shard_typed;
    struct batch_shard shard;
    uint32_t max_tokens;
    uint64_t seed, limit;
    bool restart, dry_run, json, quiet;
};

/* ------------------------------------------------------------------ shards */

/* Requests are given out in the order of the input, each to the shard that has got least so far. So
 * every shard comes to the same division by itself. */
struct batch_shards {
    uint32_t n;
    uint64_t *given; /* [n] */
};
/* "auto": the part of this process of mpirun, or of this task of a Slurm array. */
bitnet_status batch_shard_here(struct batch_shard *out, bitnet_error *err);
/* The file of its answers: the part's number in place of the % in what was typed. */
bitnet_status batch_shard_name(struct bn_buf *out, const char *typed, const struct batch_shard *s,
                               bitnet_error *err);
bitnet_status batch_shard_parse(struct batch_shard *out, const char *typed, bitnet_error *err);
bitnet_status batch_shards_open(struct batch_shards *s, uint32_t n, bitnet_error *err);
void batch_shards_close(struct batch_shards *s);
/* Whose a request with a line of so many bytes is: 1 to n; 0 if the batch is not divided. */
uint32_t batch_shards_give(struct batch_shards *s, size_t line_bytes);

/* `bitnet batch merge`: the answers of all shards, in files of their own, in the order of the
 * requests. Returns the exit code. */
int batch_merge(const struct batch_config *c, char *const *files, size_t n_files);

/* ------------------------------------------------------------------ requests */

struct batch_input {
    const struct batch_config *config;
    const bitnet_model *model;
    const struct adapters *adapters;
    bitnet_adapter_use use;    /* of the newest request, until it is submitted */
    const char *chat_template; /* as the library wants it */
    uint64_t run_key;          /* hash of model and options */
    struct line_reader reader;
    struct batch_shards shards;
    struct line line; /* the newest request */
    uint64_t index;   /* its number; blank lines are not counted */
    uint64_t key;     /* hash of it and run_key */
    bool held;        /* hand it out once more */
};

/* What answers depend on, beside the requests. */
bitnet_status batch_run_key(uint64_t *key, const struct batch_input *in, bitnet_engine *e,
                            bitnet_error *err);

/* The seed of a request that has none. */
uint64_t batch_seed(uint64_t seed, const char *custom_id);
/* Of one request; and back, from it to the run it belongs to. */
uint64_t batch_key(uint64_t run_key, uint64_t index, const struct line *l);
uint64_t batch_key_run(uint64_t key, uint64_t index, const struct line *l);

/* Does the line hold nothing? Such lines are no requests. */
bool batch_line_is_blank(const struct line *l);

/* Opens the requests that `config` names. */
bitnet_status batch_input_open(struct batch_input *in, bitnet_error *err);
void batch_input_close(struct batch_input *in);

/* Goes on to the next request of the shard; *got: false at the end, or at --limit. */
bitnet_status batch_input_next(struct batch_input *in, bool *got, bitnet_error *err);

/* The newest line as a request with its tokens. An error is the request's, for its output line,
 * if openai_error_code calls it 400. *custom_id: the caller's (free), also with an error, but NULL
 * where the line has no readable one. */
bitnet_status batch_input_parse(struct batch_input *in, struct openai_request *r, char **custom_id,
                                bitnet_error *err);

/* ------------------------------------------------------------------ answers */

struct batch_output {
    int fd;
    bool is_file; /* a regular one: can be resumed */
    const char *name;
    uint64_t synced_ns;
};

enum { BATCH_ID_BYTES = 17 };
void batch_id(char out[BATCH_ID_BYTES], uint64_t key);
/* The key of the request that a line answers; false: it is no answer of a batch. */
bool batch_line_key(const struct line *l, uint64_t *key);

/* Opens the output, and moves the input past the requests that are answered in it. A last line
 * that is not whole is cut off. */
bitnet_status batch_output_open(struct batch_output *o, struct batch_input *in, uint64_t *n_found,
                                bitnet_error *err);
/* The line of a request: body (taken; NULL: out of memory) with its HTTP status. NULL: out of
 * memory. */
char *batch_output_line(uint64_t key, const char *custom_id, int status, struct bn_json *body);
bitnet_status batch_output_write(struct batch_output *o, const char *line, bitnet_error *err);
bitnet_status batch_output_close(struct batch_output *o, bitnet_error *err);

/* ------------------------------------------------------------------ doing it */

struct batch_totals {
    uint64_t n_found, n_done, n_failed; /* answered before; now; of these, error lines */
    uint64_t prompt_tokens, answer_tokens, ns;
};

/* Answers all requests. BITNET_E_CANCELLED: interrupted; what was written stays. */
bitnet_status batch_run(struct batch_totals *t, struct batch_input *in, struct batch_output *out,
                        bitnet_engine *e, bitnet_error *err);

/* --dry-run: looks at all requests, prints what they would need. Returns the exit code. */
int batch_plan(struct batch_input *in, bitnet_engine *e);

#endif
