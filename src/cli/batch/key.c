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

uint64_t batch_run_key(const struct batch_config *c, const char *chat_template,
                       const bitnet_model_info *m, const bitnet_engine_info *e)
{
    uint64_t h = hash_text(0xcbf29ce484222325u, bitnet_version());
    h = hash_text(h, m->name);
    h = hash_text(h, m->architecture);
    h = hash_text(h, m->act_quant);
    h = hash_u64(h, m->shape.n_params);
    h = hash_u64(h, m->memory.file_bytes);
    h = hash_u64(h, e->ctx_tokens);
    /* a cache that is smaller than one context refuses what another would take */
    h = hash_u64(h, bn_min_size(e->ctx_tokens, (size_t)e->kv.pages * e->kv.page_tokens));
    h = hash_text(h, e->kv.type);
    h = hash_text(h, e->kv.type_v);
    h = hash_u64(h, strcmp(e->head.type, "int8") == 0); /* the other heads have the same tokens */
    h = hash_text(h, chat_template);
    for (size_t i = 0; i < c->adapters.lora.n; i++) h = hash_text(h, c->adapters.lora.items[i]);
    h = hash_u64(h, c->max_tokens);
    return hash_u64(h, c->seed);
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
