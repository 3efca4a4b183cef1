/* SPDX-License-Identifier: Apache-2.0
 * Which feed-forward channels a model can do without: one pass over the text adds up what each of them
 * sends into `down`, those with the least go, and what that does is measured at some widths on the way.
 *
 * A channel that goes is taken as zero while it is measured, and the norm behind it keeps its divisor. The
 * file has the same bits if every channel that stays keeps its lane of the norm's sum and its order there
 * (channels.c). So each lane loses as many as any other, its weakest ones: with as many channels in a lane
 * as models have, that is hardly another choice than the weakest of all. */
#include "forge/prune/search_impl.h"

#include "base/os/mem.h"
#include "forge/convert_impl.h"
#include <stdlib.h>

enum { ALL_THERE_ARE = 1 }; /* width: as few channels as the budget allows */

/* ------------------------------------------------------------------ what is wanted */

bitnet_status bn_search_check_width(struct bn_search *s, bitnet_error *err)
{
    const struct bn_model *m = bn_engine_model(s->e);
    uint32_t want = s->o->ffn_width;
    s->n_ff = m->config.n_ff;
    if (!want) return BITNET_OK;
    if (want >= s->n_ff)
        return bn_fail(err, BITNET_E_ARG,
                       "%u feed-forward channels are to be left, and the model has %u", want,
                       s->n_ff);
    if (want == ALL_THERE_ARE && !(s->o->max_ppl_increase > 0))
        return bn_fail(err, BITNET_E_ARG,
                       "as few channels as possible: how far may perplexity grow?");
    BN_TRY(bn_prune_grain(&s->grain, &m->source, &m->config, err));
    s->target = (uint32_t)bn_align_up(want, s->grain);
    if (s->target >= s->n_ff)
        return bn_fail(err, BITNET_E_ARG,
                       "%u feed-forward channels are to be left; they go %u at a time, and the "
                       "model has %u",
                       want, s->grain, s->n_ff);
    s->step = (uint32_t)bn_align_up(bn_div_up(s->n_ff, BITNET_PRUNE_WIDTHS), s->grain);
    return BITNET_OK;
}

bitnet_status bn_search_open_widths(struct bn_search *s, bitnet_error *err)
{
    size_t n = (size_t)s->n_layer * s->n_ff;
    if (!s->target) return BITNET_OK;
    s->off = bn_calloc(n, sizeof *s->off);
    s->rank = bn_calloc(n, sizeof *s->rank);
    s->sums.energy = bn_calloc(n, sizeof *s->sums.energy);
    s->sums.active = bn_calloc(n, sizeof *s->sums.active);
    size_t bytes =
        n * (sizeof *s->off + sizeof *s->rank + sizeof *s->sums.energy + sizeof *s->sums.active);
    s->r->scratch_bytes += bytes;
    if (s->off && s->rank && s->sums.energy && s->sums.active) return BITNET_OK;
    return bn_fail_nomem(err, bytes, "sums over channels");
}

void bn_search_close_widths(struct bn_search *s)
{
    free(s->off);
    free(s->rank);
    free(s->sums.energy);
    free(s->sums.active);
}

uint64_t bn_search_widths_cost(const struct bn_search *s, uint64_t layers_left)
{
    if (!s->target) return 0;
    uint64_t steps = bn_div_up(s->n_ff - s->target, s->step);
    return layers_left + steps * (s->n_layer + layers_left + 2 * s->head_cost);
}

/* ------------------------------------------------------------------ ranks */

struct place {
    double energy;
    uint32_t channel;
};

/* The strongest first; where two are alike, the earlier one. */
static int strongest_first(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    if (x->energy != y->energy) return x->energy < y->energy ? 1 : -1;
    return x->channel > y->channel ? 1 : -1;
}

static bitnet_status rank_all(struct bn_search *s, bitnet_error *err)
{
    uint32_t per_lane = s->n_ff / BN_LANES;
    struct place *lane = bn_calloc(per_lane, sizeof *lane);
    if (!lane) return bn_fail_nomem(err, per_lane * sizeof *lane, "an order of channels");
    for (uint32_t i = 0; i < s->n_kept; i++) {
        size_t at = (size_t)s->kept[i] * s->n_ff;
        for (uint32_t l = 0; l < BN_LANES; l++) {
            for (uint32_t k = 0; k < per_lane; k++) {
                uint32_t channel = k * BN_LANES + l;
                lane[k] = (struct place){s->sums.energy[at + channel], channel};
            }
            qsort(lane, per_lane, sizeof *lane, strongest_first);
            for (uint32_t k = 0; k < per_lane; k++) s->rank[at + lane[k].channel] = k;
        }
    }
    free(lane);
    return BITNET_OK;
}

static void set_width(struct bn_search *s, uint32_t width)
{
    size_t n = (size_t)s->n_layer * s->n_ff;
    s->narrow = width < s->n_ff;
    for (size_t i = 0; i < n; i++) s->off[i] = s->rank[i] >= width / BN_LANES;
}

/* ------------------------------------------------------------------ steps */

/* Those that are left, as the file will have them: each lane in its order. And how active the others
 * were. */
static void list_channels(struct bn_search *s, uint32_t width)
{
    double active = 0, tokens = (double)s->r->n_tokens;
    uint64_t n_gone = 0;
    for (uint32_t i = 0; i < s->n_kept; i++) {
        size_t from = (size_t)s->kept[i] * s->n_ff;
        uint32_t *to = s->r->ffn_channels ? s->r->ffn_channels + (size_t)i * width : NULL;
        uint32_t filled[BN_LANES] = {0};
        for (uint32_t c = 0; c < s->n_ff; c++) {
            uint32_t lane = c % BN_LANES;
            if (s->off[from + c]) {
                active += (double)s->sums.active[from + c] / tokens;
                n_gone++;
            } else if (to) {
                to[filled[lane]++ * BN_LANES + lane] = c;
            }
        }
    }
    s->r->ffn_width = width;
    s->r->ffn_active = n_gone ? active / (double)n_gone : 0;
}

bitnet_status bn_search_widths(struct bn_search *s, bitnet_error *err)
{
    uint32_t width = s->n_ff, reached = s->n_ff;
    s->r->ffn_width = s->n_ff;
    if (!s->target) return BITNET_OK;
    for (struct bn_search_window w = {0}; bn_search_next(s, &w);)
        BN_TRY(bn_search_pass(s, &w, &s->sums, err));
    BN_TRY(rank_all(s, err));
    while (width > s->target) {
        bitnet_prune_step *now = &s->r->steps[s->r->n_steps];
        width = width > s->target + s->step ? width - s->step : s->target;
        set_width(s, width);
        *now = (bitnet_prune_step){.ffn_width = width};
        BN_TRY(bn_search_measure(s, now, err));
        now->ffn_width = width;
        if (bn_search_is_over(s, now)) break;
        reached = width;
        s->r->n_steps++;
    }
    set_width(s, reached);
    if (reached < s->n_ff) list_channels(s, reached);
    return BITNET_OK;
}
