/* SPDX-License-Identifier: Apache-2.0
 *
 * read.h: making items, one at a time. Readers of lines are of the type eval_reader; `where` names the
 * place in errors: "arc_easy.jsonl:12".
 */
#ifndef BN_CLI_EVAL_READ_H
#define BN_CLI_EVAL_READ_H

#include "cli/eval/eval.h"

/* Adds an item, whose options are to be filled. Borrowed until the next one. */
bitnet_status eval_add(struct eval_item **out, struct eval_set *s, size_t n_options, int64_t gold,
                       const char *where, bitnet_error *err);
/* The choice goes on behind the context after a space. context: of the set; NULL: memory was out when
 * it was made. */
bitnet_status eval_option_set(struct eval_set *s, struct eval_option *o, const char *context,
                              const char *choice, bitnet_error *err);
/* The number of a subject's name, which is added if it is new. */
bitnet_status eval_group(uint32_t *out, struct eval_set *s, const char *name, bitnet_error *err);
/* A sentence with a gap, '_', and the two names that may fill it; answer: 1 or 2. */
bitnet_status eval_add_winogrande(struct eval_set *s, const char *sentence,
                                  const char *const name[2], int64_t answer, const char *where,
                                  bitnet_error *err);

/* Lines of JSON. */
bitnet_status eval_read_open(struct eval_set *s, const struct bn_json *line, const char *where,
                             bitnet_error *err);
bitnet_status eval_read_arc(struct eval_set *s, const struct bn_json *line, const char *where,
                            bitnet_error *err);
bitnet_status eval_read_boolq(struct eval_set *s, const struct bn_json *line, const char *where,
                              bitnet_error *err);
bitnet_status eval_read_gsm8k(struct eval_set *s, const struct bn_json *line, const char *where,
                              bitnet_error *err);
bitnet_status eval_read_hellaswag(struct eval_set *s, const struct bn_json *line, const char *where,
                                  bitnet_error *err);
bitnet_status eval_read_lambada(struct eval_set *s, const struct bn_json *line, const char *where,
                                bitnet_error *err);
bitnet_status eval_read_openbookqa(struct eval_set *s, const struct bn_json *line,
                                   const char *where, bitnet_error *err);
bitnet_status eval_read_piqa(struct eval_set *s, const struct bn_json *line, const char *where,
                             bitnet_error *err);
bitnet_status eval_read_winogrande(struct eval_set *s, const struct bn_json *line,
                                   const char *where, bitnet_error *err);

/* Files of other forms (tables.c), at most `limit` items (0: all): MMLU's folder with test/ and dev/,
 * of which `shots` stand before each question; HellaSwag as lines of text, six an item; WinoGrande as
 * comma-separated values; multiple choice as llama-perplexity's binary files have it. */
struct eval_source {
    const char *path;
    size_t limit;
    uint32_t shots;
};
bitnet_status eval_read_mmlu(struct eval_set *s, const struct eval_source *from, bitnet_error *err);
bitnet_status eval_read_hellaswag_text(struct eval_set *s, const struct eval_source *from,
                                       bitnet_error *err);
bitnet_status eval_read_winogrande_csv(struct eval_set *s, const struct eval_source *from,
                                       bitnet_error *err);
bitnet_status eval_read_binary(struct eval_set *s, const struct eval_source *from,
                               bitnet_error *err);

#endif
