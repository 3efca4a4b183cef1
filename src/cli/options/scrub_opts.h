/* SPDX-License-Identifier: Apache-2.0
 *
 * scrub_opts.h: commands that work for long compare the weights in memory with their checksums meanwhile,
 * a little after each step. The first pass takes the checksums.
 */
#ifndef BN_CLI_OPTIONS_SCRUB_OPTS_H
#define BN_CLI_OPTIONS_SCRUB_OPTS_H

#include "cli/core/args.h"

struct scrub_opts {
    uint32_t mib_s; /* 0: off */
};
extern const struct opt scrub_opts_table[];

/* Of one engine; it begins after a second of work, so that what is over by then costs nothing. */
struct scrub {
    bitnet_engine *engine; /* NULL: off */
    uint64_t mib_s, last_ns;
    uint64_t passes, pass_ns,
        clean_ns; /* when this pass began; up to when all weights are known to be right */
};
void scrub_begin(struct scrub *s, bitnet_engine *e, const struct scrub_opts *o);
/* After a step. An error: weights have changed, and since when answers may be wrong. */
bitnet_status scrub_some(struct scrub *s, bitnet_error *err);

#endif
