/* SPDX-License-Identifier: Apache-2.0
 *
 * folded.c: sums as folded stacks, which tools for flame graphs read: a line for each place
 * that has taken time, "bitnet;decode;layer 03;matrix;gate 12345". The number is nanoseconds, those
 * of all workers added up, so that it is exact.
 */
#include "cli/profile/profile.h"

static bitnet_status put_line(struct bn_out *out, const struct profile *p, bitnet_phase phase,
                              uint32_t row, uint32_t op, bitnet_error *err)
{
    uint64_t ns = p->phases[phase].by_row[(size_t)row * p->n_ops + op].ns;
    char layer[24] = "", line[256];
    if (!ns) return BITNET_OK;
    if (row) snprintf(layer, sizeof layer, "layer %02u;", row - 1);
    int n = snprintf(line, sizeof line, "bitnet;%s;%s%s;%s %llu\n", profile_phase_name(phase),
                     layer, p->ops[op].kind, p->ops[op].name, (unsigned long long)ns);
    return bn_out_write(out, line, (size_t)n, err);
}

bitnet_status profile_folded(struct bn_out *out, const struct profile *p, bitnet_error *err)
{
    for (int phase = 0; phase < PROFILE_PHASES; phase++)
        for (uint32_t row = 0; row < p->n_rows; row++)
            for (uint32_t op = 0; op < p->n_ops; op++)
                BN_TRY(put_line(out, p, (bitnet_phase)phase, row, op, err));
    return bn_out_commit(out, err);
}
