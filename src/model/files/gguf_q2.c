/* SPDX-License-Identifier: Apache-2.0
 * Which of the three formats of type 42 a file holds. Sizes first: in a file without gaps the room
 * of a tensor is its size rounded up to the alignment, and for all but the smallest matrices one
 * size only fits. Then scales: in the right place they are small positive numbers, in a wrong one
 * eight codes, of which most make no such number. general.file_type is not asked: engines disagree
 * about it. */
#include "model/files/gguf_q2.h"

enum {
    SAMPLES = 4096,   /* blocks looked at, spread over all tensors: each costs a page of the file */
    SAMPLES_MIN = 4,  /* of a tensor */
    F16_EXP_MAX = 18, /* a scale of 16 and more is none */
};

/* how the room of a tensor agrees with one of the two sizes */
struct fit {
    uint64_t bytes;
    bool possible, exact;
};

static struct fit fit(const struct bn_q2_tensor *t, enum bn_type type)
{
    struct fit f = {0};
    if (!bn_type_bytes(&f.bytes, type, t->rows, t->cols)) return f;
    f.possible = t->room >= f.bytes;
    f.exact = f.possible && t->room - f.bytes < t->alignment;
    return f;
}

/* Positive, normal and not large; or zero, as blocks without weights have it. */
static bool plausible(uint16_t scale)
{
    unsigned exponent = scale >> 10; /* with the sign, which makes it large */
    return scale == 0 || (exponent >= 1 && exponent <= F16_EXP_MAX);
}

/* Of some of the blocks as `type` has them, how many have a plausible scale? */
static uint64_t count_plausible(uint64_t *seen, const struct bn_q2_tensor *t, size_t n,
                                enum bn_type type)
{
    const struct bn_type_info *i = bn_type_info(type);
    uint64_t good = 0, share = bn_max_size(SAMPLES / n, SAMPLES_MIN);
    *seen = 0;
    for (size_t k = 0; k < n; k++) {
        uint64_t blocks = t[k].room / i->block_bytes, whole = t[k].rows * t[k].cols / i->block;
        blocks = bn_min_size(blocks, whole);
        uint64_t take = bn_min_size(blocks, share);
        for (uint64_t s = 0; s < take; s++) {
            uint64_t b = s * (blocks / take) + s * (blocks % take) / take;
            const uint8_t *p = t[k].data + b * i->block_bytes + bn_type_scale_at(type);
            good += plausible(bn_load_u16(p));
        }
        *seen += take;
    }
    return good;
}

/* Blocks of 34 bytes: where is the scale? */
static bitnet_status check_order(enum bn_type *out, const struct bn_q2_tensor *t, size_t n,
                                 bool marked, const char *path, bitnet_error *err)
{
    uint64_t seen, before = count_plausible(&seen, t, n, BN_Q2_0_128);
    uint64_t behind = count_plausible(&seen, t, n, BN_TQ2_0_128);
    uint64_t expected = marked ? behind : before, other = marked ? before : behind;
    *out = marked ? BN_TQ2_0_128 : BN_Q2_0_128;
    if (expected >= other && 2 * expected >= seen) return BITNET_OK;
    return bn_fail(
        err, BITNET_E_FORMAT,
        "'%s': tensor '%s' of type 42 is blocks of 34 bytes, and metadata %s TQ2_0_G128, "
        "which has the scale behind the codes; of %llu blocks looked at, %llu have a "
        "plausible scale before the codes and %llu behind them",
        path, t->name, marked ? "name" : "do not name", (unsigned long long)seen,
        (unsigned long long)before, (unsigned long long)behind);
}

/* The share of plausible scales in one reading; 0 where a tensor has no room for it. */
static double share_plausible(const struct bn_q2_tensor *t, size_t n, enum bn_type type)
{
    for (size_t k = 0; k < n; k++)
        if (!fit(&t[k], type).possible) return 0;
    uint64_t seen, good = count_plausible(&seen, t, n, type);
    return seen ? (double)good / (double)seen : 0;
}

/* Sizes do not tell: do scales? Only where nearly all are plausible in one reading, and fewer in
 * the other. */
static bitnet_status by_scales(enum bn_type *out, const struct bn_q2_tensor *t, size_t n,
                               const char *path, bitnet_error *err)
{
    double of_64 = share_plausible(t, n, BN_Q2_0);
    double of_128 = share_plausible(t, n, BN_Q2_0_128);
    *out = of_64 > of_128 ? BN_Q2_0 : BN_Q2_0_128;
    if (of_64 != of_128 && (of_64 > of_128 ? of_64 : of_128) >= 0.95) return BITNET_OK;
    struct fit f64 = fit(t, BN_Q2_0), f128 = fit(t, BN_Q2_0_128);
    return bn_fail(
        err, BITNET_E_FORMAT,
        "'%s': tensor '%s' of type 42 can be 64 weights in 18 bytes (%llu in all) or 128 "
        "in 34 (%llu): its room of %llu bytes fits %s, and its scales do not tell",
        path, t->name, (unsigned long long)f64.bytes, (unsigned long long)f128.bytes,
        (unsigned long long)t->room, f64.exact && f128.exact ? "both" : "neither");
}

bitnet_status bn_q2_settle(enum bn_type *out, const struct bn_q2_tensor *t, size_t n, bool marked,
                           const char *path, bitnet_error *err)
{
    const struct bn_q2_tensor *only_64 = NULL, *only_128 = NULL;
    *out = BN_Q2_0;
    for (size_t k = 0; k < n; k++) {
        struct fit f64 = fit(&t[k], BN_Q2_0), f128 = fit(&t[k], BN_Q2_0_128);
        if (!f64.possible && !f128.possible) return BITNET_OK; /* not whole: the caller tells */
        if (f64.exact && !f128.exact && !only_64) only_64 = &t[k];
        if (f128.exact && !f64.exact && !only_128) only_128 = &t[k];
    }
    if (only_64 && only_128)
        return bn_fail(
            err, BITNET_E_FORMAT,
            "'%s': of type 42, tensor '%s' (room of %llu bytes) fits only 64 weights in 18 "
            "bytes and '%s' (%llu) only 128 in 34, and a file has one of them",
            path, only_64->name, (unsigned long long)only_64->room, only_128->name,
            (unsigned long long)only_128->room);
    if (only_64 && marked)
        return bn_fail(
            err, BITNET_E_FORMAT,
            "'%s': metadata name TQ2_0_G128, 128 weights in 34 bytes, but the room of %llu "
            "bytes of tensor '%s' fits only 64 in 18",
            path, (unsigned long long)only_64->room, only_64->name);
    if (only_64) return BITNET_OK;
    if (!only_128 && !marked) {
        BN_TRY(by_scales(out, t, n, path, err));
        if (*out == BN_Q2_0) return BITNET_OK;
    }
    return check_order(out, t, n, marked, path, err);
}
