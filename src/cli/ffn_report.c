/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/ffn_report.h"

static struct bn_json *share(uint64_t seen, double x)
{
    return seen ? bn_json_real(x) : bn_json_null();
}

struct bn_json *ffn_report(const bitnet_engine *e)
{
    bitnet_engine_info i = {.size = sizeof i};
    bitnet_ffn_layer y = {.size = sizeof y};
    struct bn_json *gates = bn_json_array(), *inputs = bn_json_array();
    bitnet_engine_get_info(e, &i);
    for (uint32_t k = 0; bitnet_engine_ffn_layer(e, k, &y); k++) {
        bn_json_append(gates, share(y.up_seen, y.gates));
        bn_json_append(inputs, share(y.down_seen, y.inputs));
    }
    return bn_json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:o, s:o}", "mode", i.ffn, "tokens",
                        (int64_t)i.ffn_tokens, "up_in_part", (int64_t)i.ffn_up_skipped,
                        "down_in_part", (int64_t)i.ffn_down_skipped, "dense_bytes",
                        (int64_t)i.ffn_dense_bytes, "read_bytes", (int64_t)i.ffn_read_bytes,
                        "gates_open", gates, "inputs_nonzero", inputs);
}
