/* SPDX-License-Identifier: Apache-2.0
 * Sizes between programs and libraries of different versions, at their edges. program.c in tests/abi
 * has the same for the whole library. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "api/sized.h"

/* As the library knows it; programs may have less or more. The first version ended with b. */
struct known {
    size_t size;
    uint64_t a, b;
    uint64_t c;
};
static const struct bn_sized type = {"known", offsetof(struct known, c), sizeof(struct known)};

/* A program's struct: as many words as it says, and what must not be touched behind them. */
enum { WORDS = 8, GUARD = 0x5a };
struct program {
    union {
        size_t size;
        uint64_t word[WORDS];
        unsigned char byte[WORDS * 8];
    };
};

static struct program program_of(size_t size)
{
    struct program p;
    memset(&p, GUARD, sizeof p);
    memset(&p, 0, size);
    p.size = size;
    return p;
}

static void is_untouched(const struct program *p, size_t from)
{
    for (size_t i = from; i < sizeof p->byte; i++) assert_int_equal(p->byte[i], GUARD);
}

static void input_of_every_size(void **state)
{
    (void)state;
    for (size_t size = 0; size <= sizeof(struct program); size++) {
        struct program p = program_of(size < 8 ? 8 : size);
        struct known got = {.size = sizeof got, .a = 1, .b = 2, .c = 3};
        bitnet_error err = {0};
        p.size = size;
        if (size >= 16) p.word[1] = 10;
        bitnet_status s = bn_sized_read(&type, &got, &p, &err);
        assert_int_equal(got.size, sizeof got);
        if (size < type.first) { /* nothing is read */
            assert_int_equal(s, BITNET_E_ARG);
            assert_non_null(strstr(err.text, "known.size is "));
            assert_true(got.a == 1 && got.b == 2 && got.c == 3);
            continue;
        }
        assert_int_equal(s, BITNET_OK);
        assert_true(got.a == 10 && got.b == 0);
        assert_int_equal(got.c, size >= sizeof got ? 0 : size > type.first ? got.c : 3);
    }
}

static void input_that_is_not_known(void **state)
{
    (void)state;
    for (size_t at = sizeof(struct known); at < sizeof(struct program); at++) {
        struct program p = program_of(sizeof p);
        struct known got = {.size = sizeof got, .a = 1, .b = 2, .c = 3};
        bitnet_error err = {0};
        p.byte[at] = 1;
        assert_int_equal(bn_sized_read(&type, &got, &p, &err), BITNET_E_UNSUPPORTED);
        assert_non_null(strstr(err.text, "byte "));
        assert_true(got.a == 1 && got.b == 2 && got.c == 3);
        p.size = at; /* what lies behind the size does not count */
        assert_int_equal(bn_sized_read(&type, &got, &p, &err), BITNET_OK);
    }
    struct known got = {.size = sizeof got, .a = 1, .b = 2, .c = 3};
    assert_int_equal(bn_sized_read(&type, &got, NULL, NULL), BITNET_OK);
    assert_true(got.a == 1 && got.b == 2 && got.c == 3);
}

static void output_of_every_size(void **state)
{
    (void)state;
    const struct known from = {.size = sizeof from, .a = 10, .b = 20, .c = 30};
    for (size_t size = 0; size <= sizeof(struct program); size++) {
        struct program p, before;
        memset(&p, GUARD, sizeof p);
        p.size = size;
        before = p;
        bitnet_error err = {0};
        bitnet_status s = bn_sized_write(&type, &p, &from, &err);
        assert_int_equal(p.size, size);
        if (size < type.first) {
            assert_int_equal(s, BITNET_E_ARG);
            assert_memory_equal(&p, &before, sizeof p);
            continue;
        }
        assert_int_equal(s, BITNET_OK);
        assert_true(p.word[1] == 10 && p.word[2] == 20);
        if (size >= sizeof from) assert_int_equal(p.word[3], 30);
        for (size_t i = sizeof from; i < size; i++) assert_int_equal(p.byte[i], 0);
        is_untouched(&p, size);
    }
}

/* A size that nobody has set may be anything; a large one is not followed. */
static void a_size_that_was_never_set(void **state)
{
    (void)state;
    const struct known from = {.size = sizeof from};
    struct known got = {.size = sizeof got, .a = 1};
    for (size_t size = BN_SIZE_ABSURD; size; size <<= 1) {
        bitnet_error err;
        struct program p = program_of(sizeof p), before;
        p.size = size;
        before = p;
        assert_int_equal(bn_sized_read(&type, &got, &p, &err), BITNET_E_ARG);
        assert_int_equal(bn_sized_write(&type, &p, &from, &err), BITNET_E_ARG);
        assert_non_null(strstr(err.text, "not set"));
        assert_memory_equal(&p, &before, sizeof p);
        assert_int_equal(got.a, 1);
    }
}

static void defaults_of_every_size(void **state)
{
    (void)state;
    for (size_t size = 0; size <= sizeof(bitnet_sampling) + 16; size++) {
        unsigned char room[sizeof(bitnet_sampling) + 24];
        bitnet_sampling s;
        memset(room, GUARD, sizeof room);
        bitnet_sampling_init((void *)room, size);
        memcpy(&s, room, sizeof s);
        for (size_t i = size; i < sizeof room; i++) assert_int_equal(room[i], GUARD);
        if (size < sizeof size) continue;
        assert_int_equal(s.size, size);
        if (size < sizeof s) continue;
        assert_true(s.temperature > 0 && s.top_k > 0 && s.reserved[0] == 0);
        for (size_t i = sizeof s; i < size; i++) assert_int_equal(room[i], 0);
    }
}

/* No struct may begin with anything but its size: the table has them all, and reads that place. */
static void sizes_come_first(void **state)
{
    (void)state;
#define COMES_FIRST(name, last)                       \
    assert_int_equal(offsetof(name, size), 0);        \
    assert_int_equal((size_t)BN_FIRST_##name % 8, 0); \
    assert_true((size_t)BN_FIRST_##name <= sizeof(name));
    BN_SIZED_STRUCTS(COMES_FIRST)
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(input_of_every_size),       cmocka_unit_test(input_that_is_not_known),
        cmocka_unit_test(output_of_every_size),      cmocka_unit_test(defaults_of_every_size),
        cmocka_unit_test(a_size_that_was_never_set), cmocka_unit_test(sizes_come_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
