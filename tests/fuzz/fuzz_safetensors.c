/* SPDX-License-Identifier: Apache-2.0
 * libFuzzer target: any bytes as a safetensors file; every tensor that is found is read through. */
#include "model/files/source.h"
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_WEIGHTS = 1 << 18 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct bn_source s = {0};
    bitnet_error err;
    uint64_t budget = MAX_WEIGHTS;
    if (!bn_map_init(&s.tensor_by_name, 16)) return 0;
    /* the parser itself, without the look at the first bytes that bn_source_open_memory takes */
    bitnet_status st = bn_safetensors_parse(&s, data, size, "fuzz", &err);
    for (size_t i = 0; st == BITNET_OK && i < s.n_tensors; i++) {
        struct bn_stored m = bn_tensor_stored(&s.tensors[i]);
        if (m.cols == 0 || m.cols > budget) continue;
        float *row = malloc(m.cols * sizeof *row);
        for (uint64_t r = 0; row && r < m.rows && budget >= m.cols; r++, budget -= m.cols)
            bn_dequant_row(row, &m, r);
        free(row);
    }
    bn_source_close(&s);
    return 0;
}
