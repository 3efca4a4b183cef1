/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading is strict: a member that nobody knows is an error, because a saving that is silently left
 * out, or a price that is silently paid, would make a plan's figures wrong. Whatever else its maker
 * wants to say stands in "notes", which is not looked at. */
#include "model/savings.h"

#include "base/checksum.h"
#include "base/os/file.h"
#include "base/rng.h"
#include "model/attention/kv_types.h"
#include <stdio.h>
#include <stdlib.h>

enum { SAMPLED_ROWS = 16, WHAT_BYTES = 256 };

static const char *const input_names[BN_N_INPUTS] = {
    [BN_IN_MIXER] = "mixer",
    [BN_IN_MIXER_OUT] = "mixer_out",
    [BN_IN_GATE_UP] = "gate_up",
    [BN_IN_DOWN] = "down",
};

/* ------------------------------------------------------------------ the model's checksum */

static void add(uint64_t *sum, const void *data, size_t n)
{
    *sum = bn_mix64(*sum ^ bn_checksum(data, n));
}

static void add_floats(uint64_t *sum, const float *x, size_t n)
{
    if (x) add(sum, x, n * sizeof *x);
}

bitnet_status bn_model_checksum(uint64_t *sum, const struct bn_model *m, bitnet_error *err)
{
    const struct bn_config *c = &m->config;
    const struct bn_delta_shape *d = &c->delta;
    const uint32_t shape[] = {c->n_vocab,   c->n_embd,    c->n_ff,     c->n_layer,
                              c->n_head,    c->n_head_kv, c->head_dim, c->n_mtp,
                              d->n_k_heads, d->n_v_heads, d->k_dim,    d->v_dim};
    float *row = bn_calloc(c->n_embd, sizeof *row);
    if (!row) return bn_fail_nomem(err, c->n_embd * sizeof *row, "the model's checksum");
    *sum = 0;
    add(sum, shape, sizeof shape);
    add(sum, c->delta_layers, sizeof c->delta_layers);
    for (uint32_t i = 0; i < c->n_layer; i++) {
        const struct bn_layer *l = &m->layers[i];
        add_floats(sum, l->attn_norm, c->n_embd);
        add_floats(sum, l->ffn_norm, c->n_embd);
        add_floats(sum, l->ffn_sub_norm, c->n_ff);
    }
    add_floats(sum, m->out_norm, c->n_embd);
    for (uint64_t i = 0; i < SAMPLED_ROWS; i++) {
        bn_stored_row(&m->kernels, row, &m->embed.stored,
                      i * (c->n_vocab - 1) / (SAMPLED_ROWS - 1));
        add_floats(sum, row, c->n_embd);
    }
    free(row);
    return BITNET_OK;
}

/* ------------------------------------------------------------------ reading */

/* What is being read: names for errors, and whom it is for. */
struct reading {
    const struct bn_model *m;
    const char *what;       /* the plan */
    char place[WHAT_BYTES]; /* and a layer in it */
};

static bitnet_status check_members(const struct bn_json *object, const char *const *known,
                                   const char *where, bitnet_error *err)
{
    const char *key;
    const struct bn_json *value;
    bn_json_each_member(object, key, value)
    {
        size_t i = 0;
        while (known[i] && strcmp(known[i], key) != 0) i++;
        if (!known[i])
            return bn_fail(err, BITNET_E_FORMAT,
                           "%s: the member '%s' is unknown; remarks belong to \"notes\"", where,
                           key);
    }
    return BITNET_OK;
}

static bitnet_status read_kv_type(bitnet_kv_type *out, const struct bn_json *layer, const char *key,
                                  const struct reading *r, bitnet_error *err)
{
    const char *name = NULL, *known;
    BN_TRY(bn_json_read_str(&name, layer, key, r->place, err));
    if (!name) return BITNET_OK;
    for (int t = BITNET_KV_AUTO + 1; (known = bn_kv_type_name((bitnet_kv_type)t)); t++)
        if (strcmp(name, known) == 0) {
            *out = (bitnet_kv_type)t;
            return BITNET_OK;
        }
    return bn_fail(err, BITNET_E_FORMAT, "%s: '%s' is no type of the KV cache", r->place, name);
}

static bitnet_status read_activation(enum bn_act_quant *out, const struct bn_json *object,
                                     const char *key, const struct reading *r, bitnet_error *err)
{
    static const enum bn_act_quant all[] = {BN_AQ_F32, BN_AQ_INT16_GROUPS, BN_AQ_INT8_GROUPS};
    const char *name = NULL;
    BN_TRY(bn_json_read_str(&name, object, key, r->place, err));
    if (!name) return BITNET_OK;
    if (r->m->config.act_quant != BN_AQ_F32)
        return bn_fail(err, BITNET_E_UNSUPPORTED,
                       "%s: the model was trained with int8 activations and has no others",
                       r->place);
    for (size_t i = 0; i < BN_ARRAY_LEN(all); i++)
        if (strcmp(name, bn_act_quant_name(all[i])) == 0) {
            if (!r->m->activations_given) *out = all[i];
            return BITNET_OK;
        }
    return bn_fail(err, BITNET_E_FORMAT, "%s: activations are f32, int16 or int8, not '%s'",
                   r->place, name);
}

static bitnet_status read_activations(struct bn_savings_layer *out, const struct bn_json *layer,
                                      const struct reading *r, bitnet_error *err)
{
    const char *known[BN_N_INPUTS + 1] = {NULL};
    const struct bn_json *object = bn_json_get(layer, "activations");
    if (!object) return BITNET_OK;
    memcpy(known, input_names, sizeof input_names);
    if (!bn_json_is_object(object))
        return bn_fail(err, BITNET_E_FORMAT, "%s: \"activations\" is no object", r->place);
    BN_TRY(check_members(object, known, r->place, err));
    for (size_t i = 0; i < BN_N_INPUTS; i++)
        BN_TRY(read_activation(&out->activations[i], object, input_names[i], r, err));
    return BITNET_OK;
}

static bitnet_status read_state(bool *bf16, const struct bn_json *layer, const struct reading *r,
                                bitnet_error *err)
{
    const char *name = NULL;
    BN_TRY(bn_json_read_str(&name, layer, "state", r->place, err));
    if (!name) return BITNET_OK;
    *bf16 = strcmp(name, "bf16") == 0;
    if (*bf16 || strcmp(name, "f32") == 0) return BITNET_OK;
    return bn_fail(err, BITNET_E_FORMAT, "%s: states are f32 or bf16, not '%s'", r->place, name);
}

/* What the layer, or the model, has no use for is an error, not a saving of nothing. */
static bitnet_status check_layer(const struct bn_savings_layer *l, uint32_t il,
                                 const struct reading *r, bitnet_error *err)
{
    const struct bn_config *c = &r->m->config;
    bool delta = bn_config_is_delta(c, il);
    if (l->down_codes > BN_SAVINGS_CODES_MAX)
        return bn_fail(err, BITNET_E_FORMAT, "%s: codes up to %u; at most %d is possible", r->place,
                       l->down_codes, BN_SAVINGS_CODES_MAX);
    if (!(l->gate_min >= 0))
        return bn_fail(err, BITNET_E_FORMAT, "%s: \"gate_min\" is below 0", r->place);
    if (l->down_codes && c->act_quant != BN_AQ_INT8)
        return bn_fail(err, BITNET_E_UNSUPPORTED,
                       "%s: \"down_codes\" is for models with int8 activations", r->place);
    if (l->gate_min > 0 && c->act != BN_ACT_RELU2)
        return bn_fail(err, BITNET_E_UNSUPPORTED, "%s: \"gate_min\" is for models with ReLU^2",
                       r->place);
    if (delta && (l->keys || l->values))
        return bn_fail(err, BITNET_E_FORMAT, "%s: it has a delta net, and neither keys nor values",
                       r->place);
    if (!delta && l->state_bf16)
        return bn_fail(err, BITNET_E_FORMAT, "%s: it has attention, and no state", r->place);
    return BITNET_OK;
}

static bitnet_status read_layer(struct bn_savings_layer *out, const struct bn_json *layer,
                                uint32_t il, struct reading *r, bitnet_error *err)
{
    static const char *const known[] = {"layer", "down_codes",  "gate_min", "keys", "values",
                                        "state", "activations", "notes",    NULL};
    uint32_t number = il;
    snprintf(r->place, sizeof r->place, "%s, layer %u", r->what, il);
    if (!bn_json_is_object(layer))
        return bn_fail(err, BITNET_E_FORMAT, "%s: it is no object", r->place);
    BN_TRY(check_members(layer, known, r->place, err));
    BN_TRY(bn_json_read_u32(&number, layer, "layer", r->place, err));
    if (number != il)
        return bn_fail(err, BITNET_E_FORMAT, "%s: it is called layer %u; layers stand in order",
                       r->place, number);
    BN_TRY(bn_json_read_u32(&out->down_codes, layer, "down_codes", r->place, err));
    BN_TRY(bn_json_read_f32(&out->gate_min, layer, "gate_min", r->place, err));
    BN_TRY(read_kv_type(&out->keys, layer, "keys", r, err));
    BN_TRY(read_kv_type(&out->values, layer, "values", r, err));
    BN_TRY(read_state(&out->state_bf16, layer, r, err));
    BN_TRY(read_activations(out, layer, r, err));
    return check_layer(out, il, r, err);
}

static bitnet_status read_head(enum bn_head_mode *out, const struct bn_json *plan, const char *what,
                               bitnet_error *err)
{
    const char *name = NULL;
    BN_TRY(bn_json_read_str(&name, plan, "head", what, err));
    if (!name) return BITNET_OK;
    *out = strcmp(name, "int8") == 0 ? BN_HEAD_INT8 : BN_HEAD_EXACT;
    if (*out == BN_HEAD_INT8 || strcmp(name, "exact") == 0) return BITNET_OK;
    return bn_fail(err, BITNET_E_FORMAT, "%s: the head is exact or int8, not '%s'", what, name);
}

/* A plan that somebody wrote by hand may do without. */
static bitnet_status read_model(struct bn_savings *s, const struct bn_json *plan, const char *what,
                                bitnet_error *err)
{
    static const char *const known[] = {"name", "checksum", NULL};
    const struct bn_json *model = bn_json_get(plan, "model");
    const char *name = "", *checksum = NULL;
    if (!model) return BITNET_OK;
    if (!bn_json_is_object(model))
        return bn_fail(err, BITNET_E_FORMAT, "%s: \"model\" is no object", what);
    BN_TRY(check_members(model, known, what, err));
    BN_TRY(bn_json_read_str(&name, model, "name", what, err));
    BN_TRY(bn_json_read_str(&checksum, model, "checksum", what, err));
    snprintf(s->model, sizeof s->model, "%s", name);
    if (!checksum) return BITNET_OK;
    s->tied = true;
    if (strlen(checksum) != 16 || strspn(checksum, "0123456789abcdef") != 16)
        return bn_fail(err, BITNET_E_FORMAT, "%s: the checksum '%.40s' has not 16 hex digits", what,
                       checksum);
    s->checksum = strtoull(checksum, NULL, 16);
    return BITNET_OK;
}

bitnet_status bn_savings_check(const struct bn_savings *s, const struct bn_model *m,
                               bitnet_error *err)
{
    if (!s || !s->tied || s->checksum == m->checksum) return BITNET_OK;
    return bn_fail(err, BITNET_E_ARG,
                   "the plan was made for another model, '%s' with the checksum %016llx; this one "
                   "has %016llx",
                   s->model, (unsigned long long)s->checksum, (unsigned long long)m->checksum);
}

static bitnet_status read_plan(struct bn_savings *s, const struct bn_json *plan, struct reading *r,
                               bitnet_error *err)
{
    static const char *const known[] = {"format", "model", "head", "layers", "notes", NULL};
    const struct bn_json *layers = bn_json_get(plan, "layers");
    const char *format = NULL;
    BN_TRY(bn_json_read_str(&format, plan, "format", r->what, err));
    if (!format)
        return bn_fail(err, BITNET_E_FORMAT, "%s is no plan: it has no \"format\"", r->what);
    if (strcmp(format, BN_SAVINGS_FORMAT) != 0)
        return bn_fail(err, BITNET_E_UNSUPPORTED,
                       "%s has the format '%.40s'; this version reads %s", r->what, format,
                       BN_SAVINGS_FORMAT);
    BN_TRY(check_members(plan, known, r->what, err));
    BN_TRY(read_model(s, plan, r->what, err));
    BN_TRY(read_head(&s->head, plan, r->what, err));
    if (layers && !bn_json_is_array(layers))
        return bn_fail(err, BITNET_E_FORMAT, "%s: \"layers\" is no array", r->what);
    if (layers && bn_json_size(layers) != s->n_layer)
        return bn_fail(err, BITNET_E_ARG, "%s is for %zu layers; this model has %u", r->what,
                       bn_json_size(layers), s->n_layer);
    for (uint32_t i = 0; layers && i < s->n_layer; i++)
        BN_TRY(read_layer(&s->layers[i], bn_json_at(layers, i), i, r, err));
    return BITNET_OK;
}

struct bn_savings *bn_savings_new(const struct bn_model *m)
{
    uint32_t n = m->config.n_layer;
    struct bn_savings *s = bn_calloc(1, sizeof *s + n * sizeof s->layers[0]);
    if (!s) return NULL;
    s->n_layer = n;
    for (uint32_t i = 0; i < n; i++)
        for (size_t k = 0; k < BN_N_INPUTS; k++) s->layers[i].activations[k] = m->activations;
    return s;
}

static bitnet_status read_text(struct bn_savings **out, const struct bn_model *m, const char *text,
                               size_t n, const char *what, bitnet_error *err)
{
    struct bn_json *plan = NULL;
    struct reading r = {.m = m, .what = what};
    BN_TRY(bn_json_parse(&plan, text, n, BN_JSON_UNIQUE, what, err));
    struct bn_savings *s = bn_savings_new(m);
    bitnet_status st = s ? BITNET_OK : bn_fail_nomem(err, sizeof *s, "a plan");
    if (s && !bn_json_is_object(plan))
        st = bn_fail(err, BITNET_E_FORMAT, "%s is no plan: it is no JSON object", what);
    if (st == BITNET_OK) st = read_plan(s, plan, &r, err);
    bn_json_free(plan);
    if (st == BITNET_OK) *out = s;
    else free(s);
    return st;
}

static bool is_text(const char *plan) { return plan[strspn(plan, " \t\r\n")] == '{'; }

bitnet_status bn_savings_text(char **text, size_t *n, const char *plan, bitnet_error *err)
{
    if (!is_text(plan)) return bn_read_file(text, n, plan, BN_SAVINGS_MAX_BYTES, err);
    *n = strlen(plan);
    *text = strdup(plan);
    return *text ? BITNET_OK : bn_fail_nomem(err, *n, "a plan");
}

bitnet_status bn_savings_open(struct bn_savings **out, const struct bn_model *m, const char *plan,
                              bitnet_error *err)
{
    const char *baked;
    char *text = NULL, what[WHAT_BYTES - 32] = "the plan";
    size_t n;
    *out = NULL;
    if (plan && strcmp(plan, "off") == 0) return BITNET_OK;
    if (!plan) {
        if (!bn_meta_str(&m->source, BN_SAVINGS_KEY, &baked, &n)) return BITNET_OK;
        BN_TRY(read_text(out, m, baked, n, "the plan in the model's file", err));
        (*out)->baked = true;
        return BITNET_OK;
    }
    BN_TRY(bn_savings_text(&text, &n, plan, err));
    if (!is_text(plan)) snprintf(what, sizeof what, "the plan '%.200s'", plan);
    bitnet_status s = read_text(out, m, text, n, what, err);
    free(text);
    return s;
}

const char *bn_savings_from(const struct bn_savings *s)
{
    return !s ? "off" : s->baked ? "file" : "given";
}

enum bn_head_mode bn_savings_head(const struct bn_savings *s, enum bn_head_mode asked)
{
    if (asked != BN_HEAD_AUTO && asked != BN_HEAD_PLAN) return asked;
    if (s && s->head != BN_HEAD_AUTO) return s->head;
    return asked == BN_HEAD_PLAN ? BN_HEAD_EXACT : asked;
}

/* ------------------------------------------------------------------ writing */

static void put_text(struct bn_json *object, const char *key, const char *text)
{
    bn_json_set(object, key, bn_json_string(text));
}

static struct bn_json *layer_json(const struct bn_savings_layer *l, uint32_t il,
                                  const struct bn_model *m)
{
    struct bn_json *o = bn_json_pack("{s:i}", "layer", (int)il), *acts = NULL;
    if (l->down_codes) bn_json_set(o, "down_codes", bn_json_int(l->down_codes));
    if (l->gate_min > 0) bn_json_set(o, "gate_min", bn_json_real((double)l->gate_min));
    if (l->keys) put_text(o, "keys", bn_kv_type_name(l->keys));
    if (l->values) put_text(o, "values", bn_kv_type_name(l->values));
    if (l->state_bf16) put_text(o, "state", "bf16");
    for (size_t i = 0; i < BN_N_INPUTS; i++) {
        if (l->activations[i] == m->activations) continue;
        if (!acts) acts = bn_json_object();
        put_text(acts, input_names[i], bn_act_quant_name(l->activations[i]));
    }
    if (acts) bn_json_set(o, "activations", acts);
    return o;
}

struct bn_json *bn_savings_json(const struct bn_savings *s, const struct bn_model *m)
{
    struct bn_json *layers = bn_json_array();
    for (uint32_t i = 0; i < s->n_layer; i++)
        bn_json_append(layers, layer_json(&s->layers[i], i, m));
    struct bn_json *o = bn_json_pack("{s:s, s:{s:s, s:o}}", "format", BN_SAVINGS_FORMAT, "model",
                                     "name", m->config.name, "checksum",
                                     bn_json_printf("%016llx", (unsigned long long)m->checksum));
    if (s->head != BN_HEAD_AUTO) put_text(o, "head", s->head == BN_HEAD_INT8 ? "int8" : "exact");
    bn_json_set(o, "layers", layers);
    return o;
}

/* How many layers have a saving of each kind. */
struct tally {
    uint32_t codes, gates, keys, values, states, activations;
};

static struct tally tally_of(const struct bn_savings *s, const struct bn_model *m)
{
    struct tally t = {0};
    for (uint32_t i = 0; i < s->n_layer; i++) {
        const struct bn_savings_layer *l = &s->layers[i];
        bool act = false;
        for (size_t k = 0; k < BN_N_INPUTS; k++) act |= l->activations[k] != m->activations;
        t.codes += l->down_codes > 0;
        t.gates += l->gate_min > 0;
        t.keys += l->keys != BITNET_KV_AUTO;
        t.values += l->values != BITNET_KV_AUTO;
        t.states += l->state_bf16;
        t.activations += act;
    }
    return t;
}

void bn_savings_describe(char *out, size_t room, const struct bn_savings *s,
                         const struct bn_model *m)
{
    const struct tally t = tally_of(s, m);
    const struct {
        const char *name;
        uint32_t n;
    } parts[] = {{"codes", t.codes},   {"gates", t.gates},   {"keys", t.keys},
                 {"values", t.values}, {"states", t.states}, {"activations", t.activations}};
    size_t at = 0;
    snprintf(out, room, "nothing");
    for (size_t i = 0; i < BN_ARRAY_LEN(parts); i++)
        if (parts[i].n && at < room)
            at += (size_t)snprintf(out + at, room - at, "%s%s in %u layer%s", at ? ", " : "",
                                   parts[i].name, parts[i].n, parts[i].n == 1 ? "" : "s");
    if (s->head != BN_HEAD_AUTO && at < room)
        snprintf(out + at, room - at, "%shead %s", at ? ", " : "",
                 s->head == BN_HEAD_INT8 ? "int8" : "exact");
}
