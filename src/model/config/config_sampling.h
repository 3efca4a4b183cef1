/* SPDX-License-Identifier: Apache-2.0
 * Recommendations for sampling: the members that files can have, and their ways in and out. */
#ifndef BN_MODEL_CONFIG_CONFIG_SAMPLING_H
#define BN_MODEL_CONFIG_CONFIG_SAMPLING_H

#include "base/buf.h"
#include "model/config/config.h"

enum { BN_N_SAMPLING_MEMBERS = 6 };
struct bn_sampling_member {
    uint32_t bit;  /* BITNET_SAMPLING_... */
    size_t offset; /* in bitnet_sampling: a float, or uint32_t */
    bool whole;    /* the latter */
    const char *gguf,
        *hf; /* behind "general.sampling."; in generation_config.json, NULL: not there */
    double min, max;
};
extern const struct bn_sampling_member bn_sampling_members[BN_N_SAMPLING_MEMBERS];

/* One number out of a file; one that cannot be is not taken. */
void bn_config_recommend(struct bn_config *c, const struct bn_sampling_member *m, double v,
                         struct bn_buf *note);

void bn_config_sampling_from_gguf(struct bn_config *c, const struct bn_source *s,
                                  struct bn_buf *note);
/* generation_config.json beside config.json, if there is one */
bitnet_status bn_config_sampling_from_hf(struct bn_config *c, const char *folder,
                                         struct bn_buf *note, bitnet_error *err);
void bn_config_sampling_put(const struct bn_config *c, struct bn_gguf_writer *w);

/* What is recommended, into s, which may be NULL; bits of what it was. */
uint32_t bn_config_sampling(const struct bn_config *c, bitnet_sampling *s);

#endif
