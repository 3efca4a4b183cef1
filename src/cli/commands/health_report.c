/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/commands/health_report.h"

#include "app/term.h"

/* What is told of one layer; false past the last. */
struct layer {
    bitnet_kv_health kv;
    bitnet_ffn_layer ffn;
};

static bool get_layer(const bitnet_engine *e, uint32_t i, struct layer *y)
{
    *y = (struct layer){.kv.size = sizeof y->kv, .ffn.size = sizeof y->ffn};
    return bitnet_engine_ffn_layer(e, i, &y->ffn) &&
           bitnet_engine_kv_health(e, i, &y->kv, NULL) == BITNET_OK;
}

static bitnet_health get_health(const bitnet_engine *e)
{
    bitnet_health h = {.size = sizeof h};
    bitnet_engine_health(e, &h);
    return h;
}

bitnet_status health_scrub(bitnet_engine *e, bitnet_scrub *state, bitnet_error *err)
{
    *state = (bitnet_scrub){.size = sizeof *state};
    return bitnet_engine_scrub(e, UINT64_MAX, state, err);
}

/* ------------------------------------------------------------------ for people */

static void print_layers(FILE *to, const bitnet_engine *e)
{
    struct layer y;
    fputs("  layer    keys: bits  peaks  satur.  values: bits  peaks  satur.  open gates  zeros\n",
          to);
    for (uint32_t i = 0; get_layer(e, i, &y); i++) {
        const bitnet_kv_side_health *k = &y.kv.keys, *v = &y.kv.values;
        fprintf(to, "  %5u %14.2f %4.1f %% %5.1f %% %13.2f %4.1f %% %5.1f %% %9.1f %% %4.1f %%\n",
                i, k->entropy_bits, 100 * k->peaks, 100 * k->saturated, v->entropy_bits,
                100 * v->peaks, 100 * v->saturated, 100 * y.ffn.sampled_gates,
                100 * y.ffn.sampled_zeros);
    }
}

void health_report_print(FILE *to, const struct health_report *r)
{
    char size[TERM_SIZE_BYTES];
    bitnet_health h = get_health(r->engine);
    fprintf(to, "health: %.1f %% of the answer's 3-grams are repetitions\n", 100 * r->repetition);
    fprintf(to, "  logits: %llu rows, %llu of them not finite\n", (unsigned long long)h.logit_rows,
            (unsigned long long)h.nonfinite_rows);
    fprintf(to, "  KV cache: %.1f %% of the pages in use, %.1f %% kept for texts to come\n",
            100 * h.kv_used, 100 * h.kv_cached);
    fprintf(to, "  weights: %s compared with their checksums, %llu blocks changed%s%s\n",
            term_size(size, r->scrub.total_bytes), (unsigned long long)r->scrub.mismatches,
            r->scrub.mismatches ? ", last in " : "", r->scrub.tensor);
    print_layers(to, r->engine);
}

/* ------------------------------------------------------------------ as JSON */

static struct bn_json *json_side(const bitnet_kv_side_health *s)
{
    return bn_json_pack("{s:f, s:f, s:f, s:f}", "entropy_bits", s->entropy_bits, "peaks", s->peaks,
                        "saturated", s->saturated, "max_abs", s->max_abs);
}

static struct bn_json *json_layers(const bitnet_engine *e)
{
    struct layer y;
    struct bn_json *list = bn_json_array();
    for (uint32_t i = 0; get_layer(e, i, &y); i++)
        bn_json_append(list, bn_json_pack("{s:I, s:o, s:o, s:f, s:f}", "kv_rows",
                                          (int64_t)y.kv.rows, "keys", json_side(&y.kv.keys),
                                          "values", json_side(&y.kv.values), "gates_open",
                                          y.ffn.sampled_gates, "inputs_zero", y.ffn.sampled_zeros));
    return list;
}

struct bn_json *health_report_json(const struct health_report *r)
{
    bitnet_health h = get_health(r->engine);
    struct bn_json *scrub =
        bn_json_pack("{s:I, s:I, s:I, s:s}", "bytes", (int64_t)r->scrub.total_bytes, "passes",
                     (int64_t)r->scrub.passes, "mismatches", (int64_t)r->scrub.mismatches, "tensor",
                     r->scrub.tensor);
    return bn_json_pack("{s:f, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:o, s:o}", "repetition",
                        r->repetition, "logit_rows", (int64_t)h.logit_rows, "nonfinite_rows",
                        (int64_t)h.nonfinite_rows, "ffn_samples", (int64_t)h.ffn_samples,
                        "gates_open", h.gates_open, "inputs_zero", h.inputs_zero, "kv_used",
                        h.kv_used, "kv_cached", h.kv_cached, "weights", scrub, "layers",
                        json_layers(r->engine));
}
