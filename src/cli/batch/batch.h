/* SPDX-License-Identifier: Apache-2.0
 *
 * batch.h: the parts of `bitnet batch`: requests come from a file line by line (batch_input), run
 * in a bounded window (batch_run) or are only looked at (batch_plan), and their answers go to
 * another file in the same order (batch_output).
 *
 * An output line begins with an id that is a hash of everything its answer depends on: the input
 * line and its place, the model, the options. So the output itself says how far an interrupted run
 * came, and whether it belongs to this one.
 */
#ifndef BN_CLI_BATCH_BATCH_H
#define BN_CLI_BATCH_BATCH_H

#include "app/line_reader.h"
#include "cli/options/model_opts.h"
#include "server/openai/request.h"

struct batch_config {
    struct model_opts model;
    struct engine_opts engine;
    struct seqs_opts seqs;
    const char *input, *output, *chat_template;
    uint32_t max_tokens;
    uint64_t seed, limit;
    bool restart, dry_run, json, quiet;
};

/* ------------------------------------------------------------------ requests */

struct batch_input {
    const struct batch_config *config;
    const bitnet_model *model;
    const char *chat_template; /* as the library wants it */
    uint64_t run_key;          /* hash of model and options */
    struct line_reader reader;
    struct line line; /* the newest request */
    uint64_t index;   /* its number; blank lines are not counted */
    uint64_t key;     /* hash of it and run_key */
    bool held;        /* hand it out once more */
};

/* What answers depend on, beside the requests. */
uint64_t batch_run_key(const struct batch_config *c, const char *chat_template,
                       const bitnet_model_info *m, const bitnet_engine_info *e);

/* Goes on to the next request; *got: false at the end, or at --limit. */
bitnet_status batch_input_next(struct batch_input *in, bool *got, bitnet_error *err);

/* The newest line as a request with its tokens. An error is the request's, for its output line,
 * if openai_error_code calls it 400. *custom_id: the caller's (free), also with an error, but NULL
 * where the line has no readable one. */
bitnet_status batch_input_parse(const struct batch_input *in, struct openai_request *r,
                                char **custom_id, bitnet_error *err);

/* ------------------------------------------------------------------ answers */

struct batch_output {
    int fd;
    bool is_file; /* a regular one: can be resumed */
    const char *name;
    uint64_t synced_ns;
};

enum { BATCH_ID_BYTES = 17 };
void batch_id(char out[BATCH_ID_BYTES], uint64_t key);

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
