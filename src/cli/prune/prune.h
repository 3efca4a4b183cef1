/* SPDX-License-Identifier: Apache-2.0
 *
 * prune.h: the parts of `bitnet prune` beside its options. speed.c times decoding, files.c looks at files,
 * report.c makes the report as JSON and from that, and nothing else, the table and the page.
 */
#ifndef BN_CLI_PRUNE_PRUNE_H
#define BN_CLI_PRUNE_PRUNE_H

#include "app/calibration.h"
#include "json/json.h"
#include <bitnet/bitnet.h>

/* Of a file's tensors. */
struct prune_bytes {
    uint64_t ffn, mixers, others; /* of layers: feed-forward, the rest; of none */
};

/* All that a report is made of. */
struct prune_facts {
    const bitnet_model_info *model;
    const char *text_path;
    const struct calibration *text;
    const char *criterion;
    uint32_t window, unit;
    const bitnet_prune_result *result;
    double tok_s, tok_s_after; /* measured: of the whole model, of the output; 0: not */
    struct prune_bytes bytes;  /* of the input */
    const char *output;        /* NULL: nothing was written */
    uint64_t output_bytes;
    const char *readers; /* who can read the output */
};

/* Decodes some tokens one by one, several times: the best rate, in tokens a second. max: that fit. */
bitnet_status prune_speed(double *tok_s, bitnet_engine *e, const int32_t *ids, size_t max,
                          uint32_t n_vocab, bitnet_error *err);

/* ---- files.c ---- */

/* Is there a file that a checkpoint called `output` would replace? path: which. What would only come out
 * after the search. */
bool prune_in_the_way(char *path, size_t room, const char *output);
bitnet_status prune_sum_tensors(struct prune_bytes *bytes, const char *path, bitnet_error *err);
/* Who can read a file that was written. */
const char *prune_readers(bitnet_file *f);

/* ---- report.c ---- */

struct bn_json *prune_report(const struct prune_facts *f);
void prune_print_table(const struct bn_json *report);
char *prune_page(const struct bn_json *report); /* NULL: out of memory */

#endif
