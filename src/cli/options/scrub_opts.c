/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/options/scrub_opts.h"

#include "base/clock.h"
#include <stddef.h>

enum { PIECE_BYTES = 1 << 20, PIECES_AT_A_TIME = 16 };
static const uint64_t second_ns = UINT64_C(1000000000);

const struct opt scrub_opts_table[] = {
    {.kind = OPT_U32,
     .name = "scrub",
     .metavar = "MIB",
     .help = "MiB of weights per second compared with their checksums while it works; 0: none",
     .offset = offsetof(struct scrub_opts, mib_s),
     .initial = "32",
     .own = true,
     .min = 0,
     .max = 65536},
    {.kind = OPT_END},
};

void scrub_begin(struct scrub *s, bitnet_engine *e, const struct scrub_opts *o)
{
    uint64_t now_ns = bn_now_ns();
    *s = (struct scrub){.engine = o->mib_s ? e : NULL,
                        .mib_s = o->mib_s,
                        .last_ns = now_ns + second_ns,
                        .pass_ns = now_ns,
                        .clean_ns = now_ns};
}

static bitnet_status changed(const struct scrub *s, const bitnet_scrub *found, uint64_t now_ns,
                             bitnet_error *err)
{
    return bn_fail(
        err, BITNET_E_STATE,
        "the weights have changed in memory: %s, from byte %llu on; what was computed in "
        "the last %llu s may be wrong. If the model's file was not written to, suspect "
        "the memory of this machine",
        found->tensor, (unsigned long long)found->offset,
        (unsigned long long)((now_ns - s->clean_ns) / second_ns + 1));
}

bitnet_status scrub_some(struct scrub *s, bitnet_error *err)
{
    uint64_t now_ns = bn_now_ns();
    if (!s->engine || now_ns <= s->last_ns) return BITNET_OK;
    uint64_t piece_ns = second_ns / s->mib_s, pieces = (now_ns - s->last_ns) / piece_ns;
    if (!pieces) return BITNET_OK;
    /* steps may be long, and a machine may have slept: what was missed is made up for to a point */
    if (pieces > PIECES_AT_A_TIME) pieces = PIECES_AT_A_TIME;
    s->last_ns = now_ns;
    bitnet_scrub state = {.size = sizeof state};
    BN_TRY(bitnet_engine_scrub(s->engine, pieces * PIECE_BYTES, &state, err));
    if (state.mismatches) return changed(s, &state, now_ns, err);
    if (state.passes != s->passes) {
        if (s->passes) s->clean_ns = s->pass_ns; /* the pass that ended compared, from then on */
        s->passes = state.passes;
        s->pass_ns = now_ns;
    }
    return BITNET_OK;
}
