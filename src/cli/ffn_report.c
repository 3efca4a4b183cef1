/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/ffn_report.h"

static json_t *share(uint64_t seen, double x) { return seen ? json_real(x) : json_null(); }

json_t *ffn_report(const bitnet_engine *e)
{
    bitnet_engine_info i = {.size = sizeof i};
    bitnet_ffn_layer y = {.size = sizeof y};
    json_t *gates = json_array(), *inputs = json_array();
    bitnet_engine_get_info(e, &i);
    for (uint32_t k = 0; bitnet_engine_ffn_layer(e, k, &y); k++) {
        json_array_append_new(gates, share(y.up_seen, y.gates));
        json_array_append_new(inputs, share(y.down_seen, y.inputs));
    }
    return json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:o, s:o}", "mode", i.ffn, "tokens",
                     (json_int_t)i.ffn_tokens, "up_in_part", (json_int_t)i.ffn_up_skipped,
                     "down_in_part", (json_int_t)i.ffn_down_skipped, "dense_bytes",
                     (json_int_t)i.ffn_dense_bytes, "read_bytes", (json_int_t)i.ffn_read_bytes,
                     "gates_open", gates, "inputs_nonzero", inputs);
}
