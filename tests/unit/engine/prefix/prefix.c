/* SPDX-License-Identifier: Apache-2.0
 * The prefix cache against a list of all texts that it should know. The pages hold, in place of keys,
 * a hash of the text up to each token: whoever takes over a page can tell whether it is the right one
 * and whether somebody has written to it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/map.h"
#include "base/rng.h"
#include "alloc_count.h"
#include "engine/prefix/prefix.h"

enum { PAGE = BN_ATTN_BLOCK, CTX = 6 * PAGE, SEQS = 6, MAX_PAGES = 4096 };

static struct bn_kv kv;
static struct bn_prefix *prefix;

/* A text as it is computed. */
struct text {
    uint64_t key; /* stands for its adapters */
    int32_t tokens[CTX];
    uint32_t n;
    struct bn_kv_seq seq;
};
static struct text texts[SEQS];

static void open_all(uint32_t n_pages, bool whole_pages)
{
    const struct bn_config c = {.n_layer = 1, .n_head_kv = 1, .head_dim = 4};
    assert_int_equal(bn_kv_open_uniform(&kv, &c, (struct bn_kv_types){BITNET_KV_F16, BITNET_KV_F16},
                                        n_pages, NULL, NULL),
                     BITNET_OK);
    assert_int_equal(bn_prefix_open(&prefix, &kv, whole_pages, 0, NULL), BITNET_OK);
    for (int i = 0; i < SEQS; i++) {
        assert_true(bn_kv_seq_open(&texts[i].seq, &kv, CTX));
        texts[i].n = 0;
    }
}

/* Nothing is left behind. */
static void close_all(void)
{
    for (int i = 0; i < SEQS; i++) bn_kv_release(&kv, &texts[i].seq);
    bn_prefix_close(prefix);
    assert_int_equal(kv.n_free, kv.n_pages);
    for (int i = 0; i < SEQS; i++) bn_kv_seq_close(&texts[i].seq);
    bn_kv_close(&kv);
}

static uint8_t *row(const struct bn_kv_seq *s, uint32_t pos)
{
    return bn_kv_head(&kv, 0, s->pages[pos / PAGE], 0, false) + pos % PAGE * sizeof(uint64_t);
}

static uint64_t text_hash(const struct text *t, uint32_t n)
{
    return bn_hash(t->tokens, n * sizeof *t->tokens) + t->key;
}

/* "Computes" the text up to its n-th token; false if there is no room. */
static bool compute(struct text *t, uint32_t n)
{
    if (!bn_kv_reserve(&kv, &t->seq, n)) return false;
    for (uint32_t i = t->seq.n_tokens; i < n; i++) {
        uint64_t h = text_hash(t, i + 1);
        memcpy(row(&t->seq, i), &h, sizeof h);
    }
    t->seq.n_tokens = n;
    return true;
}

static void check_rows(const struct text *t)
{
    for (uint32_t i = 0; i < t->seq.n_tokens; i++)
        assert_true(bn_load_u64(row(&t->seq, i)) == text_hash(t, i + 1));
}

/* ---- the list: every known page with its whole text */

struct entry {
    uint64_t key;
    uint32_t page, n; /* n tokens, the last of them in the page */
    int32_t tokens[CTX];
    uint64_t used; /* when last */
};
static struct entry list[MAX_PAGES];
static uint32_t n_list;
static uint64_t now;
static struct {
    uint32_t matched, evicted, ended, dropped, replaced;
} seen; /* how often */

static uint32_t common(const struct entry *a, const struct entry *b)
{
    uint32_t k = 0;
    while (a->key == b->key && k < a->n && k < b->n && a->tokens[k] == b->tokens[k]) k++;
    return k;
}

/* The first n tokens of a text. */
static struct entry beginning_of(const struct text *t, uint32_t n)
{
    struct entry e = {.key = t->key, .n = n};
    memcpy(e.tokens, t->tokens, n * sizeof *t->tokens);
    return e;
}

static uint32_t list_longest(const struct text *t, uint32_t n, bool whole_pages)
{
    const struct entry all = beginning_of(t, n ? n - 1 : 0);
    uint32_t best = 0;
    for (uint32_t i = 0; i < n_list; i++) {
        uint32_t k = common(&all, &list[i]);
        if (k > best) best = k;
    }
    return whole_pages ? best - best % PAGE : best;
}

static bool begins_with(const struct entry *e, const struct entry *beginning)
{
    return common(e, beginning) == beginning->n;
}

/* Others hold its page, or one that goes on from there. */
static bool pinned(const struct entry *e)
{
    for (uint32_t i = 0; i < n_list; i++)
        if (begins_with(&list[i], e) && kv.holders[list[i].page] > 1) return true;
    return false;
}

static void use_pinned(void)
{
    for (uint32_t i = 0; i < n_list; i++)
        if (pinned(&list[i])) list[i].used = now;
}

static void list_add(const struct text *t, uint32_t n, bool ended, bool whole_pages)
{
    if (!ended || whole_pages) n -= n % PAGE;
    for (uint32_t done = 0; done < n; done += PAGE) {
        uint32_t end = n - done < PAGE ? n : done + PAGE;
        bool known = false;
        const struct entry part = beginning_of(t, end);
        for (uint32_t i = 0; i < n_list && !known; i++) {
            uint32_t k = common(&part, &list[i]);
            known = k == end;
            if (k < list[i].n || k <= done || k == end) continue;
            list[i--] = list[--n_list]; /* its text is the beginning of this page's */
            seen.replaced++;
        }
        if (!known) {
            struct entry *e = &list[n_list++];
            *e = part;
            e->page = t->seq.pages[done / PAGE];
            e->used = now;
        }
    }
}

/* The one to go: the least recently used; of those that were used together, the longest. */
static uint32_t list_oldest(void)
{
    uint32_t best = MAX_PAGES;
    for (uint32_t i = 0; i < n_list; i++) {
        if (pinned(&list[i])) continue;
        if (best == MAX_PAGES || list[i].used < list[best].used ||
            (list[i].used == list[best].used && list[i].n > list[best].n))
            best = i;
    }
    return best;
}

static uint32_t list_evictable(void)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < n_list; i++) n += !pinned(&list[i]);
    return n;
}

/* Every page's holders are the texts that have it and the tree, where the list says so. */
static void check_all(void)
{
    static uint32_t held[MAX_PAGES];
    memset(held, 0, sizeof held);
    for (int i = 0; i < SEQS; i++)
        for (uint32_t k = 0; k < texts[i].seq.n_pages; k++) held[texts[i].seq.pages[k]]++;
    for (uint32_t i = 0; i < n_list; i++) held[list[i].page]++;
    assert_memory_equal(kv.holders, held, kv.n_pages * sizeof *held);
    uint32_t n_free = 0;
    for (uint32_t i = 0; i < kv.n_pages; i++) n_free += held[i] == 0;
    assert_int_equal(kv.n_free, n_free);
    for (uint32_t i = 0; i < n_free; i++) assert_int_equal(held[kv.free_pages[i]]++, 0);
    assert_int_equal(bn_prefix_stats(prefix)->pages, n_list);
    assert_int_equal(bn_prefix_evictable(prefix), list_evictable());
}

/* ---- thousands of random operations */

static void evict(uint32_t n)
{
    uint64_t before = bn_prefix_stats(prefix)->evicted_pages;
    uint32_t can = list_evictable(), want = n < can ? n : can;
    uint32_t got = bn_prefix_evict(prefix, n);
    assert_int_equal(got, want);
    assert_int_equal(bn_prefix_stats(prefix)->evicted_pages, before + got);
    for (uint32_t i = 0; i < got; i++) {
        uint32_t old = list_oldest();
        assert_int_equal(kv.holders[list[old].page], 0);
        list[old] = list[--n_list];
    }
    seen.evicted += got;
}

/* The beginning of a text that is or was known, or of one that runs, and something new. */
static void make_text(struct text *t, struct bn_rng *r)
{
    static int32_t old[16][CTX];
    int32_t *from = old[bn_rng_below(r, 16)];
    uint32_t same = bn_rng_below(r, CTX);
    t->key = bn_rng_below(r, 4) == 0;
    t->n = 1 + bn_rng_below(r, CTX);
    memcpy(t->tokens, from, sizeof t->tokens);
    for (uint32_t i = same; i < CTX; i++) t->tokens[i] = (int32_t)bn_rng_below(r, 3);
    if (bn_rng_below(r, 3) == 0) memcpy(from, t->tokens, sizeof t->tokens);
}

static void start(struct text *t, struct bn_rng *r, bool whole_pages)
{
    make_text(t, r);
    uint32_t want = list_longest(t, t->n, whole_pages);
    assert_int_equal(bn_prefix_peek(prefix, t->key, t->tokens, t->n), want);
    assert_int_equal(bn_prefix_match(prefix, t->key, t->tokens, t->n, &t->seq), want);
    assert_int_equal(t->seq.n_tokens, want);
    check_rows(t);
    seen.matched += want > 0;
}

static void add(struct text *t, bool ended, bool whole_pages)
{
    bn_prefix_add(prefix, t->key, t->tokens, t->seq.n_tokens, &t->seq, ended);
    list_add(t, t->seq.n_tokens, ended, whole_pages);
    use_pinned();
}

/* A piece of the text is computed; pages are freed where it needs them. Without room it goes. */
static void grow(struct text *t, struct bn_rng *r, bool whole_pages)
{
    uint32_t n = t->seq.n_tokens + 1 + bn_rng_below(r, 2 * PAGE);
    if (n > t->n) n = t->n;
    uint32_t need = bn_kv_need(&kv, &t->seq, n);
    if (need > kv.n_free) evict(need - kv.n_free);
    if (compute(t, n)) add(t, false, whole_pages);
    else bn_kv_release(&kv, &t->seq), seen.dropped++;
}

static void random_step(struct bn_rng *r, bool whole_pages)
{
    struct text *t = &texts[bn_rng_below(r, SEQS)];
    uint32_t what = bn_rng_below(r, 100);
    now++;
    use_pinned();
    if (what == 0) {
        bn_prefix_clear(prefix);
        n_list = 0;
    } else if (what < 5) {
        evict(bn_rng_below(r, 4));
    } else if (t->seq.n_tokens == 0 && t->seq.n_pages == 0) {
        start(t, r, whole_pages);
        if (t->seq.n_tokens == 0) grow(t, r, whole_pages);
    } else if (what < 15) { /* goes on differently, from somewhere before its end */
        bn_kv_truncate(&kv, &t->seq, 1 + bn_rng_below(r, t->seq.n_tokens));
        for (uint32_t i = t->seq.n_tokens; i < CTX; i++) t->tokens[i] = (int32_t)bn_rng_below(r, 3);
    } else if (what < 20 || t->seq.n_tokens == t->n) {
        if (bn_rng_below(r, 4)) add(t, true, whole_pages), seen.ended++;
        check_rows(t);
        bn_kv_release(&kv, &t->seq);
    } else {
        grow(t, r, whole_pages);
    }
    use_pinned();
    check_all();
}

static void random_texts_are_found(uint32_t n_pages, bool whole_pages, uint64_t seed)
{
    struct bn_rng r = {seed};
    open_all(n_pages, whole_pages);
    memset(&seen, 0, sizeof seen);
    n_list = 0;
    long before = n_allocs;
    for (int i = 0; i < 6000; i++) random_step(&r, whole_pages);
    assert_int_equal(n_allocs, before);
    assert_true(seen.matched > 100 && seen.evicted > 500 && seen.ended > 500);
    assert_true(seen.replaced > 5 || whole_pages);
    assert_true(seen.dropped > 0 || n_pages > SEQS * CTX / PAGE);
    close_all();
}

static void random_texts_are_found_as_in_a_list(void **state)
{
    (void)state;
    random_texts_are_found(60, false, 1); /* room for all that run and some more */
    random_texts_are_found(24, false, 2); /* too little for all */
    random_texts_are_found(9, false, 3);
    random_texts_are_found(60, true, 4);
    random_texts_are_found(14, true, 5);
}

/* ---- single promises */

static void count_up(struct text *t, uint32_t n, int32_t first)
{
    t->n = n;
    for (uint32_t i = 0; i < CTX; i++) t->tokens[i] = first + (int32_t)i;
}

static void finish(struct text *t)
{
    assert_true(compute(t, t->n));
    bn_prefix_add(prefix, 0, t->tokens, t->n, &t->seq, true);
    bn_kv_release(&kv, &t->seq);
}

static void a_second_turn_reads_nothing_again(void **state)
{
    (void)state;
    open_all(20, false);
    struct text *t = &texts[0];
    count_up(t, 3 * PAGE + 7, 5);
    finish(t);
    assert_int_equal(kv.n_free, 20 - 4);
    uint32_t first = 3 * PAGE + 7;
    t->n = first + 40;
    assert_int_equal(bn_prefix_match(prefix, 0, t->tokens, t->n, &t->seq), first);
    finish(t); /* its full page takes the place of the one that was not full */
    assert_int_equal(bn_prefix_stats(prefix)->pages, 5);
    assert_int_equal(kv.n_free, 20 - 5);
    assert_int_equal(bn_prefix_peek(prefix, 0, t->tokens, t->n),
                     t->n - 1); /* the last is computed */
    assert_int_equal(bn_prefix_peek(prefix, 0, t->tokens, 1), 0);
    assert_int_equal(bn_prefix_peek(prefix, 0, t->tokens, 0), 0);
    const struct bn_prefix_stats *s = bn_prefix_stats(prefix);
    assert_true(s->queries == 1 && s->hits == 1);
    assert_true(s->queried_tokens == first + 40 && s->hit_tokens == first);
    close_all();
}

static void running_texts_are_shared(void **state)
{
    (void)state;
    open_all(20, false);
    struct text *a = &texts[0], *b = &texts[1];
    count_up(a, 4 * PAGE, 5);
    count_up(b, 4 * PAGE, 5);
    assert_true(compute(a, 2 * PAGE + 3));
    bn_prefix_add(prefix, 0, a->tokens, 2 * PAGE + 3, &a->seq, false);
    assert_int_equal(bn_prefix_match(prefix, 0, b->tokens, b->n, &b->seq), 2 * PAGE);
    assert_int_equal(bn_prefix_evictable(prefix), 0);
    assert_int_equal(bn_prefix_evict(prefix, 5), 0);
    assert_true(compute(a, a->n) && compute(b, b->n));
    bn_prefix_add(prefix, 0, b->tokens, b->n, &b->seq, false); /* b is first */
    bn_prefix_add(prefix, 0, a->tokens, a->n, &a->seq, false);
    assert_int_equal(bn_prefix_stats(prefix)->pages, 4);
    bn_kv_release(&kv, &a->seq);
    assert_int_equal(kv.n_free, 20 - 4); /* what a computed once more is not kept */
    assert_int_equal(bn_prefix_evictable(prefix), 0);
    bn_kv_release(&kv, &b->seq);
    assert_int_equal(bn_prefix_evictable(prefix), 4);
    close_all();
}

static void a_page_held_below_keeps_those_above(void **state)
{
    (void)state;
    open_all(20, false);
    struct text *a = &texts[0], *b = &texts[1];
    count_up(a, PAGE, 5);
    count_up(b, 2 * PAGE, 5);
    assert_true(compute(a, a->n) && compute(b, b->n));
    bn_prefix_add(prefix, 0, a->tokens, a->n, &a->seq, true);
    bn_prefix_add(prefix, 0, b->tokens, b->n, &b->seq,
                  true); /* its second page, behind a's first */
    bn_kv_release(&kv, &a->seq);
    assert_int_equal(bn_prefix_evictable(prefix), 0); /* nobody holds a's page, but b's is below */
    assert_int_equal(bn_prefix_evict(prefix, 2), 0);
    bn_kv_release(&kv, &b->seq);
    assert_int_equal(bn_prefix_evictable(prefix), 2);
    assert_int_equal(bn_prefix_evict(prefix, 1), 1);
    assert_int_equal(bn_prefix_peek(prefix, 0, b->tokens, 2 * PAGE), PAGE);
    bn_prefix_clear(prefix);
    assert_int_equal(bn_prefix_stats(prefix)->pages, 0);
    assert_int_equal(kv.n_free, 20);
    close_all();
}

/* Thousands of texts part in their first page. */
static void many_siblings_are_told_apart(void **state)
{
    (void)state;
    enum { N = 3000 };
    struct bn_rng r = {11};
    open_all(N, false);
    n_list = 0;
    struct text *t = &texts[0];
    for (uint32_t i = 0; i < N; i++) {
        for (uint32_t k = 0; k < PAGE; k++)
            t->tokens[k] = k < 16 ? 1 : (int32_t)bn_rng_below(&r, 4);
        t->n = PAGE - bn_rng_below(&r, 4);
        if (!compute(t, t->n)) break;
        bn_prefix_add(prefix, 0, t->tokens, t->n, &t->seq, true);
        list_add(t, t->n, true, false);
        now++;
        bn_kv_release(&kv, &t->seq);
    }
    assert_true(n_list > N / 2);
    for (uint32_t i = 0; i < 2 * N; i++) {
        uint32_t gone = bn_rng_below(&r, n_list);
        for (uint32_t k = 16; k < PAGE; k++) t->tokens[k] = (int32_t)bn_rng_below(&r, 4);
        assert_int_equal(bn_prefix_peek(prefix, 0, t->tokens, PAGE + 1),
                         list_longest(t, PAGE + 1, false));
        memcpy(t->tokens, list[gone].tokens, PAGE * sizeof *t->tokens);
        assert_int_equal(bn_prefix_peek(prefix, 0, t->tokens, list[gone].n + 1), list[gone].n);
        if (i % 4) continue;
        assert_int_equal(bn_prefix_evict(prefix, 1), 1);
        for (uint32_t k = gone = 0; k < n_list; k++)
            if (list[k].used < list[gone].used) gone = k;
        assert_int_equal(kv.holders[list[gone].page], 0);
        list[gone] = list[--n_list];
    }
    close_all();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_second_turn_reads_nothing_again),
        cmocka_unit_test(running_texts_are_shared),
        cmocka_unit_test(a_page_held_below_keeps_those_above),
        cmocka_unit_test(random_texts_are_found_as_in_a_list),
        cmocka_unit_test(many_siblings_are_told_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
