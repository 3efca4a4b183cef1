/* SPDX-License-Identifier: Apache-2.0
 * A model without some of its layers: convert's plan with a list of those that stay. Here is what
 * becomes of their names and of the metadata; tensors are written by convert*.c. */
#include "forge/convert_impl.h"

#include "model/savings.h"
#include <stdio.h>
#include <stdlib.h>

#define REMOVED_KEY    "bitnet.pruned_layers"
#define RECORD_KEYS    "bitnet.prune."
#define CHANNELS_KEY   RECORD_KEYS "ffn_removed"
#define NORM_WIDTH_KEY "bitnet.ffn_norm_width"

/* ------------------------------------------------------------------ names */

bool bn_prune_name(const char *name, uint32_t n_layer, uint32_t *layer, size_t *at, size_t *end)
{
    static const char *const stems[] = {"blk.", "model.layers.", "model.language_model.layers."};
    for (size_t i = 0; i < BN_ARRAY_LEN(stems); i++) {
        size_t n = strlen(stems[i]), k = n;
        uint32_t v = 0;
        if (strncmp(name, stems[i], n) != 0) continue;
        while (name[k] >= '0' && name[k] <= '9' && v < BN_MAX_LAYERS)
            v = v * 10 + (uint32_t)(name[k++] - '0');
        if (k == n || name[k] != '.') return false;
        *layer = v < n_layer ? v : v | BN_LAYER_MTP;
        *at = n;
        *end = k;
        return true;
    }
    return false;
}

/* ------------------------------------------------------------------ metadata */

void bn_prune_config(struct bn_config *c, const struct bn_convert_cut *cut)
{
    struct bn_config from = *c;
    memset(c->delta_layers, 0, sizeof c->delta_layers);
    c->n_layer = cut->n_kept;
    if (cut->n_ff) {
        if (c->sub_norms && !c->ffn_norm_width) c->ffn_norm_width = c->n_ff;
        c->n_ff = cut->n_ff;
    }
    if (cut->fold_norm) c->ffn_norm_width = 0;
    for (uint32_t i = 0; i < cut->n_kept; i++)
        if (bn_config_is_delta(&from, cut->kept[i])) bn_config_set_delta(c, i);
}

/* Behind "<arch>.", or NULL. */
static const char *own_key(const struct bn_config *c, const char *key)
{
    size_t n = strlen(c->arch);
    return strncmp(key, c->arch, n) == 0 && key[n] == '.' ? key + n + 1 : NULL;
}

/* Arrays with one element a layer; those about rotation have one a dimension. */
static bool is_layers_array(const struct bn_config *c, const struct bn_meta *m, const char *key)
{
    return m->type == BN_META_ARRAY && m->elem != BN_META_STR && m->elem != BN_META_ARRAY &&
           (m->count == c->n_layer || m->count == bn_config_layers(c)) &&
           strncmp(key, "rope.", 5) != 0;
}

bool bn_prune_put_meta(struct bn_gguf_writer *w, const struct bn_convert_plan *p,
                       const struct bn_meta *m)
{
    const struct bn_config *c = p->config;
    const char *key = own_key(c, m->key);
    if (strcmp(m->key, BN_SAVINGS_KEY) == 0)
        return true; /* a plan is for the layers it was made of */
    if (strcmp(m->key, REMOVED_KEY) == 0 || strncmp(m->key, RECORD_KEYS, strlen(RECORD_KEYS)) == 0)
        return true; /* written anew */
    if (p->cut->fold_norm && strcmp(m->key, NORM_WIDTH_KEY) == 0) return true;
    if (!key) return false;
    if (strcmp(key, "block_count") == 0) {
        bn_gguf_put_u32(w, m->key, p->cut->n_kept + c->n_mtp);
        return true;
    }
    if (p->cut->n_ff && strcmp(key, "feed_forward_length") == 0) {
        bn_gguf_put_u32(w, m->key, p->cut->n_ff);
        return true;
    }
    if (!is_layers_array(c, m, key)) return false;
    size_t bytes = (size_t)(m->raw_bytes / m->count);
    uint64_t behind = m->count - c->n_layer;
    bn_gguf_put_array(w, m->key, m->elem, p->cut->n_kept + behind, NULL);
    for (uint32_t i = 0; i < p->cut->n_kept; i++)
        bn_gguf_put_item(w, m->raw + p->cut->kept[i] * bytes, bytes);
    for (uint64_t i = 0; i < behind; i++)
        bn_gguf_put_item(w, m->raw + (c->n_layer + i) * bytes, bytes);
    return true;
}

/* Kinds of layers that a rule said so far, and no longer can. */
static void put_kinds(struct bn_gguf_writer *w, const struct bn_convert_plan *p)
{
    char key[96];
    struct bn_config c = *p->config;
    uint32_t interval = BN_ATTN_INTERVAL, kinds[BN_MAX_LAYERS];
    bool irregular = false;
    snprintf(key, sizeof key, "%s.full_attention_interval", c.arch);
    bn_meta_u32(p->src, key, &interval);
    snprintf(key, sizeof key, "%s.attention.recurrent_layers", c.arch);
    if (!c.delta.n_v_heads || bn_meta_find(p->src, key)) return;
    bn_prune_config(&c, p->cut);
    for (uint32_t i = 0; i < bn_config_layers(&c); i++) {
        kinds[i] = bn_config_is_delta(&c, i);
        irregular |= i < c.n_layer && kinds[i] != (interval && (i + 1) % interval);
    }
    if (irregular) bn_gguf_put_array(w, key, BN_META_U32, bn_config_layers(&c), kinds);
}

/* The list by the numbers of the model that was never pruned: layers may have gone before. */
static void put_removed(struct bn_gguf_writer *w, const struct bn_convert_plan *p)
{
    uint32_t list[BN_MAX_LAYERS], earlier[BN_MAX_LAYERS], n = 0, number = 0;
    size_t n_earlier = 0, done = 0;
    bn_meta_u32s(p->src, REMOVED_KEY, earlier, BN_MAX_LAYERS, &n_earlier);
    for (uint32_t il = 0; il < p->config->n_layer; number++) {
        if (done < n_earlier && earlier[done] == number) { /* they are in order */
            done++;
            if (n < BN_MAX_LAYERS) list[n++] = number;
            continue;
        }
        if (bn_convert_layer(p, il) == BN_LAYER_CUT && n < BN_MAX_LAYERS) list[n++] = number;
        il++;
    }
    for (; done < n_earlier && n < BN_MAX_LAYERS; done++) list[n++] = earlier[done];
    bn_gguf_put_array(w, REMOVED_KEY, BN_META_U32, n, list);
}

void bn_prune_removed(uint8_t *gone, const struct bn_convert_plan *p, uint32_t layer)
{
    const struct bn_convert_cut *cut = p->cut;
    memset(gone, 1, p->config->n_ff);
    for (uint32_t k = 0; k < cut->n_ff; k++) gone[cut->ffn_from[(size_t)layer * cut->n_ff + k]] = 0;
}

/* By the numbers of the input, layer after layer of the output, as many of each. */
static void put_channels(struct bn_gguf_writer *w, const struct bn_convert_plan *p)
{
    uint32_t n_ff = p->config->n_ff;
    uint8_t *gone = bn_calloc(n_ff, 1);
    if (!gone) w->meta.failed = true;
    if (!gone || !p->cut->n_ff) {
        free(gone);
        return;
    }
    bn_gguf_put_u32(w, RECORD_KEYS "ffn_width_before", n_ff);
    bn_gguf_put_array(w, CHANNELS_KEY, BN_META_U32,
                      (uint64_t)p->cut->n_kept * (n_ff - p->cut->n_ff), NULL);
    for (uint32_t i = 0; i < p->cut->n_kept; i++) {
        bn_prune_removed(gone, p, i);
        for (uint32_t c = 0; c < n_ff; c++)
            if (gone[c]) bn_gguf_put_item(w, &c, sizeof c);
    }
    free(gone);
}

static void put_text(struct bn_gguf_writer *w, const char *key, const char *text)
{
    if (text && *text) bn_gguf_put_str(w, key, text, strlen(text));
}

void bn_prune_put_record(struct bn_gguf_writer *w, const struct bn_convert_plan *p)
{
    const bitnet_prune_output *o = p->cut->record;
    struct bn_config c = *p->config;
    bn_prune_config(&c, p->cut);
    if (p->src->is_gguf) put_kinds(w, p);
    if (p->src->is_gguf && c.ffn_norm_width && !p->config->ffn_norm_width)
        bn_gguf_put_u32(w, NORM_WIDTH_KEY, c.ffn_norm_width);
    put_channels(w, p);
    put_removed(w, p);
    put_text(w, RECORD_KEYS "criterion", o->criterion);
    put_text(w, RECORD_KEYS "calibration", o->calibration);
    if (o->ppl_before <= 0) return;
    bn_gguf_put_f32(w, RECORD_KEYS "ppl_before", (float)o->ppl_before);
    bn_gguf_put_f32(w, RECORD_KEYS "ppl_after", (float)o->ppl_after);
    bn_gguf_put_f32(w, RECORD_KEYS "kl", (float)o->kl);
}

/* ------------------------------------------------------------------ the call */

/* What stays: layers by the list, channels by a look at the weights. kept: [BN_MAX_LAYERS]. */
static bitnet_status fill_cut(struct bn_convert_cut *cut, uint32_t *kept, struct bn_config *c,
                              const struct bn_source *src, const bitnet_prune_output *o,
                              bitnet_error *err)
{
    struct bn_buf note;
    bool gone[BN_MAX_LAYERS] = {0};
    bn_buf_init(&note, 1 << 14);
    bitnet_status s = bn_config_read(c, src, &note, err);
    bn_buf_free(&note);
    BN_TRY(s);
    for (size_t i = 0; i < o->n_layers; i++) {
        if (o->layers[i] >= c->n_layer)
            return bn_fail(err, BITNET_E_ARG, "there is no layer %u: '%s' has 0 to %u",
                           o->layers[i], src->path, c->n_layer - 1);
        gone[o->layers[i]] = true;
    }
    for (uint32_t i = 0; i < c->n_layer; i++)
        if (!gone[i]) kept[cut->n_kept++] = i;
    if (cut->n_kept == 0)
        return bn_fail(err, BITNET_E_ARG, "all %u layers are to go; one must stay", c->n_layer);
    if (o->ffn_channels && o->ffn_dead)
        return bn_fail(
            err, BITNET_E_ARG,
            "a list of channels, and dead channels: dead ones are the first to go anyway");
    if (o->ffn_channels) return bn_prune_chosen(cut, src, c, err);
    return o->ffn_dead ? bn_prune_dead(cut, src, c, err) : BITNET_OK;
}

bitnet_status bn_prune(const char *in, const char *out, const bitnet_prune_output *o,
                       bitnet_error *err)
{
    uint32_t kept[BN_MAX_LAYERS];
    struct bn_source src = {0};
    struct bn_config config;
    struct bn_convert_cut cut = {.kept = kept, .record = o, .fold_norm = o->portable != 0};
    bitnet_convert_options c = {.size = sizeof c};
    c.name = o->name;
    c.overwrite = o->overwrite;
    c.progress = o->progress;
    c.progress_user = o->progress_user;
    bitnet_status s = bn_source_open(&src, in, BN_I2S_AUTO, err);
    if (s == BITNET_OK) s = fill_cut(&cut, kept, &config, &src, o, err);
    bool checkpoint = bn_ends_with(out, ".safetensors");
    cut.fold_norm |= checkpoint && cut.n_ff && !o->ffn_dead; /* config.json has no word for it */
    if (s == BITNET_OK && checkpoint) s = bn_prune_checkpoint(out, &src, &config, &cut, err);
    bn_source_close(&src);
    if (s == BITNET_OK && !checkpoint) s = bn_convert_to_gguf(in, out, &c, &cut, err);
    free(cut.ffn_from);
    return s;
}
