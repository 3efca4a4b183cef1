/* SPDX-License-Identifier: Apache-2.0
 *
 * Gains. Weights are read once a token, keys and values of the whole context, states twice. A list of rows
 * or columns costs more than its share of the matrix: at BN_FFN_UP_PERCENT it is no quicker than all of
 * it, so that a share costs share / 0.45 of the matrix. */
#include "forge/calibrate/knobs.h"

#include "base/os/mem.h"
#include "model/attention/kv.h"
#include "model/attention/kv_types.h"
#include "model/delta/state.h"
#include "model/ffn/ffn.h"
#include "model/head/head.h"
#include <stdio.h>
#include <stdlib.h>

static const uint32_t code_levels[] = {1, 2, 3, 4, 6, 8, 12};
static const double gate_levels[] = {0.15, 0.3, 0.5,
                                     0.7}; /* of the open gates: so many are closed */
static const bitnet_kv_type kv_levels[] = {BITNET_KV_INT8, BITNET_KV_INT4, BITNET_KV_INT2};
_Static_assert(BN_ARRAY_LEN(code_levels) <= BN_LEVELS_MAX, "they fit");

const char *bn_knob_kind_name(enum bn_knob_kind kind)
{
    static const char *const names[BN_N_KNOBS] = {
        "codes",       "gates",       "keys",        "values",      "state",
        "activations", "activations", "activations", "activations", "head"};
    return names[kind];
}

static bool in_list(const char *list, const char *name)
{
    size_t n = strlen(name);
    for (const char *at = list; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (strncmp(at, name, n) == 0 && (at[n] == ',' || at[n] == 0)) return true;
    return false;
}

bool bn_knob_wanted(enum bn_knob_kind kind, const char *list)
{
    return !list || in_list(list, bn_knob_kind_name(kind));
}

bitnet_status bn_knobs_check_list(const char *list, bitnet_error *err)
{
    for (const char *at = list; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        int n = (int)strcspn(at, ",");
        bool known = false;
        for (int i = 0; i < BN_N_KNOBS; i++) {
            const char *name = bn_knob_kind_name((enum bn_knob_kind)i);
            known |= strlen(name) == (size_t)n && strncmp(at, name, (size_t)n) == 0;
        }
        if (!known)
            return bn_fail(err, BITNET_E_ARG,
                           "'%.*s' is no saving; there are: codes, gates, keys, values, state, "
                           "activations, head",
                           n < 40 ? n : 40, at);
    }
    return BITNET_OK;
}

/* ------------------------------------------------------------------ gains */

static const struct bn_matrix *matrix(const struct bn_model *m, uint32_t il, enum bn_part part)
{
    return &m->layers[il].proj[part - BN_P_Q];
}

static double list_cost(double bytes, double share, double percent)
{
    double cost = share / (percent / 100);
    return bytes * (cost < 1 ? cost : 1);
}

static double up_cost(const struct bn_model *m, uint32_t il, double share)
{
    return list_cost((double)bn_matrix_bytes(matrix(m, il, BN_P_UP)), share, BN_FFN_UP_PERCENT);
}

static double down_cost(const struct bn_model *m, uint32_t il, double share)
{
    return list_cost((double)bn_matrix_bytes(matrix(m, il, BN_P_DOWN)), share, BN_FFN_DOWN_PERCENT);
}

static double kv_cost(const struct bn_knobs_basis *b, bitnet_kv_type type, bool values)
{
    const struct bn_config *c = &b->m->config;
    struct bn_kv_side side = bn_kv_side_make(type, values, c->head_dim);
    return (double)side.head_bytes / BN_ATTN_BLOCK * c->n_head_kv * b->context;
}

static uint32_t count_delta(const struct bn_config *c)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->n_layer; i++) n += bn_config_is_delta(c, i);
    return n;
}

/* All projections that take one input. */
static double input_bytes(const struct bn_model *m, uint32_t il, enum bn_savings_input in)
{
    static const enum bn_part last_of[] = {BN_P_V, BN_P_O, BN_P_UP, BN_P_DOWN};
    static const enum bn_part first_of[] = {BN_P_Q, BN_P_O, BN_P_GATE, BN_P_DOWN};
    enum bn_part first = first_of[in], last = last_of[in];
    double bytes = 0;
    if (m->layers[il].is_delta && in <= BN_IN_MIXER_OUT) {
        first = in == BN_IN_MIXER ? BN_P_DELTA_QKV : BN_P_DELTA_OUT;
        last = in == BN_IN_MIXER ? BN_P_DELTA_BETA : BN_P_DELTA_OUT;
    }
    for (int p = (int)first; p <= (int)last; p++)
        if (!matrix(m, il, (enum bn_part)p)->dense)
            bytes += (double)bn_matrix_bytes(matrix(m, il, (enum bn_part)p));
    return bytes;
}

/* ------------------------------------------------------------------ levels */

static void add_level(struct bn_knob *k, struct bn_level level)
{
    if (level.gain > 0 && k->n_levels < BN_LEVELS_MAX) k->levels[k->n_levels++] = level;
}

static void code_knob(struct bn_knob *k, const struct bn_knobs_basis *b)
{
    struct bn_census_counts c;
    bn_census_get(&c, b->census, k->layer, BN_IN_DOWN);
    double before = down_cost(b->m, k->layer, 1 - bn_census_share(&c, 0));
    for (size_t i = 0; i < BN_ARRAY_LEN(code_levels); i++) {
        double share = 1 - bn_census_share(&c, code_levels[i]);
        add_level(k, (struct bn_level){.value.codes = code_levels[i],
                                       .gain = before - down_cost(b->m, k->layer, share)});
    }
}

static void gate_knob(struct bn_knob *k, const struct bn_knobs_basis *b)
{
    struct bn_census_gates g;
    bn_census_get_gates(&g, b->census, k->layer);
    double open = 0;
    for (size_t i = 0; i < BN_CENSUS_BINS; i++) open += (double)g.bins[i];
    open = g.n ? open / (double)g.n : 0;
    double before = up_cost(b->m, k->layer, open);
    uint32_t bin = 0;
    for (size_t i = 0; i < BN_ARRAY_LEN(gate_levels); i++) {
        while (bin + 1 < BN_CENSUS_BINS &&
               bn_census_open_share(&g, bin) > open * (1 - gate_levels[i]))
            bin++;
        double share = bn_census_open_share(&g, bin);
        add_level(k, (struct bn_level){.value.bin = bin,
                                       .gain = before - up_cost(b->m, k->layer, share)});
    }
}

static void kv_knob(struct bn_knob *k, const struct bn_knobs_basis *b)
{
    bool values = k->kind == BN_KNOB_VALUES;
    double before = kv_cost(b, BITNET_KV_F16, values);
    for (size_t i = 0; i < BN_ARRAY_LEN(kv_levels); i++)
        add_level(k, (struct bn_level){.value.kv = kv_levels[i],
                                       .gain = before - kv_cost(b, kv_levels[i], values)});
}

static void state_knob(struct bn_knob *k, const struct bn_knobs_basis *b)
{
    const struct bn_config *c = &b->m->config;
    struct bn_states_types narrow = {0};
    bn_states_set_bf16(&narrow, 0); /* of one of them: layers are alike */
    double saved = (double)bn_state_slot_bytes(c, NULL) - (double)bn_state_slot_bytes(c, &narrow);
    add_level(k, (struct bn_level){.gain = 2 * saved});
}

static void activation_knob(struct bn_knob *k, const struct bn_knobs_basis *b)
{
    enum bn_savings_input in = (enum bn_savings_input)(k->kind - BN_KNOB_MIXER);
    add_level(k, (struct bn_level){.gain = input_bytes(b->m, k->layer, in) * b->int8_gain});
}

static void head_knob(struct bn_knob *k, const struct bn_knobs_basis *b)
{
    const struct bn_stored *head = &b->m->head.stored;
    /* a large head is screened, which reads less than an int8 one */
    if (!b->m->head_int8.data || head->rows >= BN_HEAD_AUTO_ROWS) return;
    add_level(k,
              (struct bn_level){.gain = (double)head->bytes - (double)(head->rows * head->cols)});
}

/* ------------------------------------------------------------------ all of them */

static bool possible(enum bn_knob_kind kind, uint32_t layer, const struct bn_knobs_basis *b)
{
    const struct bn_config *c = &b->m->config;
    bool relu2 = c->act == BN_ACT_RELU2 && b->m->activations == BN_AQ_INT8;
    bool delta = bn_config_is_delta(c, layer);
    if (!bn_knob_wanted(kind, b->kinds)) return false;
    switch (kind) {
    case BN_KNOB_CODES:
    case BN_KNOB_GATES: return relu2;
    case BN_KNOB_KEYS:
    case BN_KNOB_VALUES: return !delta;
    case BN_KNOB_STATE: return delta;
    case BN_KNOB_HEAD: return layer == 0;
    default: return b->m->activations == BN_AQ_INT16_GROUPS && b->int8_gain > 0;
    }
}

static void fill(struct bn_knob *k, const struct bn_knobs_basis *b)
{
    switch (k->kind) {
    case BN_KNOB_CODES: code_knob(k, b); break;
    case BN_KNOB_GATES: gate_knob(k, b); break;
    case BN_KNOB_KEYS:
    case BN_KNOB_VALUES: kv_knob(k, b); break;
    case BN_KNOB_STATE: state_knob(k, b); break;
    case BN_KNOB_HEAD: head_knob(k, b); break;
    default: activation_knob(k, b); break;
    }
}

/* With what the untouched model leaves out already. */
static double base_bytes(const struct bn_knobs_basis *b)
{
    const struct bn_model *m = b->m;
    const struct bn_config *c = &m->config;
    double bytes = (double)bn_model_layer_bytes(m) + (double)m->head.stored.bytes;
    uint32_t n_delta = count_delta(c);
    bytes += (c->n_layer - n_delta) *
             (kv_cost(b, BITNET_KV_F16, false) + kv_cost(b, BITNET_KV_F16, true));
    bytes += n_delta ? 2 * (double)bn_state_slot_bytes(c, NULL) : 0;
    for (uint32_t il = 0; il < c->n_layer; il++) {
        struct bn_census_counts n;
        struct bn_census_gates g;
        if (c->act != BN_ACT_RELU2 || m->activations != BN_AQ_INT8) break;
        bn_census_get(&n, b->census, il, BN_IN_DOWN);
        bn_census_get_gates(&g, b->census, il);
        double open = bn_census_open_share(&g, 0);
        bytes -= (double)bn_matrix_bytes(matrix(m, il, BN_P_UP)) - up_cost(m, il, open);
        bytes -= (double)bn_matrix_bytes(matrix(m, il, BN_P_DOWN)) -
                 down_cost(m, il, 1 - bn_census_share(&n, 0));
    }
    return bytes;
}

bitnet_status bn_knobs_open(struct bn_knobs *k, const struct bn_knobs_basis *b, bitnet_error *err)
{
    uint32_t n_layer = b->m->config.n_layer;
    k->n = 0;
    k->items = bn_calloc((size_t)n_layer * BN_N_KNOBS, sizeof *k->items);
    k->floors = bn_calloc(n_layer, sizeof *k->floors);
    if (!k->items || !k->floors)
        return bn_fail_nomem(err, n_layer * BN_N_KNOBS * sizeof *k->items, "savings");
    for (uint32_t il = 0; il < n_layer; il++)
        for (int kind = 0; kind < BN_N_KNOBS; kind++) {
            struct bn_knob *knob = &k->items[k->n];
            if (!possible((enum bn_knob_kind)kind, il, b)) continue;
            *knob = (struct bn_knob){.kind = (enum bn_knob_kind)kind, .layer = il};
            fill(knob, b);
            k->n += knob->n_levels > 0;
        }
    k->base_bytes = base_bytes(b);
    return BITNET_OK;
}

void bn_knobs_close(struct bn_knobs *k)
{
    free(k->items);
    free(k->floors);
}

void bn_knob_apply(struct bn_savings *s, const struct bn_knob *k, uint32_t level)
{
    struct bn_savings_layer *l = &s->layers[k->layer];
    if (!level) return;
    const struct bn_level *v = &k->levels[level - 1];
    switch (k->kind) {
    case BN_KNOB_CODES: l->down_codes = v->value.codes; break;
    case BN_KNOB_GATES: l->gate_min = bn_census_gate_edge(v->value.bin); break;
    case BN_KNOB_KEYS: l->keys = v->value.kv; break;
    case BN_KNOB_VALUES: l->values = v->value.kv; break;
    case BN_KNOB_STATE: l->state_bf16 = true; break;
    case BN_KNOB_HEAD: s->head = BN_HEAD_INT8; break;
    default: l->activations[k->kind - BN_KNOB_MIXER] = BN_AQ_INT8_GROUPS; break;
    }
}

const char *bn_level_text(char *out, size_t room, const struct bn_knob *k, uint32_t level)
{
    const struct bn_level *v = &k->levels[level - 1];
    switch (k->kind) {
    case BN_KNOB_CODES: snprintf(out, room, "%u", v->value.codes); break;
    case BN_KNOB_GATES:
        snprintf(out, room, "%.4g", (double)bn_census_gate_edge(v->value.bin));
        break;
    case BN_KNOB_KEYS:
    case BN_KNOB_VALUES: snprintf(out, room, "%s", bn_kv_type_name(v->value.kv)); break;
    case BN_KNOB_STATE: snprintf(out, room, "bf16"); break;
    default: snprintf(out, room, "int8"); break;
    }
    return out;
}
