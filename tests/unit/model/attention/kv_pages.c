/* SPDX-License-Identifier: Apache-2.0
 * Holders of KV pages: shared pages are copied before they are written to, pages that nobody holds
 * are free, and a refusal changes nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "model/attention/kv.h"

enum { PAGES = 12, SEQS = 5, PAGE = BN_ATTN_BLOCK, CTX = 6 * PAGE };

static struct bn_kv kv;
static struct bn_kv_seq seqs[SEQS];

static int open_cache(void **state)
{
    (void)state;
    const struct bn_config c = {.n_layer = 2, .n_head_kv = 3, .head_dim = 4};
    if (bn_kv_open_uniform(&kv, &c, (struct bn_kv_types){BITNET_KV_F16, BITNET_KV_F16}, PAGES, NULL,
                           NULL))
        return -1;
    for (size_t i = 0; i < kv.bytes; i++) kv.data[i] = (uint8_t)(i * 7 + i / kv.page_bytes);
    for (int i = 0; i < SEQS; i++)
        if (!bn_kv_seq_open(&seqs[i], &kv, CTX)) return -1;
    return 0;
}

static int close_cache(void **state)
{
    (void)state;
    for (int i = 0; i < SEQS; i++) bn_kv_seq_close(&seqs[i]);
    bn_kv_close(&kv);
    return 0;
}

static uint8_t *page_data(uint32_t page) { return bn_kv_head(&kv, 0, page, 0, false); }

static size_t page_bytes(void) { return kv.page_bytes; }

static void store(struct bn_kv_seq *s, uint32_t n_tokens)
{
    assert_true(bn_kv_reserve(&kv, s, n_tokens));
    s->n_tokens = n_tokens;
}

/* Every page counts the sequences that have it, and the free ones are those of nobody. */
static void check_holders(void)
{
    uint32_t held[PAGES] = {0}, n_free = 0;
    for (int i = 0; i < SEQS; i++) {
        assert_true(seqs[i].n_pages >= bn_kv_pages_for(seqs[i].n_tokens));
        for (uint32_t k = 0; k < seqs[i].n_pages; k++) held[seqs[i].pages[k]]++;
    }
    for (uint32_t i = 0; i < PAGES; i++) n_free += held[i] == 0;
    assert_memory_equal(kv.holders, held, sizeof held);
    assert_int_equal(kv.n_free, n_free);
    for (uint32_t i = 0; i < kv.n_free; i++) assert_int_equal(held[kv.free_pages[i]]++, 0);
}

static void a_shared_page_is_copied_before_writing(void **state)
{
    (void)state;
    struct bn_kv_seq *a = &seqs[0], *b = &seqs[1];
    store(a, 2 * PAGE + 20);
    bn_kv_share(&kv, b, a->pages, PAGE + 5); /* ends in the middle of a page of a */
    assert_int_equal(b->n_pages, 2);
    assert_int_equal(b->n_tokens, PAGE + 5);
    check_holders();
    assert_int_equal(bn_kv_need(&kv, b, PAGE + 5), 0); /* nothing is written */
    assert_int_equal(bn_kv_need(&kv, b, PAGE + 6), 1);
    assert_int_equal(bn_kv_need(&kv, b, 2 * PAGE + 1), 2);
    assert_int_equal(bn_kv_need(&kv, a, 2 * PAGE + 21), 0); /* the last page is a's alone */
    store(b, 2 * PAGE + 1);
    assert_int_equal(kv.n_free, PAGES - 5);
    assert_int_equal(b->pages[0], a->pages[0]);
    assert_int_not_equal(b->pages[1], a->pages[1]);
    assert_memory_equal(page_data(b->pages[1]), page_data(a->pages[1]), page_bytes());
    check_holders();
}

static void the_last_holder_writes_in_place(void **state)
{
    (void)state;
    struct bn_kv_seq *a = &seqs[0], *b = &seqs[1];
    store(a, 10);
    bn_kv_share(&kv, b, a->pages, 10);
    bn_kv_release(&kv, a);
    assert_int_equal(a->n_tokens, 0);
    uint32_t page = b->pages[0];
    assert_int_equal(bn_kv_need(&kv, b, 11), 0);
    store(b, 11);
    assert_int_equal(b->pages[0], page);
    check_holders();
}

static void truncating_lets_go(void **state)
{
    (void)state;
    struct bn_kv_seq *a = &seqs[0], *b = &seqs[1];
    store(a, 4 * PAGE);
    bn_kv_share(&kv, b, a->pages, 3 * PAGE);
    bn_kv_truncate(&kv, a, PAGE + 1);
    assert_int_equal(a->n_pages, 2);
    assert_int_equal(kv.n_free, PAGES - 3); /* b keeps the third */
    check_holders();
    uint32_t page = a->pages[1];
    store(a, PAGE + 2); /* over what b reads: not in place */
    assert_int_not_equal(a->pages[1], page);
    assert_int_equal(b->pages[1], page);
    bn_kv_truncate(&kv, a, PAGE);
    assert_int_equal(a->n_pages, 1);
    check_holders();
}

static void a_refusal_changes_nothing(void **state)
{
    (void)state;
    struct bn_kv_seq *a = &seqs[0], *b = &seqs[1], *c = &seqs[2];
    store(a, CTX);
    store(b, 5 * PAGE);
    bn_kv_share(&kv, c, a->pages, PAGE + 1);
    assert_int_equal(kv.n_free, 1);
    assert_false(bn_kv_reserve(&kv, c, 2 * PAGE + 1)); /* the copy and one more */
    assert_int_equal(c->pages[1], a->pages[1]);
    assert_int_equal(c->n_pages, 2);
    assert_true(bn_kv_reserve(&kv, c, 2 * PAGE));
    assert_int_equal(kv.n_free, 0);
    assert_false(bn_kv_reserve(&kv, a, CTX + 1)); /* longer than the sequence may be */
    check_holders();
}

struct told {
    uint32_t n, page;
    bool shared;
};

static void note(void *user, uint32_t page, bool shared)
{
    struct told *t = user;
    *t = (struct told){t->n + 1, page, shared};
}

static void the_second_holder_is_reported(void **state)
{
    (void)state;
    struct told t = {0};
    kv.on_shared = note;
    kv.on_shared_user = &t;
    store(&seqs[0], 1);
    uint32_t page = seqs[0].pages[0];
    assert_int_equal(t.n, 0);
    bn_kv_hold(&kv, page);
    assert_true(t.n == 1 && t.page == page && t.shared);
    bn_kv_share(&kv, &seqs[1], &page, 1);
    bn_kv_release(&kv, &seqs[1]);
    assert_int_equal(t.n, 1); /* a third is nothing new */
    bn_kv_let_go(&kv, page);
    assert_true(t.n == 2 && t.page == page && !t.shared);
    bn_kv_release(&kv, &seqs[0]);
    assert_int_equal(t.n, 2);
    check_holders();
}

static void random_holders_are_counted(void **state)
{
    (void)state;
    struct bn_rng r = {1};
    for (int step = 0; step < 20000; step++) {
        struct bn_kv_seq *s = &seqs[bn_rng_below(&r, SEQS)], *t = &seqs[bn_rng_below(&r, SEQS)];
        switch (bn_rng_below(&r, 4)) {
        case 0: bn_kv_release(&kv, s); break;
        case 1: bn_kv_truncate(&kv, s, bn_rng_below(&r, s->n_tokens + 1)); break;
        case 2:
            if (s->n_pages == 0) bn_kv_share(&kv, s, t->pages, bn_rng_below(&r, t->n_tokens + 1));
            break;
        default: {
            uint32_t n = s->n_tokens + bn_rng_below(&r, CTX - s->n_tokens + 1), free = kv.n_free;
            uint32_t need = bn_kv_need(&kv, s, n);
            assert_int_equal(bn_kv_reserve(&kv, s, n), need <= free);
            assert_int_equal(kv.n_free, need <= free ? free - need : free);
            if (need > free) break;
            if (n > s->n_tokens) /* what is written belongs to it alone */
                for (uint32_t k = s->n_tokens / PAGE; k < s->n_pages; k++)
                    assert_int_equal(kv.holders[s->pages[k]], 1);
            s->n_tokens = n;
        }
        }
        check_holders();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_shared_page_is_copied_before_writing, open_cache,
                                        close_cache),
        cmocka_unit_test_setup_teardown(the_last_holder_writes_in_place, open_cache, close_cache),
        cmocka_unit_test_setup_teardown(truncating_lets_go, open_cache, close_cache),
        cmocka_unit_test_setup_teardown(a_refusal_changes_nothing, open_cache, close_cache),
        cmocka_unit_test_setup_teardown(the_second_holder_is_reported, open_cache, close_cache),
        cmocka_unit_test_setup_teardown(random_holders_are_counted, open_cache, close_cache),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
