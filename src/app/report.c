/* SPDX-License-Identifier: Apache-2.0 */
#include "app/report.h"

#include <stdio.h>

/* ------------------------------------------------------------------ reading */

const char *report_text(const struct bn_json *o, const char *key)
{
    const char *s = bn_json_text(bn_json_get(o, key));
    return s ? s : "";
}

double report_number(const struct bn_json *o, const char *key)
{
    return bn_json_number(bn_json_get(o, key));
}

/* ------------------------------------------------------------------ model and engine */

struct bn_json *report_model(const bitnet_model_info *m)
{
    struct bn_json *o = bn_json_object();
    set_text(o, "name", m->name);
    set_text(o, "architecture", m->architecture);
    set_int(o, "parameters", m->shape.n_params);
    set_int(o, "parameters_ternary", m->shape.n_params_ternary);
    set_int(o, "layers", m->shape.n_layer);
    set_int(o, "vocab", m->shape.n_vocab);
    set_text(o, "weight_type", m->weight_type);
    set_text(o, "layout", m->layout);
    set_text(o, "head_type", m->head_type);
    set_text(o, "act_quant", m->act_quant);
    set_int(o, "file_bytes", m->memory.file_bytes);
    set_int(o, "layer_bytes", m->memory.layer_bytes);
    set_int(o, "head_bytes", m->memory.head_bytes);
    set_int(o, "head_copy_bytes", m->memory.head_copy_bytes);
    set_int(o, "head_screen_bytes", m->memory.head_screen_bytes);
    set_int(o, "ffn_copy_bytes", m->memory.ffn_copy_bytes);
    set_int(o, "numa_nodes", m->memory.numa_nodes);
    set_int(o, "numa_near_bytes", m->memory.numa_near_bytes);
    return o;
}

struct bn_json *report_engine(const bitnet_engine_info *e, const char *backend)
{
    struct bn_json *o = bn_json_object();
    set_int(o, "threads", e->threads);
    set_int(o, "pinned", e->pinned);
    set_text(o, "backend", backend);
    set_text(o, "kv_type", e->kv.type);
    set_text(o, "head", e->head.type);
    set_text(o, "ffn", e->ffn.type);
    set_int(o, "ctx_size", e->ctx_tokens);
    set_int(o, "max_batch_tokens", e->max_batch_tokens);
    return o;
}

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
    return bn_json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:o, s:o}", "mode", i.ffn.type, "tokens",
                        (int64_t)i.ffn.tokens, "up_in_part", (int64_t)i.ffn.up_skipped,
                        "down_in_part", (int64_t)i.ffn.down_skipped, "dense_bytes",
                        (int64_t)i.ffn.dense_bytes, "read_bytes", (int64_t)i.ffn.read_bytes,
                        "gates_open", gates, "inputs_nonzero", inputs);
}

/* ------------------------------------------------------------------ the lines above every table */

static double mean_share(const struct bn_json *shares)
{
    double sum = 0, n = 0;
    for (size_t i = 0; i < bn_json_size(shares); i++)
        if (bn_json_is_number(bn_json_at(shares, i)))
            sum += bn_json_number(bn_json_at(shares, i)), n++;
    return n > 0 ? sum / n : 0;
}

/* Feed-forward layers, if a token decoded alone takes them in part. */
static void print_ffn(const struct bn_json *ffn)
{
    if (report_number(ffn, "tokens") == 0) return;
    printf(", ffn %s (open gates %.0f %%, inputs %.0f %%)", report_text(ffn, "mode"),
           mean_share(bn_json_get(ffn, "gates_open")) * 100,
           mean_share(bn_json_get(ffn, "inputs_nonzero")) * 100);
}

void report_print_subject(const struct bn_json *r)
{
    const struct bn_json *machine = bn_json_get(r, "machine"), *model = bn_json_get(r, "model"),
                         *s = bn_json_get(r, "settings");
    char params[TERM_SIZE_BYTES], file[TERM_SIZE_BYTES];
    int threads = (int)report_number(s, "threads");
    double p = report_number(model, "parameters");
    snprintf(params, sizeof params, p >= 1e9 ? "%.2fB" : "%.1fM", p >= 1e9 ? p / 1e9 : p / 1e6);
    printf("bitnet %s (%s), ", report_text(r, "version"), report_text(r, "commit"));
    term_print_clean(stdout, report_text(machine, "cpu"));
    printf("\n%s kernels, %d thread%s on CPU %s", report_text(s, "backend"), threads,
           threads == 1 ? "" : "s", report_text(machine, "cpus"));
    if (*report_text(s, "kv_type")) printf(", KV cache %s", report_text(s, "kv_type"));
    print_ffn(bn_json_get(r, "ffn"));
    printf("\n");
    term_print_clean(stdout, report_text(model, "name"));
    printf(": %s parameters, %s as %s, head %s%s%s, file %s\n", params,
           report_text(model, "weight_type"),
           *report_text(model, "layout") ? report_text(model, "layout") : "floats",
           report_text(model, "head_type"), *report_text(s, "head") ? " " : "",
           report_text(s, "head"), term_size(file, (uint64_t)report_number(model, "file_bytes")));
}
