/* SPDX-License-Identifier: Apache-2.0
 *
 * Which adapters a request has, and the key by which the prefix cache tells its texts from those of
 * others. A key stands for a list of adapters and scales, exactly: the lists that were seen last are kept
 * with theirs, by the serial numbers of adapters, which are never given out twice. A list that has been
 * forgotten gets a new key when it comes back; its pages are then not found any more and leave the
 * cache as all others do. No key is used again. */
#include "engine/engine_impl.h"

#include "base/os/mem.h"
#include <math.h>

enum { MIXES_MAX = 256 };

struct seen {
    uint64_t key, last_use; /* key 0: free */
    uint32_t n;
    struct {
        uint64_t serial;
        float scale;
    } parts[BN_MIX_MAX];
};

struct bn_mixes {
    uint64_t next_key, clock;
    struct seen seen[MIXES_MAX];
};

static bool same_mix(const struct seen *s, const struct bn_mix *mix)
{
    if (!s->key || s->n != mix->n) return false;
    for (uint32_t i = 0; i < mix->n; i++)
        if (s->parts[i].serial != mix->parts[i].adapter->serial ||
            memcmp(&s->parts[i].scale, &mix->parts[i].scale, sizeof(float)) != 0)
            return false;
    return true;
}

/* The key of a mix that is not empty. */
static uint64_t find_key(struct bn_mixes *m, const struct bn_mix *mix)
{
    struct seen *oldest = &m->seen[0];
    m->clock++;
    for (size_t i = 0; i < MIXES_MAX; i++) {
        struct seen *s = &m->seen[i];
        if (same_mix(s, mix)) {
            s->last_use = m->clock;
            return s->key;
        }
        if (s->last_use < oldest->last_use) oldest = s;
    }
    *oldest = (struct seen){.key = ++m->next_key, .last_use = m->clock, .n = mix->n};
    for (uint32_t i = 0; i < mix->n; i++) {
        oldest->parts[i].serial = mix->parts[i].adapter->serial;
        oldest->parts[i].scale = mix->parts[i].scale;
    }
    return oldest->key;
}

static bitnet_status check_use(const struct bitnet_engine *e, const bitnet_adapter_use *uses,
                               size_t i, bitnet_error *err)
{
    const struct bitnet_adapter *a = uses[i].adapter;
    if (!a) return bn_fail(err, BITNET_E_ARG, "adapter %zu is NULL", i);
    if (a->m != e->m)
        return bn_fail(err, BITNET_E_ARG, "adapter '%s' was opened for another model", a->path);
    if (!isfinite(uses[i].scale))
        return bn_fail(err, BITNET_E_ARG, "adapter '%s': scale %g; a finite one is needed", a->path,
                       (double)uses[i].scale);
    for (size_t k = 0; k < i; k++)
        if (uses[k].adapter == a)
            return bn_fail(err, BITNET_E_ARG, "adapter '%s' is named twice", a->path);
    return BITNET_OK;
}

/* Those with scale 0 add nothing and are left out. */
static bitnet_status make_mix(struct bitnet_engine *e, struct bn_mix *out,
                              const bitnet_adapter_use *uses, size_t n, bitnet_error *err)
{
    *out = (struct bn_mix){0};
    if (n > BN_MIX_MAX)
        return bn_fail(err, BITNET_E_LIMIT, "%zu adapters of a request; at most %d are possible", n,
                       BN_MIX_MAX);
    for (size_t i = 0; i < n; i++) {
        BN_TRY(check_use(e, uses, i, err));
        if (uses[i].scale == 0) continue;
        const struct bitnet_adapter *a = uses[i].adapter;
        out->parts[out->n++] = (struct bn_mix_part){a, uses[i].scale, out->width};
        out->width += BN_ADAPTER_SLOTS * a->rank_max;
    }
    if (!out->n) return BITNET_OK;
    if (!e->mixes) e->mixes = bn_calloc_now(1, sizeof *e->mixes);
    if (!e->mixes) return bn_fail_nomem(err, sizeof *e->mixes, "adapters");
    out->key = find_key(e->mixes, out);
    return bn_forward_reserve_adapters(e->forward, out->width, &e->backing, err);
}

bitnet_status bn_engine_choose_mix(struct bitnet_engine *e, struct bn_mix *out,
                                   const bitnet_request *r, bitnet_error *err)
{
    if (r->adapters) return make_mix(e, out, r->adapters, r->n_adapters, err);
    *out = e->mix;
    return BITNET_OK;
}

bitnet_status bn_engine_set_adapters(struct bitnet_engine *e, const bitnet_adapter_use *uses,
                                     size_t n, bitnet_error *err)
{
    struct bn_mix mix;
    BN_TRY(make_mix(e, &mix, uses, n, err));
    bn_mix_hold(&mix);
    bn_mix_let_go(&e->mix);
    e->mix = mix;
    return BITNET_OK;
}
