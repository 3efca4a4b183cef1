/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/commands/output_model.h"

#include "base/os/file.h"
#include "cli/core/command.h"
#include "app/term.h"
#include <string.h>

enum { TYPES_MAX = 32 }; /* storage types in one file; the formats know fewer */

struct type_sum {
    const char *type;
    uint64_t tensors, bytes, weights;
};

static size_t sum_types(struct type_sum sums[TYPES_MAX], const bitnet_file *f)
{
    size_t n = 0;
    for (size_t i = 0; i < bitnet_file_n_tensors(f); i++) {
        bitnet_tensor_info t = {.size = sizeof t};
        if (bitnet_file_tensor(f, i, &t) != BITNET_OK || t.is_packed) continue;
        size_t k = 0;
        while (k < n && strcmp(sums[k].type, t.type) != 0) k++;
        if (k == TYPES_MAX) continue;
        if (k == n) sums[n++] = (struct type_sum){.type = t.type};
        uint64_t weights = 1;
        for (uint32_t d = 0; d < t.n_dims && d < BN_ARRAY_LEN(t.dims); d++) weights *= t.dims[d];
        sums[k].tensors++;
        sums[k].bytes += t.bytes;
        sums[k].weights += weights;
    }
    return n;
}

static int report_json(const bitnet_file *f, const char *path, double seconds,
                       const struct type_sum *sums, size_t n)
{
    struct bn_json *types = bn_json_object();
    for (size_t i = 0; i < n; i++)
        bn_json_set(types, sums[i].type,
                    bn_json_pack("{s:I, s:I, s:I}", "tensors", (int64_t)sums[i].tensors, "weights",
                                 (int64_t)sums[i].weights, "bytes", (int64_t)sums[i].bytes));
    return term_print_json(bn_json_pack(
        "{s:o, s:s, s:I, s:I, s:f, s:o}", "output", term_json_string(path, strlen(path)), "format",
        bitnet_file_format(f), "file_bytes", (int64_t)bitnet_file_bytes(f), "tensors",
        (int64_t)bitnet_file_n_tensors(f), "seconds", seconds, "types", types));
}

static void print_report(const bitnet_file *f, const char *path, double seconds,
                         const struct type_sum *sums, size_t n)
{
    char size[TERM_SIZE_BYTES];
    term_print_clean(stdout, path);
    printf(": %s, %s, %zu tensors, %.1f s\n", bitnet_file_format(f),
           term_size(size, bitnet_file_bytes(f)), bitnet_file_n_tensors(f), seconds);
    for (size_t i = 0; i < n; i++) {
        double bits = sums[i].weights ? (double)sums[i].bytes * 8 / (double)sums[i].weights : 0;
        printf("  %-10s %5llu tensors %10s  %.3f bits a weight\n", sums[i].type,
               (unsigned long long)sums[i].tensors, term_size(size, sums[i].bytes), bits);
    }
}

int output_model_check(const char *path, bool force)
{
    if (strcmp(path, "-") == 0)
        return term_fail_text("a model cannot be written to standard output: name a file; one "
                              "that is called so is ./-");
    if (force || !bn_exists(path)) return EXIT_DONE;
    return term_fail_text("'%s' exists already; --force replaces it", path);
}

int output_model_report(const char *path, uint64_t ns, bool json)
{
    bitnet_error err = {0};
    bitnet_file *f = NULL;
    if (bitnet_file_open(&f, path, &err) != BITNET_OK) return term_fail(&err);
    struct type_sum sums[TYPES_MAX];
    size_t n = sum_types(sums, f);
    int code = EXIT_DONE;
    if (json) code = report_json(f, path, (double)ns / 1e9, sums, n);
    else print_report(f, path, (double)ns / 1e9, sums, n);
    bitnet_file_close(f);
    return code;
}
