/* SPDX-License-Identifier: Apache-2.0
 * Numbers between bounds, digit by digit. Both whole numbers and fractions are strings of digits
 * between two given ones; the expression follows the digits of a bound as long as the text equals
 * it, and is free once it is inside. All numbers have at most 15 significant digits (integers 18),
 * so that a decimal inside the bounds is inside as a double, too. */
#include "text/grammar/json_schema_impl.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { INTEGER_DIGITS = 18, NUMBER_DIGITS = 15 };

static const struct bn_expr *digits(struct bn_schema *s, char lo, char hi, uint32_t min,
                                    uint32_t max)
{
    struct bn_range r = {(uint8_t)lo, (uint8_t)hi};
    return bn_expr_repeat(s->b, bn_expr_class(s->b, &r, lo <= hi), min, max);
}

/* Strings of n digits; fraction: or fewer, the rest being zeros. */
struct between {
    const char *lo, *hi; /* [n] */
    uint32_t n;
    bool fraction;
    bool above, below; /* a fraction's bounds themselves are excluded */
};

static bool zeros(const char *p, uint32_t n)
{
    while (n > 0 && *p == '0') p++, n--;
    return n == 0;
}

/* Whether the digits may stop before digit i. at_lo, at_hi: they equal the bound so far. */
static bool may_stop(const struct between *d, uint32_t i, bool at_lo, bool at_hi)
{
    if (!d->fraction) return i == d->n;
    if (at_lo && (d->above || !zeros(d->lo + i, d->n - i))) return false;
    return !(at_hi && d->below && zeros(d->hi + i, d->n - i));
}

static const struct bn_expr *digits_from(struct bn_schema *s, const struct between *d, uint32_t i,
                                         bool at_lo, bool at_hi)
{
    struct bn_builder *b = s->b;
    if (!at_lo && !at_hi) return digits(s, '0', '9', d->fraction ? 0 : d->n - i, d->n - i);
    struct bn_exprs alts = {0};
    if (may_stop(d, i, at_lo, at_hi)) bn_exprs_add(b, &alts, bn_expr_text(b, ""));
    if (i < d->n) {
        char lo = at_lo ? d->lo[i] : '0', hi = at_hi ? d->hi[i] : '9';
        bool same = at_lo && at_hi && lo == hi;
        if (at_lo)
            bn_exprs_add(b, &alts,
                         BN_SEQ(b, digits(s, lo, lo, 1, 1), digits_from(s, d, i + 1, true, same)));
        if (at_hi && !same)
            bn_exprs_add(b, &alts,
                         BN_SEQ(b, digits(s, hi, hi, 1, 1), digits_from(s, d, i + 1, false, true)));
        lo = (char)(lo + at_lo);
        hi = (char)(hi - at_hi);
        if (lo <= hi)
            bn_exprs_add(
                b, &alts,
                BN_SEQ(b, digits(s, lo, hi, 1, 1), digits_from(s, d, i + 1, false, false)));
    }
    if (alts.n == 0) bn_exprs_add(b, &alts, bn_expr_class(b, NULL, 0));
    return bn_exprs_take(b, &alts, BN_EXPR_ALT);
}

/* Whole numbers lo..hi without sign, by their lengths. */
static const struct bn_expr *naturals(struct bn_schema *s, uint64_t lo, uint64_t hi)
{
    struct bn_exprs alts = {0};
    uint64_t first = 0, last = 9;
    for (uint32_t n = 1; n <= INTEGER_DIGITS; n++) {
        uint64_t from = lo > first ? lo : first, to = hi < last ? hi : last;
        if (from <= to) {
            char a[24], z[24];
            snprintf(a, sizeof a, "%llu", (unsigned long long)from);
            snprintf(z, sizeof z, "%llu", (unsigned long long)to);
            struct between d = {.lo = a, .hi = z, .n = n};
            bn_exprs_add(s->b, &alts, digits_from(s, &d, 0, true, true));
        }
        first = last + 1;
        last = 10 * last + 9;
    }
    if (alts.n == 0) bn_exprs_add(s->b, &alts, bn_expr_class(s->b, NULL, 0));
    return bn_exprs_take(s->b, &alts, BN_EXPR_ALT);
}

/* ------------------------------------------------------------------ bounds */

struct bound {
    bool given, strict;
    double value;
};

static bool read_bound(struct bn_schema *s, const struct bn_json *schema, const char *key,
                       bool strict, bool lower, struct bound *b)
{
    const struct bn_json *v = bn_json_get(schema, key);
    if (!v) return true;
    if (!bn_json_is_number(v))
        return bn_schema_fail(s, BITNET_E_FORMAT, "'%s' is not a number", key) != NULL;
    double x = bn_json_number(v);
    if (fabs(x) >= 1e15)
        return bn_schema_fail(s, BITNET_E_LIMIT, "'%s' is %g, the most is 1e15", key, x) != NULL;
    bool tighter = !b->given || (lower ? x > b->value : x < b->value) || (x == b->value && strict);
    if (tighter) *b = (struct bound){true, strict, x};
    return true;
}

static bool read_bounds(struct bn_schema *s, const struct bn_json *schema, struct bound *lo,
                        struct bound *hi)
{
    return read_bound(s, schema, "minimum", false, true, lo) &&
           read_bound(s, schema, "exclusiveMinimum", true, true, lo) &&
           read_bound(s, schema, "maximum", false, false, hi) &&
           read_bound(s, schema, "exclusiveMaximum", true, false, hi);
}

const struct bn_expr *bn_schema_integer(struct bn_schema *s, const struct bn_json *schema)
{
    const int64_t most = 999999999999999999;
    struct bn_builder *b = s->b;
    struct bound lo = {0}, hi = {0};
    if (!read_bounds(s, schema, &lo, &hi)) return NULL;
    if (schema && !lo.given && !hi.given) return bn_schema_shared(s, BN_RULE_INTEGER);
    int64_t from = lo.given ? (int64_t)ceil(lo.value) : -most;
    int64_t to = hi.given ? (int64_t)floor(hi.value) : most;
    if (lo.strict && (double)from == lo.value) from++;
    if (hi.strict && (double)to == hi.value) to--;
    if (from > to) return bn_schema_fail(s, BITNET_E_FORMAT, "no integer lies between the bounds");
    struct bn_exprs alts = {0};
    if (to >= 0) bn_exprs_add(b, &alts, naturals(s, from > 0 ? (uint64_t)from : 0, (uint64_t)to));
    if (from < 0)
        bn_exprs_add(b, &alts,
                     BN_SEQ(b, bn_expr_text(b, "-"),
                            naturals(s, to < 0 ? (uint64_t)-to : 1, (uint64_t)-from)));
    return bn_exprs_take(b, &alts, BN_EXPR_ALT);
}

/* ------------------------------------------------------------------ decimals */

/* A bound of the magnitude: whole part and NUMBER_DIGITS digits behind the point. */
struct decimal {
    uint64_t whole;
    char fraction[NUMBER_DIGITS + 1];
    uint32_t n; /* digits behind the point that count */
    bool strict;
};

/* The shortest decimal that is this double. */
static bool decimal_of(struct bn_schema *s, double x, bool strict, struct decimal *d)
{
    char text[40];
    int n = 0;
    do snprintf(text, sizeof text, "%.*f", n, x);
    while (strtod(text, NULL) != x && ++n <= NUMBER_DIGITS);
    if (n > NUMBER_DIGITS)
        return bn_schema_fail(s, BITNET_E_UNSUPPORTED,
                              "a bound with more than %d digits behind the point",
                              NUMBER_DIGITS) != NULL;
    d->whole = strtoull(text, NULL, 10);
    d->n = (uint32_t)n;
    d->strict = strict;
    memset(d->fraction, '0', NUMBER_DIGITS);
    if (n > 0) memcpy(d->fraction, strchr(text, '.') + 1, (size_t)n);
    return true;
}

/* What may follow a whole part: nothing, or a point and digits. NULL: no bound on that side. */
static const struct bn_expr *fraction(struct bn_schema *s, const struct decimal *lo,
                                      const struct decimal *hi, uint32_t n)
{
    struct bn_builder *b = s->b;
    static const char none[] = "000000000000000";
    struct between d = {.lo = lo ? lo->fraction : none,
                        .hi = hi ? hi->fraction : none,
                        .n = n,
                        .fraction = true,
                        .above = lo && lo->strict,
                        .below = hi && hi->strict};
    struct bn_exprs alts = {0};
    if (may_stop(&d, 0, lo, hi)) bn_exprs_add(b, &alts, bn_expr_text(b, ""));
    /* at least one digit: the first is taken apart, as if a bound's */
    for (char c = '0'; c <= '9' && n > 0; c++) {
        if ((lo && c < d.lo[0]) || (hi && c > d.hi[0])) continue;
        bool at_lo = lo && c == d.lo[0], at_hi = hi && c == d.hi[0];
        bn_exprs_add(b, &alts,
                     BN_SEQ(b, bn_expr_text(b, "."), digits(s, c, c, 1, 1),
                            digits_from(s, &d, 1, at_lo, at_hi)));
    }
    if (alts.n == 0) bn_exprs_add(b, &alts, bn_expr_class(b, NULL, 0));
    return bn_exprs_take(b, &alts, BN_EXPR_ALT);
}

/* Decimals without sign between two bounds. */
static const struct bn_expr *magnitudes(struct bn_schema *s, const struct decimal *lo,
                                        const struct decimal *hi)
{
    struct bn_builder *b = s->b;
    char whole[24];
    uint32_t n = NUMBER_DIGITS;
    n -= (uint32_t)snprintf(whole, sizeof whole, "%llu", (unsigned long long)hi->whole);
    if (n < lo->n || n < hi->n)
        return bn_schema_fail(s, BITNET_E_UNSUPPORTED, "bounds with more than %d digits",
                              NUMBER_DIGITS);
    if (lo->whole > hi->whole) return bn_expr_class(b, NULL, 0);
    if (lo->whole == hi->whole)
        return BN_SEQ(b, naturals(s, lo->whole, lo->whole), fraction(s, lo, hi, n));
    const struct bn_expr *between = bn_expr_class(b, NULL, 0);
    if (lo->whole + 1 < hi->whole)
        between = BN_SEQ(b, naturals(s, lo->whole + 1, hi->whole - 1), fraction(s, NULL, NULL, n));
    return BN_ALT(b, BN_SEQ(b, naturals(s, lo->whole, lo->whole), fraction(s, lo, NULL, n)),
                  between, BN_SEQ(b, naturals(s, hi->whole, hi->whole), fraction(s, NULL, hi, n)));
}

/* Any number: bounded in length, so that no model can go on for ever. */
static const struct bn_expr *any_number(struct bn_schema *s)
{
    struct bn_builder *b = s->b;
    const struct bn_expr *sign = bn_expr_repeat(b, bn_expr_text(b, "-"), 0, 1);
    const struct bn_expr *whole =
        BN_ALT(b, bn_expr_text(b, "0"),
               BN_SEQ(b, digits(s, '1', '9', 1, 1), digits(s, '0', '9', 0, NUMBER_DIGITS - 1)));
    const struct bn_expr *point =
        BN_SEQ(b, bn_expr_text(b, "."), digits(s, '0', '9', 1, NUMBER_DIGITS));
    const struct bn_expr *power =
        BN_SEQ(b, BN_ALT(b, bn_expr_text(b, "e"), bn_expr_text(b, "E")),
               bn_expr_repeat(b, BN_ALT(b, bn_expr_text(b, "+"), bn_expr_text(b, "-")), 0, 1),
               digits(s, '0', '9', 1, 2));
    return BN_SEQ(b, sign, whole, bn_expr_repeat(b, point, 0, 1), bn_expr_repeat(b, power, 0, 1));
}

const struct bn_expr *bn_schema_number(struct bn_schema *s, const struct bn_json *schema)
{
    const double most = 999999999999; /* where no bound is given on that side */
    struct bn_builder *b = s->b;
    struct bound lo = {0}, hi = {0};
    struct decimal a, z;
    if (!schema) return any_number(s);
    if (!read_bounds(s, schema, &lo, &hi)) return NULL;
    if (!lo.given && !hi.given) return bn_schema_shared(s, BN_RULE_NUMBER);
    if (!lo.given) lo.value = hi.value < -most ? hi.value - 1 : -most;
    if (!hi.given) hi.value = lo.value > most ? lo.value + 1 : most;
    struct bn_exprs alts = {0};
    if (hi.value >= 0 && decimal_of(s, fmax(lo.value, 0), lo.strict && lo.value >= 0, &a) &&
        decimal_of(s, hi.value, hi.strict, &z))
        bn_exprs_add(b, &alts, magnitudes(s, &a, &z));
    if (lo.value < 0 && decimal_of(s, fmax(-hi.value, 0), hi.strict && hi.value <= 0, &a) &&
        decimal_of(s, -lo.value, lo.strict, &z))
        bn_exprs_add(b, &alts, BN_SEQ(b, bn_expr_text(b, "-"), magnitudes(s, &a, &z)));
    return bn_exprs_take(b, &alts, BN_EXPR_ALT);
}
