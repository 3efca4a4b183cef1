/* SPDX-License-Identifier: Apache-2.0
 *
 * key.c: what an answer depends on, as a number: FNV-1a over everything, then mixed. Both steps can be
 * undone, so a key and its request tell from which run the answer is.
 */
#include "base/rng.h"
#include "cli/batch/batch.h"

enum { WORD_BYTES = 8 };
static const uint64_t fnv_prime = 0x100000001b3u;

static uint64_t hash_bytes(uint64_t h, const void *p, size_t n)
{
    const unsigned char *s = p;
    for (size_t i = 0; i < n; i++) h = (h ^ s[i]) * fnv_prime;
    return h;
}

static uint64_t hash_text(uint64_t h, const char *s)
{
    return s ? hash_bytes(h, s, strlen(s) + 1) : hash_bytes(h, "\1", 1);
}

static uint64_t hash_u64(uint64_t h, uint64_t v) { return hash_bytes(h, &v, sizeof v); }

/* The engine with its own adapters, and with each of those that a request may name. */
static bitnet_status hash_engine(uint64_t *h, bitnet_engine *e, const struct adapters *adapters,
                                 bitnet_error *err)
{
    uint64_t identity;
    BN_TRY(bitnet_engine_identity(e, NULL, 0, &identity, err));
    *h = hash_u64(*h, identity);
    for (size_t i = 0; i < adapters->n; i++) {
        const struct adapter_item *a = &adapters->items[i];
        const bitnet_adapter_use use = {a->adapter, a->spec.scale, 0};
        BN_TRY(bitnet_engine_identity(e, &use, 1, &identity, err));
        *h = hash_u64(hash_text(*h, a->spec.name), identity);
    }
    return BITNET_OK;
}

bitnet_status batch_run_key(uint64_t *key, const struct batch_input *in, bitnet_engine *e,
                            bitnet_error *err)
{
    const struct batch_config *c = in->config;
    bitnet_model_info m = {.size = sizeof m};
    bitnet_engine_info i = {.size = sizeof i};
    const char *text;
    bitnet_model_get_info(in->model, &m);
    bitnet_engine_get_info(e, &i);
    uint64_t h = hash_text(0xcbf29ce484222325u, bitnet_version());
    h = hash_text(h, m.name); /* it stands in the answers */
    BN_TRY(hash_engine(&h, e, in->adapters, err));
    h = hash_u64(h, i.ctx_tokens);
    /* a cache that is smaller than one context refuses what another would take */
    h = hash_u64(h, bn_min_size(i.ctx_tokens, (size_t)i.kv.pages * i.kv.page_tokens));
    h = hash_text(h, in->chat_template);
    if (!in->chat_template && bitnet_chat_template_text(in->model, NULL, &text, NULL) == BITNET_OK)
        h = hash_text(h, text);
    h = hash_u64(h, c->max_tokens);
    *key = hash_u64(h, c->seed);
    return BITNET_OK;
}

uint64_t batch_seed(uint64_t seed, const char *custom_id)
{
    return bn_mix64(hash_text(bn_mix64(seed), custom_id));
}

uint64_t batch_key(uint64_t run_key, uint64_t index, const struct line *l)
{
    return bn_mix64(hash_bytes(hash_u64(run_key, index), l->text, l->n));
}

/* ------------------------------------------------------------------ and back */

/* The x with x * odd = 1 modulo 2^64; every round doubles the bits that are right, of which odd itself
 * has three. */
static uint64_t inverse(uint64_t odd)
{
    uint64_t x = odd;
    for (int bits = 3; bits < 64; bits *= 2) x *= 2 - odd * x;
    return x;
}

/* The x with x ^ x >> by = y */
static uint64_t unshift(uint64_t y, int by)
{
    uint64_t x = y;
    for (int known = by; known < 64; known += by) x = y ^ x >> by;
    return x;
}

static uint64_t unmix(uint64_t x)
{
    x = unshift(x, 31) * inverse(0x94d049bb133111ebu);
    x = unshift(x, 27) * inverse(0xbf58476d1ce4e5b9u);
    return unshift(x, 30);
}

static uint64_t unhash(uint64_t h, const void *p, size_t n)
{
    const unsigned char *s = p;
    const uint64_t back = inverse(fnv_prime);
    while (n) h = h * back ^ s[--n];
    return h;
}

uint64_t batch_key_run(uint64_t key, uint64_t index, const struct line *l)
{
    return unhash(unhash(unmix(key), l->text, l->n), &index, WORD_BYTES);
}
