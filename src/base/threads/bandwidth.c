/* SPDX-License-Identifier: Apache-2.0
 * A plain loop with several sums is enough: the compiler makes vector loads of it, and one core
 * can take in more from its caches than the memory delivers. The sums are kept and looked at, so
 * that no pass can be left out. */
#include "base/threads/bandwidth.h"

#include "base/clock.h"
#include "base/machine/cores.h"
#include "base/os/mem.h"
#include "base/threads/pool.h"
#include <stdlib.h>
#include <unistd.h>

#define CACHE_FOLDER "/sys/devices/system/cpu/cpu0/cache/index"

enum { GRAIN_BYTES = 1 << 16, SUMS = 16 };
static const size_t buffer_min_bytes = (size_t)256 << 20, buffer_max_bytes = (size_t)1 << 30;

struct part {
    _Alignas(64) uint64_t want, got; /* sum as filled, sum as read */
};

struct bn_bandwidth {
    struct bn_pool *pool;
    uint64_t *data;
    size_t bytes;
    struct part *parts; /* [threads] */
};

/* What the kernel says comes first: the C library may count the caches of a host's other CPUs as well. */
size_t bn_last_cache_bytes(void)
{
    uint64_t level, bytes;
    for (unsigned i = 0; i < BN_MAX_CACHE_INDEX; i++)
        if (bn_sysfiles_u64(&bn_sysfiles_here, &level, CACHE_FOLDER "%u/level", i) && level == 3 &&
            bn_sysfiles_u64(&bn_sysfiles_here, &bytes, CACHE_FOLDER "%u/size", i))
            return (size_t)bytes;
    long cache = 0;
#ifdef _SC_LEVEL3_CACHE_SIZE
    cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
#endif
    return cache > 0 ? (size_t)cache : 0;
}

/* Twice the last cache, within bounds: a part of a cache that is shared with other machines may
 * be larger than it says. */
size_t bn_beyond_caches_bytes(void)
{
    size_t twice = 2 * bn_last_cache_bytes();
    size_t want = bn_min_size(bn_max_size(twice, buffer_min_bytes), buffer_max_bytes);
    long pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
    if (pages <= 0 || page_bytes <= 0) return want;
    return bn_min_size(want, (size_t)pages / 8 * (size_t)page_bytes); /* small boards */
}

static struct bn_range share_of(const struct bn_bandwidth *b, uint32_t worker)
{
    return bn_pool_share(b->pool, worker, b->bytes, GRAIN_BYTES);
}

static void fill_worker(void *arg, uint32_t worker)
{
    struct bn_bandwidth *b = arg;
    struct bn_range r = share_of(b, worker);
    uint64_t sum = 0;
    for (size_t i = r.begin / 8; i < r.end / 8; i++) {
        b->data[i] = i * 0x9e3779b97f4a7c15u;
        sum += b->data[i];
    }
    b->parts[worker].want = sum;
}

static void read_worker(void *arg, uint32_t worker)
{
    struct bn_bandwidth *b = arg;
    struct bn_range r = share_of(b, worker);
    uint64_t sum[SUMS] = {0};
    for (size_t i = r.begin / 8; i < r.end / 8; i += SUMS)
        for (size_t k = 0; k < SUMS; k++) sum[k] += b->data[i + k];
    for (size_t k = 1; k < SUMS; k++) sum[0] += sum[k];
    b->parts[worker].got = sum[0];
}

bitnet_status bn_bandwidth_open(struct bn_bandwidth **out, uint32_t threads, size_t bytes,
                                bitnet_error *err)
{
    *out = NULL;
    struct bn_bandwidth *b = bn_calloc(1, sizeof *b);
    if (!b) return bn_fail_nomem(err, sizeof *b, "the bandwidth measurement");
    b->bytes = bn_align_up(bytes ? bytes : bn_beyond_caches_bytes(), GRAIN_BYTES);
    bitnet_status s = bn_pool_open(&b->pool, threads, err);
    if (s == BITNET_OK) {
        size_t part_bytes = bn_pool_threads(b->pool) * sizeof *b->parts;
        b->data = bn_block_alloc(b->bytes);
        b->parts = aligned_alloc(_Alignof(struct part), part_bytes);
        if (!b->data || !b->parts)
            s = bn_fail_nomem(err, b->bytes, "measuring the memory's read bandwidth");
        else memset(b->parts, 0, part_bytes);
    }
    if (s != BITNET_OK) {
        bn_bandwidth_close(b);
        return s;
    }
    bn_pool_run(b->pool, fill_worker, b);
    *out = b;
    return BITNET_OK;
}

void bn_bandwidth_close(struct bn_bandwidth *b)
{
    if (!b) return;
    bn_pool_close(b->pool);
    if (b->data) bn_block_free(b->data, b->bytes);
    free(b->parts);
    free(b);
}

size_t bn_bandwidth_bytes(const struct bn_bandwidth *b) { return b->bytes; }

double bn_bandwidth_read(struct bn_bandwidth *b)
{
    uint64_t start_ns = bn_now_ns();
    bn_pool_run(b->pool, read_worker, b);
    uint64_t ns = bn_now_ns() - start_ns;
    for (uint32_t w = 0; w < bn_pool_threads(b->pool); w++)
        if (b->parts[w].got != b->parts[w].want) return 0; /* memory that does not keep its bits */
    return ns ? (double)b->bytes * 1e9 / (double)ns : 0;
}

double bn_bandwidth_best(uint32_t threads)
{
    enum { PASSES = 4 };
    struct bn_bandwidth *b;
    double best = 0;
    if (bn_bandwidth_open(&b, threads, 0, NULL) != BITNET_OK) return 0;
    for (int i = 0; i < PASSES; i++) {
        double speed = bn_bandwidth_read(b);
        if (speed > best) best = speed;
    }
    bn_bandwidth_close(b);
    return best;
}
