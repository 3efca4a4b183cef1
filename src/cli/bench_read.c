/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_read.c: reading reports: members of their objects, and whole ones of bench.
 */
#include "cli/bench.h"

const char *bench_text(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "";
}

double bench_number(const json_t *o, const char *key)
{
    return json_number_value(json_object_get(o, key));
}

static bitnet_status check_measurement(const json_t *m, size_t i, const char *path,
                                       bitnet_error *err)
{
    const json_t *repeats = json_object_get(m, "repeats");
    if (!*bench_text(m, "name") || json_array_size(repeats) == 0)
        return bn_fail(err, BITNET_E_FORMAT, "'%s': measurement %zu has no name or no repeats",
                       path, i);
    for (size_t k = 0; k < json_array_size(repeats); k++)
        if (!(json_number_value(json_array_get(repeats, k)) > 0))
            return bn_fail(err, BITNET_E_FORMAT, "'%s': repeat %zu of '%s' is not a number above 0",
                           path, k, bench_text(m, "name"));
    return BITNET_OK;
}

bitnet_status bench_read_report(json_t **out, const char *path, bitnet_error *err)
{
    *out = NULL;
    json_t *j = NULL;
    BN_TRY(bn_json_read(&j, path, BENCH_REPORT_MAX_BYTES, err));
    bitnet_status s = BITNET_OK;
    const json_t *items = json_object_get(j, "measurements");
    if (strcmp(bench_text(j, "format"), BENCH_FORMAT) != 0 || !json_is_array(items))
        s = bn_fail(err, BITNET_E_FORMAT, "'%s' is no report of bitnet bench (format %s)", path,
                    BENCH_FORMAT);
    for (size_t i = 0; s == BITNET_OK && i < json_array_size(items); i++)
        s = check_measurement(json_array_get(items, i), i, path, err);
    if (s == BITNET_OK) *out = j;
    else json_decref(j);
    return s;
}
