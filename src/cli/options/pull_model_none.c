/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/options/pull_model.h"

#include "app/term.h"

static int refuse(const struct hub_name *name)
{
    char text[HUB_TYPED_BYTES];
    hub_name_text(text, name);
    return term_fail_text("'%s' cannot be downloaded: this program was built without TLS (OpenSSL)",
                          text);
}

int pull_model(struct hub_local *got, const struct hub_places *p, const struct hub_name *name,
               bool quiet)
{
    (void)got;
    (void)p;
    (void)quiet;
    return refuse(name);
}

int pull_look(struct pull_plan *out, const struct hub_places *p, const struct hub_name *name)
{
    (void)out;
    (void)p;
    return refuse(name);
}

void pull_tell_memory(uint64_t file_bytes) { (void)file_bytes; }

bitnet_status pull_quietly(struct hub_local *got, const struct hub_places *p,
                           const struct hub_name *name, const struct hub_pull_view *view,
                           const struct hub_cancel *cancel, bitnet_error *err)
{
    (void)got, (void)p, (void)name, (void)view, (void)cancel;
    return bn_fail(err, BITNET_E_UNSUPPORTED,
                   "nothing can be downloaded: this program was built without TLS (OpenSSL)");
}
