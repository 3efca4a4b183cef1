/* SPDX-License-Identifier: Apache-2.0
 * Random models with delta nets: their configuration, numbers that keep states in bounds over any
 * length of text, and the contract of rotated inputs. */
#include "forge/synth_impl.h"

#include "base/rng.h"
#include "model/files/gguf_write.h"

#define PREFIX "prism.hadamard."

static void add_width(struct bn_hadamard *r, uint32_t width)
{
    for (uint32_t i = 0; i < r->n_widths; i++)
        if (r->widths[i] == width) return;
    r->widths[r->n_widths++] = width;
}

void bn_hybrid_config(struct bn_config *c, const struct bn_hybrid *h)
{
    c->delta = h->delta;
    c->n_mtp = h->n_mtp;
    c->attn_gate = c->qk_norm = c->v_tiled = true;
    c->rope_dim = h->rope_dim;
    memcpy(c->rope_sections, h->rope_sections, sizeof c->rope_sections);
    for (uint32_t i = 0; i < c->n_layer && i < BN_MAX_LAYERS; i++)
        if ((i + 1) % BN_ATTN_INTERVAL) bn_config_set_delta(c, i);
    if (!h->hadamard_block) return;
    c->hadamard =
        (struct bn_hadamard){.block = h->hadamard_block, .signs = true, .v_grouped = true};
    add_width(&c->hadamard, c->n_embd);
    add_width(&c->hadamard, c->n_head * c->head_dim);
    add_width(&c->hadamard, (uint32_t)bn_delta_value_width(&c->delta));
    add_width(&c->hadamard, c->n_ff);
}

/* ------------------------------------------------------------------ values */

/* Decays of exp(a * softplus(alpha + dt)): from half a token to a thousand, as is usual where such
 * layers begin to be trained. */
static const float a_min = 1, a_max = 16, dt_min = -6.9f, dt_max = -2.3f;
static const float norm_sigma = 0.1f, tap_sigma = 0.5f; /* four taps keep the size of their input */

static float between(struct bn_rng *rng, float lo, float hi)
{
    return lo + (hi - lo) * ((float)bn_rng_below(rng, 4096) / 4096.0f);
}

void bn_hybrid_values(float *out, enum bn_part part, struct bn_rng *rng, uint64_t n)
{
    if (part == BN_P_DELTA_A) {
        for (uint64_t i = 0; i < n; i++) out[i] = -between(rng, a_min, a_max);
    } else if (part == BN_P_DELTA_DT) {
        for (uint64_t i = 0; i < n; i++) out[i] = between(rng, dt_min, dt_max);
    } else if (part == BN_P_DELTA_CONV) {
        bn_synth_values(out, rng, n, tap_sigma);
    } else { /* a norm */
        bn_synth_values(out, rng, n, norm_sigma);
        for (uint64_t i = 0; i < n; i++) out[i] += 1.0f;
    }
}

/* ------------------------------------------------------------------ rotated inputs */

static bool is_rotated(enum bn_part p)
{
    return bn_part_is_projection(p) && p != BN_P_DELTA_ALPHA && p != BN_P_DELTA_BETA &&
           p != BN_P_MTP_IN;
}

/* Names of the matrices, or, without a writer, only their number. */
static uint64_t each_rotated(const struct bn_config *c, struct bn_gguf_writer *w)
{
    char name[BN_MAX_NAME_BYTES];
    uint64_t n = 0;
    for (uint32_t layer = 0; layer < bn_config_layers(c); layer++)
        for (enum bn_part p = BN_P_Q; p < BN_P_COUNT; p++) {
            if (!is_rotated(p) || !bn_part_in_layer(c, p, layer)) continue;
            bn_part_name(name, p, layer, true);
            if (w) bn_gguf_put_elem(w, name, strlen(name));
            n++;
        }
    return n;
}

static void put_word(struct bn_gguf_writer *w, const char *key, const char *word)
{
    bn_gguf_put_str(w, key, word, strlen(word));
}

/* A list of the given number of names, of which the first is a part that no layer has. */
static void begin_names(struct bn_gguf_writer *w, const char *key, uint64_t n, enum bn_part first)
{
    char name[BN_MAX_NAME_BYTES];
    bn_gguf_put_array(w, key, BN_META_STR, n, NULL);
    bn_part_name(name, first, 0, true);
    bn_gguf_put_elem(w, name, strlen(name));
}

void bn_hybrid_put_rotation(const struct bn_config *c, struct bn_rng rng, struct bn_gguf_writer *w)
{
    const struct bn_hadamard *r = &c->hadamard;
    uint64_t n_signs = 0;
    if (!r->block) return;
    bn_gguf_put_u32(w, PREFIX "version", 1);
    bn_gguf_put_u32(w, PREFIX "block_size", r->block);
    put_word(w, PREFIX "transform", "normalized-sylvester-walsh-hadamard");
    put_word(w, PREFIX "axis", "input-last-dimension");
    put_word(w, PREFIX "sign_mode", "explicit");
    bn_gguf_put_array(w, PREFIX "sign_widths", BN_META_I32, r->n_widths, r->widths);
    for (uint32_t i = 0; i < r->n_widths; i++) n_signs += r->widths[i];
    bn_gguf_put_array(w, PREFIX "sign_values", BN_META_I32, n_signs, NULL);
    for (uint64_t i = 0; i < n_signs; i++) {
        int32_t sign = bn_rng_below(&rng, 2) ? 1 : -1;
        bn_gguf_put_item(w, &sign, sizeof sign);
    }
    begin_names(w, PREFIX "weight_names", 1 + each_rotated(c, NULL), BN_P_HEAD);
    each_rotated(c, w);
    begin_names(w, PREFIX "inverse_weight_names", 1, BN_P_EMBED);
    bn_gguf_put_bool(w, PREFIX "gdn_v_grouped", r->v_grouped);
}
