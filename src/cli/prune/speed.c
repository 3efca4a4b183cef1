/* SPDX-License-Identifier: Apache-2.0
 *
 * prune/speed.c: how fast a model decodes: tokens of the text, one at a time, as they would come from
 * sampling; the best of a few rounds, since other work on the machine can only slow them down.
 */
#include "base/clock.h"
#include "base/os/mem.h"
#include "cli/prune/prune.h"
#include <stdlib.h>

enum { ROUNDS = 5, WARM_TOKENS = 4, TOKENS = 64 };

bitnet_status prune_speed(double *tok_s, bitnet_engine *e, const int32_t *ids, size_t max,
                          uint32_t n_vocab, bitnet_error *err)
{
    size_t n = bn_min_size(max, WARM_TOKENS + TOKENS);
    float *logits = bn_calloc(n_vocab, sizeof *logits);
    bitnet_status s = logits ? BITNET_OK : bn_fail_nomem(err, n_vocab * sizeof *logits, "logits");
    *tok_s = 0;
    for (int round = 0; round < ROUNDS && s == BITNET_OK && n > WARM_TOKENS; round++) {
        uint64_t start = 0;
        for (size_t i = 0; i < n && s == BITNET_OK; i++) {
            if (i == WARM_TOKENS) start = bn_now_ns();
            s = bitnet_eval(e, 0, ids + i, 1, 1, logits, err);
        }
        double rate = (double)(n - WARM_TOKENS) * 1e9 / (double)(bn_now_ns() - start + 1);
        *tok_s = rate > *tok_s ? rate : *tok_s;
        if (s == BITNET_OK) s = bitnet_eval_reset(e, 0, err);
    }
    free(logits);
    return s;
}
