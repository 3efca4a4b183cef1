/* SPDX-License-Identifier: Apache-2.0
 *
 * fim.h: filling in the middle: models that were trained for it have tokens that mark what stands before a gap,
 * what behind it, and where the model is to write.
 */
#ifndef BN_SERVER_FIM_H
#define BN_SERVER_FIM_H

#include "json/json.h"

enum { FIM_NONE = -1 };

struct fim {
    int32_t prefix, suffix, middle;
    int32_t repo, file; /* before the name of a repository, of a file; FIM_NONE: it has none */
};

/* false: the model has no such tokens. */
bool fim_find(struct fim *f, const bitnet_model *m);

/* Texts, or NULL: none. extra: a list of {"text", "filename"}, which come first. */
struct fim_text {
    const struct bn_json *prefix, *suffix, *middle, *extra;
};
/* As a list of token ids. BITNET_E_UNSUPPORTED: the model has no such tokens. */
bitnet_status fim_prompt(struct bn_json **ids, const bitnet_model *m, const struct fim_text *t,
                         bitnet_error *err);

#endif
