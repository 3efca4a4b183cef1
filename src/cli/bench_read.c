/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_read.c: reading reports: members of their objects, and whole ones of bench.
 */
#include "cli/bench.h"

const char *bench_text(const struct bn_json *o, const char *key)
{
    const char *s = bn_json_text(bn_json_get(o, key));
    return s ? s : "";
}

double bench_number(const struct bn_json *o, const char *key)
{
    return bn_json_number(bn_json_get(o, key));
}

static bitnet_status check_measurement(const struct bn_json *m, size_t i, const char *path,
                                       bitnet_error *err)
{
    const struct bn_json *repeats = bn_json_get(m, "repeats");
    if (!*bench_text(m, "name") || bn_json_size(repeats) == 0)
        return bn_fail(err, BITNET_E_FORMAT, "'%s': measurement %zu has no name or no repeats",
                       path, i);
    for (size_t k = 0; k < bn_json_size(repeats); k++)
        if (!(bn_json_number(bn_json_at(repeats, k)) > 0))
            return bn_fail(err, BITNET_E_FORMAT, "'%s': repeat %zu of '%s' is not a number above 0",
                           path, k, bench_text(m, "name"));
    return BITNET_OK;
}

bitnet_status bench_read_report(struct bn_json **out, const char *path, bitnet_error *err)
{
    *out = NULL;
    struct bn_json *j = NULL;
    BN_TRY(bn_json_read_file(&j, path, BENCH_REPORT_MAX_BYTES, err));
    bitnet_status s = BITNET_OK;
    const struct bn_json *items = bn_json_get(j, "measurements");
    if (strcmp(bench_text(j, "format"), BENCH_FORMAT) != 0 || !bn_json_is_array(items))
        s = bn_fail(err, BITNET_E_FORMAT, "'%s' is no report of bitnet bench (format %s)", path,
                    BENCH_FORMAT);
    for (size_t i = 0; s == BITNET_OK && i < bn_json_size(items); i++)
        s = check_measurement(bn_json_at(items, i), i, path, err);
    if (s == BITNET_OK) *out = j;
    else bn_json_free(j);
    return s;
}
