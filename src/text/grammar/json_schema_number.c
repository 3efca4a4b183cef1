/* SPDX-License-Identifier: Apache-2.0
 * Numbers: between bounds, and multiples. A number is read as an integer of units of 10^-k, digit by
 * digit; a state of the graph knows how many digits are to come, whether those so far equal a bound's,
 * and the class of their remainder. Numbers have at most 15 significant digits (integers 19), so that
 * a decimal inside the bounds is inside as a double, too; bounds are rounded inwards to that. */
#include "text/grammar/json_schema_impl.h"

#include "base/map.h"
#include "base/number.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    INTEGER_DIGITS = 19,
    NUMBER_DIGITS = 15,
    MAX_MODULUS = 1 << 17,
    MAX_CLASSES = 6000 /* of remainders, times digits */
};

/* ------------------------------------------------------------------ remainders */

/* Remainders by what they come to with the digits that follow; those that come to the same are one
 * class. Class 0 is that of 0. */
struct classes {
    uint32_t n;
    uint32_t *next; /* [n][10] */
};

/* One round of splitting: a remainder's class and those of its ten successors, in new numbers. */
static uint32_t split_classes(uint32_t modulus, const uint32_t *old, uint32_t *fresh,
                              uint32_t (*keys)[11])
{
    struct bn_map map;
    uint32_t n = 0;
    bool ok = bn_map_init(&map, 64);
    for (uint32_t r = 0; ok && r < modulus; r++) {
        bool known = false;
        fresh[r] = n;
        keys[r][0] = old[r];
        for (uint32_t c = 0; c < 10; c++) keys[r][1 + c] = old[((uint64_t)r * 10 + c) % modulus];
        ok = bn_map_add(&map, (const char *)keys[r], sizeof keys[r], &fresh[r], &known);
        n += !known;
    }
    bn_map_free(&map);
    return ok ? n : 0;
}

static bool find_classes(struct bn_schema *s, uint32_t modulus, struct classes *out)
{
    struct bn_builder *b = s->b;
    uint32_t *of = bn_calloc(2 * (size_t)modulus, sizeof *of), *fresh = of ? of + modulus : NULL;
    uint32_t(*keys)[11] = bn_calloc(modulus, sizeof *keys);
    uint32_t n = modulus > 1 ? 2 : 1, before = 0;
    for (uint32_t r = 1; of && r < modulus; r++) of[r] = 1;
    while (of && keys && n > before) {
        before = n;
        n = split_classes(modulus, of, fresh, keys);
        memcpy(of, fresh, modulus * sizeof *of);
    }
    free(keys);
    bool ok = of && keys && n > 0;
    out->n = n;
    out->next = ok ? bn_arena_alloc(&b->arena, 10 * (size_t)n * sizeof *out->next) : NULL;
    for (uint32_t r = 0; out->next && r < modulus; r++)
        for (uint32_t c = 0; c < 10; c++)
            out->next[10 * of[r] + c] = of[((uint64_t)r * 10 + c) % modulus];
    free(of);
    return out->next || bn_builder_nomem(b);
}

/* ------------------------------------------------------------------ digits */

/* Where a text is; all bytes count as a key. Once it is inside the bounds, its length does not
 * matter any more. */
struct place {
    uint32_t class; /* of the remainder */
    uint8_t left;   /* digits of the whole part to come */
    uint8_t done;   /* digits of the fraction that are there */
    uint8_t length; /* of the whole part; inside the bounds: 0 */
    uint8_t flags;
};
enum { AT_LO = 1, AT_HI = 2, BEHIND_POINT = 4, BEGIN = 8 };

struct digits {
    struct bn_schema *s;
    uint64_t lo, hi; /* in units */
    uint32_t k;      /* digits behind the point, at most */
    uint32_t width;  /* digits of the whole part, at most */
    const struct classes *classes;
    struct bn_map states;
    struct bn_edges edges;
    struct place **places; /* [n] of states */
    bool *final;
    size_t n, place_room, final_room;
};

static uint64_t power(uint32_t n)
{
    uint64_t v = 1;
    while (n-- > 0) v *= 10;
    return v;
}

static uint32_t state_of(struct digits *d, struct place p)
{
    struct bn_builder *b = d->s->b;
    if (!(p.flags & (AT_LO | AT_HI | BEGIN))) p.length = 0;
    struct place *key = bn_arena_alloc(&b->arena, sizeof *key);
    uint32_t state = (uint32_t)d->n;
    bool known = false;
    if (!key || !bn_grow((void **)&d->places, &d->place_room, d->n + 1, sizeof *d->places) ||
        !bn_grow((void **)&d->final, &d->final_room, d->n + 1, sizeof *d->final)) {
        bn_builder_nomem(b);
        return 0;
    }
    *key = p;
    if (!bn_map_add(&d->states, (const char *)key, sizeof *key, &state, &known))
        bn_builder_nomem(b);
    else if (!known) d->places[d->n++] = key;
    return state;
}

/* Bounds of the texts whose whole part has so many digits; false: there are none. */
static bool bounds_of(const struct digits *d, uint32_t length, uint64_t *lo, uint64_t *hi)
{
    uint64_t first = length > 1 ? power(length - 1 + d->k) : 0, last = power(length + d->k) - 1;
    *lo = d->lo > first ? d->lo : first;
    *hi = d->hi < last ? d->hi : last;
    return *lo <= *hi;
}

/* What digit c leads to from p; false: nowhere. */
static bool after_digit(const struct digits *d, struct place *p, uint32_t c)
{
    uint64_t lo = 0, hi = 0;
    uint32_t rest = p->left + d->k - p->done - 1; /* digits to come after this one */
    if (p->flags & (AT_LO | AT_HI)) {
        bounds_of(d, p->length, &lo, &hi);
        uint32_t low = (uint32_t)(lo / power(rest) % 10), high = (uint32_t)(hi / power(rest) % 10);
        if ((p->flags & AT_LO && c < low) || (p->flags & AT_HI && c > high)) return false;
        if (c != low) p->flags &= (uint8_t)~AT_LO;
        if (c != high) p->flags &= (uint8_t)~AT_HI;
    }
    p->flags &= (uint8_t) ~(BEHIND_POINT | BEGIN);
    p->class = d->classes->next[10 * p->class + c];
    if (p->left > 0) p->left--;
    else p->done++;
    return true;
}

/* Whether the text may end here: as if zeros came. */
static bool may_end(const struct digits *d, struct place p)
{
    if (p.left > 0 || p.flags & (BEHIND_POINT | BEGIN)) return false;
    while (p.done < d->k)
        if (!after_digit(d, &p, 0)) return false;
    return p.class == 0;
}

static void add_digits(struct digits *d, uint32_t from, const struct place *p)
{
    struct bn_builder *b = d->s->b;
    uint32_t to[10];
    for (uint32_t c = 0; c < 10; c++) {
        struct place next = *p;
        to[c] = after_digit(d, &next, c) ? state_of(d, next) : UINT32_MAX;
    }
    for (uint32_t c = 0; c < 10;) {
        uint32_t first = c;
        while (c < 10 && to[c] == to[first]) c++;
        struct bn_range r = {'0' + first, '0' + c - 1};
        if (to[first] != UINT32_MAX)
            bn_edges_add(b, &d->edges, from, to[first], bn_expr_class(b, &r, 1));
    }
}

static void add_state(struct digits *d, uint32_t state)
{
    struct bn_builder *b = d->s->b;
    struct place p = *d->places[state];
    d->final[state] = may_end(d, p);
    if (p.flags & BEGIN) {
        uint64_t lo, hi;
        for (uint32_t n = 1; n <= d->width; n++) {
            struct place start = {.left = (uint8_t)n, .length = (uint8_t)n, .flags = AT_LO | AT_HI};
            if (bounds_of(d, n, &lo, &hi)) add_digits(d, state, &start);
        }
        return;
    }
    if (p.left > 0 || p.done > 0 || p.flags & BEHIND_POINT) {
        if (p.left > 0 || p.done < d->k) add_digits(d, state, &p);
    } else if (d->k > 0) {
        p.flags |= BEHIND_POINT;
        bn_edges_add(b, &d->edges, state, state_of(d, p), bn_expr_text(b, "."));
    }
}

/* Numbers without sign from lo to hi units of 10^-k whose units are a multiple. */
static const struct bn_expr *magnitudes(struct bn_schema *s, uint64_t lo, uint64_t hi, uint32_t k,
                                        const struct classes *classes)
{
    struct digits d = {.s = s, .lo = lo, .hi = hi, .k = k, .classes = classes};
    struct bn_builder *b = s->b;
    if (lo > hi) return bn_expr_class(b, NULL, 0);
    for (uint64_t v = hi / power(k); v > 0 || d.width == 0; v /= 10) d.width++;
    if (!bn_map_init(&d.states, 64)) bn_builder_nomem(b);
    if (b->status == BITNET_OK) state_of(&d, (struct place){.flags = BEGIN});
    for (uint32_t i = 0; i < d.n && b->status == BITNET_OK; i++) add_state(&d, i);
    const struct bn_expr *e = bn_edges_take(b, &d.edges, d.final, (uint32_t)d.n);
    bn_map_free(&d.states);
    free(d.places);
    free(d.final);
    return e;
}

/* ------------------------------------------------------------------ bounds */

struct bound {
    bool given, strict;
    double value;
    int64_t whole; /* the same, exactly, if is_whole */
    bool is_whole;
};

static void read_bound(const struct bn_json *schema, const char *key, bool strict, bool lower,
                       struct bound *b)
{
    const struct bn_json *v = bn_json_get(schema, key);
    if (!v) return;
    struct bound x = {true, strict, bn_json_number(v), bn_json_integer(v), bn_json_is_int(v)};
    bool tighter =
        !b->given || (lower ? x.value > b->value : x.value < b->value) ||
        (x.value == b->value && (strict || (x.is_whole && b->is_whole &&
                                            (lower ? x.whole > b->whole : x.whole < b->whole))));
    if (tighter) *b = x;
}

static void read_bounds(const struct bn_json *schema, struct bound *lo, struct bound *hi)
{
    read_bound(schema, "minimum", false, true, lo);
    read_bound(schema, "exclusiveMinimum", true, true, lo);
    read_bound(schema, "maximum", false, false, hi);
    read_bound(schema, "exclusiveMaximum", true, false, hi);
}

/* ------------------------------------------------------------------ multiples */

/* A positive decimal: units of 10^-k. */
static bool read_multiple(struct bn_schema *s, const struct bn_json *schema, uint64_t *units,
                          uint32_t *k)
{
    const struct bn_json *v = bn_json_get(schema, "multipleOf");
    char text[BN_NUMBER_BYTES];
    *units = 0;
    *k = 0;
    if (!v) return true;
    double x = bn_json_number(v);
    if (!(x > 0))
        return bn_schema_fail(s, BITNET_E_FORMAT, "'multipleOf' is not a number above 0") != NULL;
    int n = x < 1e15 ? bn_number_text(text, 'f', 0, NUMBER_DIGITS, x) : NUMBER_DIGITS + 1;
    if (n > NUMBER_DIGITS)
        return bn_schema_fail(s, BITNET_E_UNSUPPORTED,
                              "'multipleOf' is %g; a decimal of at most %d digits can be enforced",
                              x, NUMBER_DIGITS) != NULL;
    for (const char *p = text; *p; p++)
        if (*p >= '0' && *p <= '9') *units = 10 * *units + (uint64_t)(*p - '0');
    *k = (uint32_t)n;
    return true;
}

static uint64_t common(uint64_t a, uint64_t b)
{
    while (b) {
        uint64_t r = a % b;
        a = b;
        b = r;
    }
    return a;
}

/* Remainders by `units`, and how many digits they leave room for. */
static bool multiples(struct bn_schema *s, uint64_t units, struct classes *c, uint32_t *digits)
{
    if (units > MAX_MODULUS)
        return bn_schema_fail(s, BITNET_E_UNSUPPORTED,
                              "'multipleOf' is too fine or too large to be enforced: %llu units of "
                              "its last digit, the most is %d",
                              (unsigned long long)units, MAX_MODULUS) != NULL;
    if (!find_classes(s, (uint32_t)units, c)) return false;
    uint32_t most = MAX_CLASSES / c->n, need = 1;
    for (uint64_t v = units; v >= 10; v /= 10) need++;
    if (most < need + 1 && c->n > 1)
        return bn_schema_fail(s, BITNET_E_UNSUPPORTED,
                              "'multipleOf' needs %u remainders at %u digits, the most is %d", c->n,
                              need + 1, MAX_CLASSES) != NULL;
    if (c->n > 1 && most < *digits) *digits = most;
    return true;
}

/* From -hi to hi, or what is between, both signs; in units. */
struct span {
    bool negative, positive;    /* there are such numbers; 0 counts as positive */
    uint64_t least[2], most[2]; /* magnitudes: of positive ones, of negative ones */
};

static const struct bn_expr *signed_numbers(struct bn_schema *s, const struct span *v, uint32_t k,
                                            const struct classes *c)
{
    struct bn_builder *b = s->b;
    struct bn_exprs alts = {0};
    if (v->positive) bn_exprs_add(b, &alts, magnitudes(s, v->least[0], v->most[0], k, c));
    if (v->negative)
        bn_exprs_add(b, &alts,
                     BN_SEQ(b, bn_expr_text(b, "-"), magnitudes(s, v->least[1], v->most[1], k, c)));
    if (alts.n == 0) return bn_schema_never(s, "no number lies between the bounds");
    return bn_exprs_take(b, &alts, BN_EXPR_ALT);
}

/* ------------------------------------------------------------------ integers */

/* The smallest integer that a lower bound allows; clamped to 64 bits. */
static int64_t least_integer(const struct bound *b)
{
    int64_t v = b->is_whole           ? b->whole
                : b->value >= 0x1p63  ? INT64_MAX
                : b->value <= -0x1p63 ? INT64_MIN
                                      : (int64_t)ceil(b->value);
    bool equal = b->is_whole || (double)v == b->value;
    return b->strict && equal && v < INT64_MAX ? v + 1 : v;
}

static int64_t greatest_integer(const struct bound *b)
{
    int64_t v = b->is_whole           ? b->whole
                : b->value >= 0x1p63  ? INT64_MAX
                : b->value <= -0x1p63 ? INT64_MIN
                                      : (int64_t)floor(b->value);
    bool equal = b->is_whole || (double)v == b->value;
    return b->strict && equal && v > INT64_MIN ? v - 1 : v;
}

static uint64_t magnitude(int64_t v) { return v < 0 ? 0 - (uint64_t)v : (uint64_t)v; }

const struct bn_expr *bn_schema_integer(struct bn_schema *s, const struct bn_json *schema)
{
    const int64_t usual = 999999999999999999; /* where no bound is given on that side */
    struct bound lo = {0}, hi = {0};
    struct classes c;
    uint64_t units;
    uint32_t k, digits = INTEGER_DIGITS;
    read_bounds(schema, &lo, &hi);
    if (!read_multiple(s, schema, &units, &k)) return NULL;
    if (schema && !lo.given && !hi.given && !units) return bn_schema_shared(s, BN_RULE_INTEGER);
    if (units) units /= common(units, power(k)); /* what whole numbers are multiples of */
    if (!multiples(s, units ? units : 1, &c, &digits)) return NULL;
    if (units > 1 && digits > NUMBER_DIGITS) digits = NUMBER_DIGITS;
    int64_t most = digits < 18 ? (int64_t)power(digits) - 1 : usual;
    int64_t from = lo.given ? least_integer(&lo) : -most,
            to = hi.given ? greatest_integer(&hi) : most;
    if (lo.given && !hi.given && from > most) to = INT64_MAX;
    if (hi.given && !lo.given && to < -most) from = INT64_MIN;
    if (digits < INTEGER_DIGITS && from < -most && to > -most) from = -most;
    if (digits < INTEGER_DIGITS && to > most && from < most) to = most;
    if (from > to) return bn_schema_never(s, "no integer lies between the bounds");
    struct span v = {.positive = to >= 0, .negative = from < 0};
    v.least[0] = from > 0 ? (uint64_t)from : 0;
    v.most[0] = to > 0 ? (uint64_t)to : 0;
    v.least[1] = to < 0 ? magnitude(to) : 1;
    v.most[1] = magnitude(from);
    return signed_numbers(s, &v, 0, &c);
}

/* ------------------------------------------------------------------ decimals */

/* Any number: bounded in length, so that no model can go on for ever. */
static const struct bn_expr *any_number(struct bn_schema *s)
{
    struct bn_builder *b = s->b;
    const struct bn_range digit = {'0', '9'}, first = {'1', '9'};
    const struct bn_expr *any = bn_expr_class(b, &digit, 1);
    const struct bn_expr *sign = bn_expr_repeat(b, bn_expr_text(b, "-"), 0, 1);
    const struct bn_expr *whole = BN_ALT(
        b, bn_expr_text(b, "0"),
        BN_SEQ(b, bn_expr_class(b, &first, 1), bn_expr_repeat(b, any, 0, NUMBER_DIGITS - 1)));
    const struct bn_expr *point =
        BN_SEQ(b, bn_expr_text(b, "."), bn_expr_repeat(b, any, 1, NUMBER_DIGITS));
    const struct bn_expr *power_of_ten =
        BN_SEQ(b, BN_ALT(b, bn_expr_text(b, "e"), bn_expr_text(b, "E")),
               bn_expr_repeat(b, BN_ALT(b, bn_expr_text(b, "+"), bn_expr_text(b, "-")), 0, 1),
               bn_expr_repeat(b, any, 1, 2));
    return BN_SEQ(b, sign, whole, bn_expr_repeat(b, point, 0, 1),
                  bn_expr_repeat(b, power_of_ten, 0, 1));
}

/* The first number of units from x on (up) or up to x, x at least 0; behind it if x itself is out. */
static uint64_t units_of(double x, bool strict, bool up, uint32_t k)
{
    char text[BN_NUMBER_BYTES];
    uint64_t v = 0;
    bn_number_text(text, 'f', (int)k, (int)k, x);
    for (const char *p = text; *p; p++)
        if (*p >= '0' && *p <= '9') v = 10 * v + (uint64_t)(*p - '0');
    char *point = strchr(text, '.');
    if (point) *point = bn_locale_point();
    double rounded = strtod(text, NULL);
    if (up) return v + (rounded < x || (rounded == x && strict));
    bool too_far = rounded > x || (rounded == x && strict);
    return too_far && v == 0 ? UINT64_MAX : v - too_far; /* UINT64_MAX: there is none */
}

static uint32_t n_digits(double x)
{
    uint32_t n = 1;
    for (; x >= 10 && n < INTEGER_DIGITS; x /= 10) n++;
    return n;
}

/* One sign's magnitudes from least to most; false: there are none. */
static bool set_side(struct span *v, int side, struct bound least, struct bound most, uint32_t k)
{
    v->least[side] = units_of(least.value, least.strict, true, k);
    v->most[side] = units_of(most.value, most.strict, false, k);
    if (side == 1 && v->least[side] == 0) v->least[side] = 1;
    return v->most[side] != UINT64_MAX && v->least[side] <= v->most[side];
}

/* Bounds beyond what this many digits can say are as good as none. */
static bool far_bounds(const struct bound *lo, const struct bound *hi)
{
    return (!lo->given || lo->value < -1e116) && (!hi->given || hi->value > 1e116);
}

const struct bn_expr *bn_schema_number(struct bn_schema *s, const struct bn_json *schema)
{
    const double usual = 999999999999, far = 999999999999999;
    struct bound lo = {0}, hi = {0};
    struct classes c;
    uint64_t units;
    uint32_t k, digits = NUMBER_DIGITS;
    if (!schema) return any_number(s);
    read_bounds(schema, &lo, &hi);
    if (!read_multiple(s, schema, &units, &k)) return NULL;
    if (!units && far_bounds(&lo, &hi)) return bn_schema_shared(s, BN_RULE_NUMBER);
    if ((lo.given && lo.value > far) || (hi.given && hi.value < -far))
        return bn_schema_integer(s, schema); /* whole ones are what there is room for */
    if (!multiples(s, units ? units : 1, &c, &digits)) return NULL;
    if (!lo.given) lo.value = hi.given && hi.value < -usual ? -far : -usual;
    if (!hi.given) hi.value = lo.value > usual ? far : usual;
    if (lo.value < -far) lo = (struct bound){.value = -far};
    if (hi.value > far) hi = (struct bound){.value = far};
    uint32_t whole = n_digits(fmax(fabs(lo.value), fabs(hi.value)));
    if (!units) k = NUMBER_DIGITS - whole;
    if (units && whole + k > digits) { /* fewer digits before the point, then */
        if (k >= digits)
            return bn_schema_fail(s, BITNET_E_UNSUPPORTED,
                                  "'multipleOf' leaves no room for digits before the point");
        double most = (double)power(digits - k) - 1;
        if (hi.value > most) hi = (struct bound){.value = most};
        if (lo.value < -most) lo = (struct bound){.value = -most};
    }
    struct bound zero = {0};
    struct bound above = {.value = -hi.value, .strict = hi.strict};
    struct bound below = {.value = -lo.value, .strict = lo.strict};
    struct span v = {0};
    v.positive = hi.value >= 0 && set_side(&v, 0, lo.value >= 0 ? lo : zero, hi, k);
    v.negative = lo.value < 0 && set_side(&v, 1, hi.value < 0 ? above : zero, below, k);
    return signed_numbers(s, &v, k, &c);
}
