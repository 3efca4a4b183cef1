/* SPDX-License-Identifier: Apache-2.0
 *
 * adapters.h: adapters by name, as the option --lora gives them: [NAME=]PATH[:SCALE].
 */
#ifndef BN_APP_ADAPTERS_H
#define BN_APP_ADAPTERS_H

#include "base/status.h"

enum { ADAPTERS_MAX = 64, ADAPTER_NAME_BYTES = 128 };

struct adapter_spec {
    char name[ADAPTER_NAME_BYTES]; /* not given: the last part of the path, without an ending */
    char *path;                    /* (free) */
    float scale;                   /* not given: 1 */
    bool named, scale_given;
};
bitnet_status adapter_spec_parse(struct adapter_spec *out, const char *typed, bitnet_error *err);
/* A name may be any text without control characters that is neither empty nor too long. */
bitnet_status adapter_name_check(const char *name, bitnet_error *err);

struct adapters {
    struct adapter_item {
        struct adapter_spec spec;
        bitnet_adapter *adapter;
    } items[ADAPTERS_MAX];
    size_t n;
};

/* Opens one, and says on standard error what it takes. Any thread may call it. */
bitnet_status adapter_open(bitnet_adapter **out, const bitnet_model *m, const char *name,
                           const char *path, bitnet_error *err);
/* Reads the option; none is open then. */
bitnet_status adapters_read(struct adapters *a, const char *const *typed, size_t n,
                            bitnet_error *err);
/* Reads it, and opens them. */
bitnet_status adapters_open(struct adapters *a, const bitnet_model *m, const char *const *typed,
                            size_t n, bitnet_error *err);
void adapters_close(struct adapters *a);
/* They become the engine's own; with by_name without those that have a name and no scale. */
bitnet_status adapters_apply(const struct adapters *a, bitnet_engine *e, bool by_name,
                             bitnet_error *err);
/* What one is for requests that do not name it, where names count: 0 for one that is to be named. */
float adapter_spec_usual(const struct adapter_spec *s);

#endif
