/* SPDX-License-Identifier: Apache-2.0
 * Slots of snapshots against a list of them: none is lost, none is used twice, and the one that goes is
 * the one worth least, by the rule as it is written. Then with the prefix cache: what a text takes over
 * is the state of exactly its own beginning, and the longest there is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "alloc_count.h"
#include "base/map.h"
#include "base/rng.h"
#include "engine/engine_impl.h"

enum { PAGE = BN_ATTN_BLOCK, NODES = 60, MAX_SLOTS = 24 };

/* ------------------------------------------------------------------ the slow model */

static uint32_t parents[NODES];
static bool alive[NODES];

static uint32_t parent_of(const void *user, uint32_t node)
{
    assert_ptr_equal(user, parents);
    assert_true(node < NODES && alive[node]);
    return parents[node];
}

static uint32_t depth_of(uint32_t node)
{
    uint32_t n = 0;
    for (; node != NODES; node = parents[node]) n += PAGE;
    return n;
}

/* What is kept, in no order. */
struct entry {
    uint32_t slot, node, pins;
    uint64_t level, used;
    struct bn_snapshot_ref ref;
};
static struct entry list[MAX_SLOTS];
static uint32_t n_list, n_slots;
static bool out[MAX_SLOTS];
static uint64_t level, uses;
static struct bn_snapshots *pool;
static struct {
    uint32_t thinned, refused, doubles, retaken, dropped, stale;
} seen; /* how often */

static struct entry *find(uint32_t node)
{
    for (uint32_t i = 0; i < n_list; i++)
        if (list[i].node == node) return &list[i];
    return NULL;
}

static uint64_t rank_of(const struct entry *e)
{
    uint32_t above = parents[e->node];
    while (above != NODES && !find(above)) above = parents[above];
    return e->level + depth_of(e->node) - depth_of(above);
}

static struct entry *least(void)
{
    struct entry *best = NULL;
    for (uint32_t i = 0; i < n_list; i++) {
        struct entry *e = &list[i];
        if (e->pins) continue;
        if (!best || rank_of(e) < rank_of(best) ||
            (rank_of(e) == rank_of(best) && e->used < best->used))
            best = e;
    }
    return best;
}

static void strike(struct entry *e) { *e = list[--n_list]; }

static void check_pool(void)
{
    uint32_t n_out = 0, times[MAX_SLOTS] = {0};
    for (uint32_t i = 0; i < n_slots; i++) n_out += out[i], times[i] += out[i];
    for (uint32_t i = 0; i < n_list; i++) times[list[i].slot]++;
    for (uint32_t i = 0; i < n_slots; i++) assert_true(times[i] <= 1);
    const struct bn_snapshots_stats *s = bn_snapshots_stats(pool);
    assert_int_equal(s->slots, n_slots);
    assert_int_equal(s->kept, n_list);
    assert_int_equal(s->out, n_out);
    for (uint32_t i = 0; i < NODES; i++) {
        const struct entry *e = find(i);
        assert_int_equal(bn_snapshots_at(pool, i), e ? e->slot : BN_NO_SLOT);
    }
}

/* ------------------------------------------------------------------ random operations */

static void take(bool free_only)
{
    uint32_t n_out = 0, slot = bn_snapshots_take(pool, free_only);
    for (uint32_t i = 0; i < n_slots; i++) n_out += out[i];
    if (n_list + n_out == n_slots) {
        struct entry *e = free_only ? NULL : least();
        seen.refused += !e;
        assert_int_equal(slot, e ? e->slot : BN_NO_SLOT);
        if (!e) return;
        level = rank_of(e);
        strike(e);
        seen.thinned++;
    }
    assert_true(slot < n_slots && !out[slot]);
    out[slot] = true;
}

static void keep(uint32_t slot, uint32_t node)
{
    bn_snapshots_keep(pool, slot, node, depth_of(node));
    out[slot] = false;
    if (find(node)) {
        seen.doubles++;
        return;
    }
    list[n_list++] = (struct entry){.slot = slot,
                                    .node = node,
                                    .level = level,
                                    .used = ++uses,
                                    .ref = bn_snapshots_ref(pool, slot)};
}

static void grow_tree(struct bn_rng *r)
{
    for (uint32_t i = 0; i < NODES; i++) {
        if (alive[i]) continue;
        uint32_t p = bn_rng_below(r, NODES + 1);
        while (p != NODES && !alive[p]) p = bn_rng_below(r, NODES + 1);
        parents[i] = p;
        alive[i] = true;
        return;
    }
}

static void drop_leaf(uint32_t node)
{
    for (uint32_t i = 0; i < NODES; i++)
        if (alive[i] && parents[i] == node) return;
    bn_snapshots_drop(pool, node);
    struct entry *e = find(node);
    if (e) strike(e), seen.dropped++;
    alive[node] = false;
}

static void random_step(struct bn_rng *r)
{
    static struct bn_snapshot_ref old; /* of one that may be gone */
    uint32_t what = bn_rng_below(r, 100), node = bn_rng_below(r, NODES);
    uint32_t slot = bn_rng_below(r, n_slots);
    struct entry *e = n_list ? &list[bn_rng_below(r, n_list)] : NULL;
    if (what == 0) {
        bn_snapshots_clear(pool);
        n_list = 0;
    } else if (what < 20) {
        grow_tree(r);
    } else if (what < 28) {
        if (alive[node]) drop_leaf(node);
    } else if (what < 55) {
        take(what < 35);
    } else if (what < 60) {
        if (out[slot]) bn_snapshots_give_back(pool, slot), out[slot] = false;
    } else if (what < 80) {
        if (out[slot] && alive[node]) keep(slot, node);
    } else if (e && what < 88) {
        bn_snapshots_use(pool, e->slot);
        e->level = level;
        e->used = ++uses;
        old = e->ref;
    } else if (e && what < 91) {
        bn_snapshots_pin(pool, e->ref);
        e->pins++;
    } else if (e && what < 95) {
        if (e->pins) bn_snapshots_unpin(pool, e->ref), e->pins--;
    } else if (e && what < 98) {
        uint32_t got = bn_snapshots_retake(pool, e->ref);
        assert_int_equal(got, e->pins ? BN_NO_SLOT : e->slot);
        if (got == BN_NO_SLOT) return;
        out[got] = true;
        strike(e);
        seen.retaken++;
    } else { /* of one that is gone nothing is changed */
        for (uint32_t i = 0; i < n_list; i++)
            if (list[i].ref.stamp == old.stamp) return;
        bn_snapshots_pin(pool, old);
        bn_snapshots_unpin(pool, old);
        assert_int_equal(bn_snapshots_retake(pool, old), BN_NO_SLOT);
        seen.stale++;
    }
}

static void slots_are_kept_as_in_a_list(void **state)
{
    (void)state;
    static const uint32_t sizes[] = {1, 2, 7, MAX_SLOTS};
    const struct bn_snapshot_tree tree = {parents, parent_of, NODES};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct bn_rng r = {i + 1};
        n_slots = sizes[i];
        n_list = 0;
        level = uses = 0;
        memset(alive, 0, sizeof alive);
        memset(out, 0, sizeof out);
        memset(&seen, 0, sizeof seen);
        assert_int_equal(bn_snapshots_open(&pool, n_slots, &tree, NULL), BITNET_OK);
        long before = n_allocs;
        for (int k = 0; k < 20000; k++) {
            random_step(&r);
            check_pool();
        }
        assert_int_equal(n_allocs, before);
        assert_true(seen.thinned > 100 && seen.retaken > 20 && seen.refused > 20);
        assert_true(seen.dropped > 0 && seen.stale > 20 && (seen.doubles > 0 || n_slots == 1));
        bn_snapshots_close(pool);
    }
}

/* Of a row of neighbours every other one goes first; one that was used stays, and so its gap decides
 * less; a far one outlives many near ones, but not for ever. */
static void the_least_is_given_up(void **state)
{
    (void)state;
    const struct bn_snapshot_tree tree = {parents, parent_of, NODES};
    assert_int_equal(bn_snapshots_open(&pool, 5, &tree, NULL), BITNET_OK);
    for (uint32_t i = 0; i < NODES; i++) {
        alive[i] = true;
        parents[i] = i == 0 || i == 40 ? NODES : i - 1;
    }
    for (uint32_t i = 0; i < 4; i++)
        bn_snapshots_keep(pool, bn_snapshots_take(pool, true), i, (i + 1) * PAGE);
    bn_snapshots_keep(pool, bn_snapshots_take(pool, true), 59, 20 * PAGE); /* far from all */
    assert_int_equal(bn_snapshots_take(pool, true), BN_NO_SLOT);
    for (uint32_t i = 4, gone[] = {0, 2, 1}; i < 7; i++) {
        if (i == 5) bn_snapshots_use(pool, bn_snapshots_at(pool, 3));
        bn_snapshots_keep(pool, bn_snapshots_take(pool, false), i, (i + 1) * PAGE);
        assert_int_equal(bn_snapshots_at(pool, gone[i - 4]), BN_NO_SLOT);
    }
    for (uint32_t i = 7; i < 15; i++)
        bn_snapshots_keep(pool, bn_snapshots_take(pool, false), i, (i + 1) * PAGE);
    assert_int_not_equal(bn_snapshots_at(pool, 59), BN_NO_SLOT);
    for (uint32_t i = 15; i < 39; i++)
        bn_snapshots_keep(pool, bn_snapshots_take(pool, false), i, (i + 1) * PAGE);
    assert_int_equal(bn_snapshots_at(pool, 59), BN_NO_SLOT);
    bn_snapshots_close(pool);
}

/* ------------------------------------------------------------------ with the tree of texts */

enum { CTX = 6 * PAGE, SEQS = 5, PAGES = 40 };

struct text {
    int32_t tokens[CTX];
    uint32_t n;
    struct bn_kv_seq seq;
};
static struct text texts[SEQS];
static struct bn_kv kv;
static struct bn_prefix *prefix;
static uint64_t states[MAX_SLOTS]; /* a hash of the text in place of a state */

static uint64_t text_hash(const int32_t *tokens, uint32_t n)
{
    return bn_hash(tokens, n * sizeof *tokens);
}

/* The longest beginning for which somebody has put the right state aside, and the pages are there: seen
 * from the slots. */
static uint32_t longest(const struct text *t)
{
    for (uint32_t n = (t->n - 1) / PAGE * PAGE; n; n -= PAGE)
        for (uint32_t page = 0; page < PAGES; page++) {
            uint32_t slot = bn_snapshots_at(bn_prefix_snapshots(prefix), page);
            if (slot != BN_NO_SLOT && states[slot] == text_hash(t->tokens, n)) return n;
        }
    return 0;
}

static uint32_t start_text(struct text *t, struct bn_rng *r)
{
    static int32_t old[8][CTX];
    int32_t *from = old[bn_rng_below(r, 8)];
    uint32_t same = bn_rng_below(r, CTX);
    t->n = 1 + bn_rng_below(r, CTX);
    memcpy(t->tokens, from, sizeof t->tokens);
    for (uint32_t i = same; i < CTX; i++) t->tokens[i] = (int32_t)bn_rng_below(r, 3);
    if (bn_rng_below(r, 3) == 0) memcpy(from, t->tokens, sizeof t->tokens);
    uint32_t want = longest(t);
    assert_int_equal(bn_prefix_peek(prefix, 0, t->tokens, t->n), want);
    assert_int_equal(bn_prefix_match(prefix, 0, t->tokens, t->n, &t->seq), want);
    if (!want) return 0;
    uint32_t slot = bn_prefix_matched_slot(prefix, &t->seq);
    assert_true(states[slot] == text_hash(t->tokens, want));
    bn_snapshots_use(bn_prefix_snapshots(prefix), slot);
    return want;
}

/* Some pages' ends get a slot; then the text is known up to there, or it goes and they are given back. */
static void grow_text(struct text *t, struct bn_rng *r)
{
    struct bn_snapshots *s = bn_prefix_snapshots(prefix);
    uint32_t from = t->seq.n_tokens, n = from + 1 + bn_rng_below(r, 3 * PAGE), slots[CTX / PAGE];
    if (n > t->n) n = t->n;
    uint32_t need = bn_kv_need(&kv, &t->seq, n);
    if (need > kv.n_free) bn_prefix_evict(prefix, need - kv.n_free);
    if (!bn_kv_reserve(&kv, &t->seq, n)) {
        bn_kv_release(&kv, &t->seq);
        return;
    }
    t->seq.n_tokens = n;
    bool known = bn_rng_below(r, 8) > 0;
    for (uint32_t i = from / PAGE; i < n / PAGE; i++) {
        slots[i] = bn_rng_below(r, 2) ? bn_snapshots_take(s, bn_rng_below(r, 2)) : BN_NO_SLOT;
        if (slots[i] != BN_NO_SLOT) states[slots[i]] = text_hash(t->tokens, (i + 1) * PAGE);
    }
    if (known) bn_prefix_add(prefix, 0, t->tokens, n, &t->seq, false);
    for (uint32_t i = from / PAGE; i < n / PAGE; i++) {
        if (slots[i] == BN_NO_SLOT) continue;
        uint32_t kept = bn_prefix_keep(prefix, 0, t->tokens, (i + 1) * PAGE, &t->seq, slots[i]);
        assert_true(kept != BN_NO_SLOT || !known);
        if (kept != BN_NO_SLOT) assert_true(states[kept] == text_hash(t->tokens, (i + 1) * PAGE));
    }
}

static void texts_get_the_state_of_their_beginning(void **state)
{
    (void)state;
    const struct bn_config c = {.n_layer = 1, .n_head_kv = 1, .head_dim = 4};
    for (uint32_t slots = 1; slots <= MAX_SLOTS; slots += 11) {
        struct bn_rng r = {slots};
        uint32_t hits = 0;
        memset(states, 0, sizeof states);
        assert_int_equal(bn_kv_open_uniform(&kv, &c,
                                            (struct bn_kv_types){BITNET_KV_F16, BITNET_KV_F16},
                                            PAGES, NULL, NULL),
                         BITNET_OK);
        assert_int_equal(bn_prefix_open(&prefix, &kv, true, slots, NULL), BITNET_OK);
        for (int i = 0; i < SEQS; i++) assert_true(bn_kv_seq_open(&texts[i].seq, &kv, CTX));
        for (int i = 0; i < 6000; i++) {
            struct text *t = &texts[bn_rng_below(&r, SEQS)];
            uint32_t what = bn_rng_below(&r, 100);
            if (what == 0) bn_prefix_clear(prefix);
            else if (what < 4) bn_prefix_evict(prefix, bn_rng_below(&r, 4));
            else if (t->seq.n_tokens == 0) hits += start_text(t, &r) > 0, grow_text(t, &r);
            else if (what < 20 || t->seq.n_tokens == t->n) bn_kv_release(&kv, &t->seq);
            else grow_text(t, &r);
            const struct bn_snapshots_stats *s = bn_snapshots_stats(bn_prefix_snapshots(prefix));
            assert_true(s->out == 0 && s->kept <= bn_prefix_stats(prefix)->pages);
        }
        assert_true(hits > (slots == 1 ? 20 : 200));
        for (int i = 0; i < SEQS; i++) bn_kv_release(&kv, &texts[i].seq);
        bn_prefix_clear(prefix);
        assert_int_equal(bn_snapshots_stats(bn_prefix_snapshots(prefix))->kept, 0);
        bn_prefix_close(prefix);
        assert_int_equal(kv.n_free, PAGES);
        for (int i = 0; i < SEQS; i++) bn_kv_seq_close(&texts[i].seq);
        bn_kv_close(&kv);
    }
}

/* ------------------------------------------------------------------ where */

static void states_are_saved_where_texts_part(void **state)
{
    (void)state;
    static int32_t tokens[3000];
    for (int i = 0; i < 3000; i++) tokens[i] = 100;
    for (uint32_t n = PAGE; n <= 2000; n += PAGE) {
        /* without a tokenizer: the last two pages' ends of the prompt, and every so many tokens */
        bool last = n == 992 || n == 960;
        assert_int_equal(bn_save_lasts(NULL, tokens, 1000, n), last || n == BN_SAVE_EVERY);
        assert_int_equal(bn_save_lasts(NULL, tokens, 992, n), last || n == BN_SAVE_EVERY);
    }
#if BN_HAVE_TEXT
    struct bn_model *m = NULL;
    const bitnet_model_options args = {.vocab_only = 1};
    assert_int_equal(bn_model_open(&m, TEST_MODEL, &args, NULL), BITNET_OK);
    int32_t end = 0;
    while (!bn_token_is_end(m->tokenizer, end)) end++;
    assert_false(bn_token_is_end(m->tokenizer, 100));
    for (uint32_t at = 40; at < 300; at++) { /* a message of so many tokens */
        tokens[at - 1] = end;
        for (uint32_t n = PAGE; n <= 800; n += PAGE)
            assert_int_equal(bn_save_lasts(m->tokenizer, tokens, 1000, n), n == at / PAGE * PAGE);
        assert_false(bn_save_lasts(m->tokenizer, tokens, at - 1, at / PAGE * PAGE) &&
                     at / PAGE * PAGE > at - 1);
        tokens[at - 1] = 100;
    }
    bn_model_close(m);
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(slots_are_kept_as_in_a_list),
                                       cmocka_unit_test(the_least_is_given_up),
                                       cmocka_unit_test(texts_get_the_state_of_their_beginning),
                                       cmocka_unit_test(states_are_saved_where_texts_part)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
