/* SPDX-License-Identifier: Apache-2.0
 * The base room: containers keep their bounds, text and numbers their definitions, files their
 * promises. */
#include <fcntl.h>
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/threads/bandwidth.h"
#include "base/buf.h"
#include "base/machine/cores.h"
#include "base/machine/cpu.h"
#include "base/det_math.h"
#include "base/os/file.h"
#include "base/half.h"
#include "base/parts.h"
#include "base/map.h"
#include "base/number.h"
#include "base/os/mem.h"
#include "base/threads/pool.h"
#include "base/gumbel.h"
#include "base/rng.h"
#include "base/utf8.h"

static void buf_stops_at_its_maximum(void **state)
{
    (void)state;
    struct bn_buf b;
    bn_buf_init(&b, 5);
    assert_true(bn_buf_puts(&b, "abc"));
    assert_false(bn_buf_puts(&b, "def"));
    assert_true(b.failed);
    assert_string_equal(b.data, "abc");
    bn_buf_clear(&b);
    assert_true(bn_buf_printf(&b, "%d", 12345));
    assert_false(bn_buf_putc(&b, 'x'));
    assert_null(bn_buf_take(&b)); /* a failed buffer gives nothing */
    bn_buf_free(&b);
}

static void map_finds_what_was_put_in(void **state)
{
    (void)state;
    enum { N = 20000 };
    static char keys[N][12];
    struct bn_map m;
    assert_true(bn_map_init(&m, 4)); /* far too small: it must grow */
    for (uint32_t i = 0; i < N; i++) {
        int n = snprintf(keys[i], sizeof keys[i], "k%u", i * 7919u);
        uint32_t v = i;
        bool existing;
        assert_true(bn_map_add(&m, keys[i], (size_t)n, &v, &existing));
        assert_false(existing);
    }
    for (uint32_t i = 0; i < N; i++) {
        uint32_t v = 0;
        assert_true(bn_map_get(&m, keys[i], strlen(keys[i]), &v));
        assert_int_equal(v, i);
    }
    uint32_t v = 99;
    bool existing;
    assert_true(bn_map_add(&m, keys[5], strlen(keys[5]), &v, &existing));
    assert_true(existing);
    assert_int_equal(v, 5);
    assert_false(bn_map_get(&m, "absent", 6, &v));
    assert_false(bn_map_get(&m, "", 0, &v));
    bn_map_free(&m);
}

static void utf8_is_strict(void **state)
{
    (void)state;
    for (uint32_t cp = 0; cp <= 0x10ffff; cp++) {
        char s[4];
        uint32_t back = 0;
        size_t n = bn_utf8_encode(s, cp);
        if (cp >= 0xd800 && cp < 0xe000) {
            assert_int_equal(n, 0);
            continue;
        }
        assert_int_equal(bn_utf8_decode(s, n, &back), n);
        assert_int_equal(back, cp);
        for (size_t cut = 1; cut < n; cut++) {
            assert_int_equal(bn_utf8_decode(s, cut, &back), 0);
            assert_int_equal(bn_utf8_tail(s, cut), cut); /* could still become a character */
        }
        assert_int_equal(bn_utf8_tail(s, n), 0);
    }
    static const char *const bad[] = {
        "\xc0\x80", "\xe0\x80\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xff", "\x80", "\xc3("};
    for (size_t i = 0; i < BN_ARRAY_LEN(bad); i++)
        assert_false(bn_utf8_valid(bad[i], strlen(bad[i]), NULL));
    size_t at = 0;
    assert_false(bn_utf8_valid("ab\xff", 3, &at));
    assert_int_equal(at, 2);
    assert_int_equal(bn_utf8_tail("\xed\xa0", 2), 0); /* a surrogate can never become valid */
}

/* value of a half-precision number by its definition */
static double f16_value(uint16_t h)
{
    int e = h >> 10 & 31, m = h & 1023;
    double v = e ? ldexp(1 + m / 1024.0, e - 15) : ldexp(m / 1024.0, -14);
    return h >> 15 ? -v : v;
}

static void halves_widen_exactly_and_narrow_to_nearest_even(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        float f = bn_f16_to_f32((uint16_t)h);
        if ((h & 0x7fff) > 0x7c00) {
            assert_true(isnan(f));
            continue;
        }
        if ((h & 0x7fff) == 0x7c00) assert_true(isinf(f));
        else assert_true((double)f == f16_value((uint16_t)h));
        assert_int_equal(bn_f32_to_f16(f), h);
        assert_int_equal(bn_f32_to_bf16(bn_bf16_to_f32((uint16_t)h)) | 0x40,
                         h | 0x40); /* NaNs may become quiet */
    }
    struct bn_rng rng = {1};
    for (int i = 0; i < 1000000; i++) {
        float f = bn_u32_as_f32((uint32_t)bn_rng_u64(&rng));
        if (!(fabsf(f) < 65504)) continue;
        uint16_t h = bn_f32_to_f16(f);
        /* no neighbour is nearer, and a tie goes to the even one */
        double d = fabs(f16_value(h) - (double)f);
        for (int step = -1; step <= 1; step += 2) {
            uint16_t other = (uint16_t)(h + step);
            if ((other & 0x7fff) >= 0x7c00 || ((h ^ other) & 0x8000)) continue;
            double e = fabs(f16_value(other) - (double)f);
            assert_true(d < e || (d == e && !(h & 1)));
        }
    }
}

static void det_math_agrees_with_libm(void **state)
{
    (void)state;
    for (int i = 0; i < 200000; i++) {
        double x = -700 + i * 0.007, y = 1e-3 + i * 3.7, a = i * 0.37, s, c;
        assert_true(fabs(bn_det_exp(x) / exp(x) - 1) < 1e-15);
        assert_true(fabs(bn_det_log(y) - log(y)) < 4e-15);
        bn_det_sincos(a, &s, &c);
        assert_true(fabs(s - sin(a)) < 1e-14 && fabs(c - cos(a)) < 1e-14);
    }
    assert_true(bn_det_exp(0) == 1 && bn_det_exp(-1000) == 0 && isinf(bn_det_exp(1000)) &&
                isnan(bn_det_exp((double)NAN)));
}

static void gumbel_noise_stays_below_its_bound(void **state)
{
    (void)state;
    const double ends[] = {0x1p-53, 3 * 0x1p-53, 0.25, 0.5, 0.75, 1 - 3 * 0x1p-53, 1 - 0x1p-53};
    double sum = 0;
    for (size_t i = 0; i < BN_ARRAY_LEN(ends); i++) {
        assert_true(fabs(bn_gumbel(ends[i]) + log(-log1p(-ends[i]))) < 1e-12);
        assert_true(bn_gumbel_bound(ends[i]) >= bn_gumbel(ends[i]));
    }
    for (uint64_t i = 0; i < 100000; i++) {
        double v = bn_gumbel_unit(11, i), g = bn_gumbel(v), bound = bn_gumbel_bound(v);
        assert_true(v > 0 && v < 1 && bound >= g);
        assert_true(g < 3 || bound < g + 0.12); /* 0.06 of the bits, v / 2 of the logarithm */
        sum += g;
    }
    assert_true(fabs(sum / 100000 - 0.5772156649) < 0.02); /* Euler's constant is the mean */
}

static void file_output_appears_whole_or_not_at_all(void **state)
{
    (void)state;
    char dir[] = "/tmp/bitnet-base-XXXXXX", path[64];
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/out", dir);
    struct bn_out o;
    bitnet_error err;
    assert_int_equal(bn_out_open(&o, path, false, &err), BITNET_OK);
    assert_int_equal(bn_out_write(&o, "hello", 5, &err), BITNET_OK);
    assert_false(bn_exists(path));
    bn_out_close(&o); /* without commit: nothing stays */
    assert_int_equal(rmdir(dir), 0);

    assert_int_equal(mkdir(dir, 0700), 0);
    assert_int_equal(bn_out_open(&o, path, false, &err), BITNET_OK);
    assert_int_equal(bn_out_zeros(&o, 3000000, &err), BITNET_OK);
    assert_int_equal(bn_out_commit(&o, &err), BITNET_OK);
    bn_out_close(&o);
    struct bn_mapping m;
    assert_int_equal(bn_map_file(&m, path, &err), BITNET_OK);
    assert_int_equal(m.bytes, 3000000);
    uint8_t piece[5000];
    assert_true(bn_map_copy(&m, piece, m.data + 2990001, sizeof piece));
    assert_memory_equal(piece, m.data + 2990001, sizeof piece);
    assert_int_equal(truncate(path, 2992000), 0); /* less than is asked for */
    assert_false(bn_map_copy(&m, piece, m.data + 2990001, sizeof piece));
    assert_true(bn_map_copy(&m, piece, m.data, sizeof piece));
    bn_unmap_file(&m);
    assert_int_equal(m.fd, 0);
    assert_false(bn_map_copy(&m, piece, m.data, sizeof piece));
    assert_int_equal(bn_out_open(&o, path, false, &err),
                     BITNET_E_IO); /* exists: not replaced unasked */
    assert_non_null(strstr(err.text, "exists"));
    char *text;
    size_t n;
    assert_int_equal(bn_read_file(&text, &n, path, 100, &err), BITNET_E_LIMIT);
    assert_int_equal(bn_map_file(&m, dir, &err), BITNET_E_IO);
    assert_non_null(strstr(err.text, "folder"));
    unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(bn_map_file(&m, path, &err), BITNET_E_IO); /* and does not wait for a writer */
    unlink(path);
    rmdir(dir);
}

struct pool_test {
    struct bn_pool *pool;
    _Atomic uint32_t in_step[3];
    _Atomic uint32_t wrong;
};

static void pool_job(void *arg, uint32_t worker)
{
    struct pool_test *t = arg;
    for (int step = 0; step < 3; step++) {
        atomic_fetch_add(&t->in_step[step], 1);
        bn_pool_barrier(t->pool, worker);
        if (atomic_load(&t->in_step[step]) != bn_pool_threads(t->pool))
            atomic_fetch_add(&t->wrong, 1);
        bn_pool_barrier(t->pool, worker);
    }
}

static void pool_keeps_its_workers_in_step(void **state)
{
    (void)state;
    for (uint32_t threads = 1; threads <= 7; threads += 2) { /* also more than there are cores */
        struct pool_test t = {0};
        assert_int_equal(bn_pool_open(&t.pool, threads, NULL), BITNET_OK);
        for (int run = 0; run < 300; run++) {
            for (int i = 0; i < 3; i++) atomic_store(&t.in_step[i], 0);
            bn_pool_run(t.pool, pool_job, &t);
        }
        assert_int_equal(atomic_load(&t.wrong), 0);
        for (size_t n = 0; n < 40; n++) { /* shares cover everything once */
            size_t at = 0;
            for (uint32_t w = 0; w < threads; w++) {
                struct bn_range r = bn_pool_share(t.pool, w, n, 4);
                assert_int_equal(r.begin, at);
                assert_true(r.end == n || r.end % 4 == 0);
                at = r.end;
            }
            assert_int_equal(at, n);
        }
        bn_pool_close(t.pool);
    }
    bitnet_error err;
    struct bn_pool *p;
    assert_int_equal(bn_pool_open(&p, 100000, &err), BITNET_E_LIMIT);
}

struct where_test {
    cpu_set_t set[BN_MAX_THREADS];
};

static void where_job(void *arg, uint32_t worker)
{
    struct where_test *t = arg;
    sched_getaffinity(0, sizeof t->set[worker], &t->set[worker]);
}

/* A bound worker has a CPU of its own and may use no other; the caller's mask does not change. */
static void workers_are_bound_the_caller_is_not(void **state)
{
    (void)state;
    static struct where_test t;
    cpu_set_t mine, seen;
    assert_int_equal(sched_getaffinity(0, sizeof mine, &mine), 0);
    uint32_t n_cpus = (uint32_t)CPU_COUNT(&mine), many = n_cpus < 4 ? n_cpus : 4;
    struct bn_placement all;
    bn_placement_choose(&all, n_cpus);
    for (uint32_t threads = 1; threads <= many + 1; threads++) {
        struct bn_pool *p;
        assert_int_equal(bn_pool_open(&p, threads, NULL), BITNET_OK);
        uint32_t n = bn_pool_pin(p);
        bn_pool_run(p, where_job, &t);
        bn_pool_close(p);
        bool crowded = threads > n_cpus || all.crowded;
        assert_int_equal(n, crowded ? 0 : threads - 1);
        assert_true(CPU_EQUAL(&t.set[0], &mine));
        CPU_ZERO(&seen);
        for (uint32_t w = 1; w < threads; w++) {
            assert_int_equal(CPU_COUNT(&t.set[w]), crowded ? (int)n_cpus : 1);
            CPU_OR(&seen, &seen, &t.set[w]);
        }
        if (!crowded) assert_int_equal(CPU_COUNT(&seen), threads - 1);
    }
}

static void bandwidth_reads_all_of_its_buffer(void **state)
{
    (void)state;
    bitnet_error err;
    for (uint32_t threads = 1; threads <= 5; threads++) {
        struct bn_bandwidth *b;
        assert_int_equal(bn_bandwidth_open(&b, threads, 3000001, &err), BITNET_OK);
        assert_true(bn_bandwidth_bytes(b) >= 3000001);
        /* 0 would mean that the sum of what was read is not that of what was written */
        for (int i = 0; i < 3; i++) assert_true(bn_bandwidth_read(b) > 0);
        bn_bandwidth_close(b);
    }
    bn_bandwidth_close(NULL);
    struct bn_bandwidth *none;
    assert_int_equal(bn_bandwidth_open(&none, 100000, 1 << 20, &err), BITNET_E_LIMIT);
    assert_null(none);
}

/* A file without a name cannot be renamed over: it is written in place. */
enum { DEALS = 300, DEAL_ITEMS = 1000 };
struct deals {
    struct bn_pool *pool;
    _Atomic uint8_t taken[DEALS][DEAL_ITEMS];
    _Atomic uint32_t ill; /* ranges that do not begin at a grain, or end nowhere */
};

/* Deals of all sizes follow each other without a barrier; some workers are slow now and then. */
static void take_all(void *arg, uint32_t worker)
{
    struct deals *d = arg;
    for (uint32_t i = 0; i < DEALS; i++) {
        size_t n = (size_t)i * 37 % DEAL_ITEMS + 1, grain = i % 7 + 1;
        struct bn_range r;
        bn_pool_deal(d->pool, worker, n, grain, i % 5 == 4);
        while (bn_pool_take(d->pool, worker, &r)) {
            bool good = r.begin % grain == 0 && r.begin < r.end && r.end <= n &&
                        (r.end % grain == 0 || r.end == n);
            if (!good) atomic_fetch_add(&d->ill, 1);
            for (size_t k = r.begin; good && k < r.end; k++) atomic_fetch_add(&d->taken[i][k], 1);
            if ((i + worker) % 50 == 0) usleep(200);
        }
        if (i % 90 == 89) bn_pool_barrier(d->pool, worker);
    }
}

static void pool_deals_every_item_once(void **state)
{
    (void)state;
    static struct deals d;
    for (uint32_t threads = 1; threads <= 11; threads += threads < 3 ? 1 : 4) {
        memset(&d, 0, sizeof d);
        assert_int_equal(bn_pool_open(&d.pool, threads, NULL), BITNET_OK);
        bn_pool_run(d.pool, take_all, &d);
        bn_pool_close(d.pool);
        assert_int_equal(d.ill, 0);
        for (size_t i = 0; i < DEALS; i++)
            for (size_t k = 0; k < DEAL_ITEMS; k++)
                assert_int_equal(d.taken[i][k], k <= i * 37 % DEAL_ITEMS);
    }
}

static void file_output_takes_a_descriptor(void **state)
{
    (void)state;
    bitnet_error err;
    char path[64], *text;
    size_t n;
    int fd = memfd_create("test", MFD_CLOEXEC);
    assert_true(fd >= 0 && write(fd, "older and longer", 16) == 16);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    struct bn_out o;
    assert_int_equal(bn_out_open(&o, path, false, &err), BITNET_E_IO); /* not without permission */
    assert_int_equal(bn_out_open(&o, path, true, &err), BITNET_OK);
    assert_int_equal(bn_out_write(&o, "new", 3, &err), BITNET_OK);
    assert_int_equal(bn_out_commit(&o, &err), BITNET_OK);
    bn_out_close(&o);
    assert_int_equal(bn_read_file(&text, &n, path, 100, &err), BITNET_OK);
    assert_string_equal(text, "new");
    free(text);
    close(fd);
    assert_int_equal(bn_out_open(&o, path, true, &err), BITNET_E_IO); /* no such descriptor */
    bn_out_close(&o);
}

/* A device or a pipe is written and stays what it is. */
static void file_output_keeps_devices_and_pipes(void **state)
{
    (void)state;
    char dir[] = "/tmp/bitnet-base-XXXXXX", path[64], got[8] = "";
    struct bn_out o;
    bitnet_error err;
    struct stat st;
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/out", dir);
    assert_int_equal(mkfifo(path, 0600), 0);
    int reader = open(path, O_RDONLY | O_NONBLOCK);
    assert_true(reader >= 0);
    assert_int_equal(bn_out_open(&o, path, true, &err), BITNET_OK);
    assert_int_equal(bn_out_end(&o, "hello", 5, &err), BITNET_OK);
    bn_out_close(&o);
    assert_int_equal(read(reader, got, sizeof got - 1), 5);
    assert_string_equal(got, "hello");
    close(reader);
    assert_true(stat(path, &st) == 0 && S_ISFIFO(st.st_mode));
    unlink(path);

    assert_int_equal(symlink("/dev/full", path), 0);
    assert_int_equal(bn_out_open(&o, path, true, &err), BITNET_OK);
    assert_int_equal(bn_out_end(&o, "hello", 5, &err), BITNET_E_IO);
    bn_out_close(&o);
    assert_true(lstat(path, &st) == 0 && S_ISLNK(st.st_mode));
    assert_true(stat(path, &st) == 0 && S_ISCHR(st.st_mode));
    unlink(path);
    rmdir(dir);
}

static void slabs_hand_out_zeroed_lines_of_their_own(void **state)
{
    (void)state;
    struct bn_slab s = {0};
    uint8_t *p[40], *big;
    for (size_t i = 0; i < BN_ARRAY_LEN(p); i++) {
        size_t n = 3 * BN_HUGE_PAGE + i; /* more than a chunk holds in all */
        p[i] = bn_slab_alloc(&s, n);
        assert_non_null(p[i]);
        assert_int_equal((uintptr_t)p[i] % 64, 0);
        assert_int_equal(p[i][0] | p[i][n - 1], 0);
        p[i][0] = p[i][n - 1] = (uint8_t)(i + 1);
    }
    for (size_t i = 0; i < BN_ARRAY_LEN(p); i++)
        assert_true(p[i][0] == i + 1 && p[i][3 * BN_HUGE_PAGE + i - 1] == i + 1);
    big = bn_slab_alloc(&s, 100 * (size_t)BN_HUGE_PAGE);
    assert_non_null(big);
    assert_null(bn_slab_alloc(&s, SIZE_MAX));
    bn_slab_free(&s);
    assert_null(s.chunk);
}

static void large_blocks_start_at_huge_pages(void **state)
{
    (void)state;
    for (size_t extra = 0; extra < 3; extra++) {
        size_t n = BN_HUGE_PAGE + extra * 4097;
        uint8_t *p = bn_block_alloc(n);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % BN_HUGE_PAGE, 0);
        p[0] = p[n - 1] = 1;
        bn_block_free(p, n);
    }
    assert_null(bn_block_alloc(SIZE_MAX - 5));
}

static void errors_are_one_printable_line(void **state)
{
    (void)state;
    bitnet_error err;
    assert_int_equal(bn_fail(&err, BITNET_E_IO, "name '%s'", "a\nb\x1b[31m"), BITNET_E_IO);
    assert_string_equal(err.text, "name 'a?b?[31m'");
    assert_int_equal(bn_fail(NULL, BITNET_E_ARG, "nobody listens"), BITNET_E_ARG);
}

static void backends_narrow(void **state)
{
    (void)state;
    uint32_t f = ~0u;
    assert_true(bn_cpu_narrow(&f, "scalar"));
    assert_int_equal(f, 0);
    f = 0xff;
    assert_true(bn_cpu_narrow(&f, NULL) && bn_cpu_narrow(&f, "auto"));
    assert_int_equal(f, 0xff);
    assert_false(bn_cpu_narrow(&f, "z80"));
}

/* As few digits as give the number back, within the bounds asked for. */
static void numbers_are_short_and_read_back(void **state)
{
    (void)state;
    static const struct {
        char style;
        int least, most;
        double v;
        int digits;
        const char *text;
    } cases[] = {
        {'g', 15, 17, 0.1, 15, "0.1"},
        {'g', 15, 17, 1.0 / 3, 16, "0.3333333333333333"},
        {'g', 15, 17, 0.1 + 0.2, 17, "0.30000000000000004"},
        {'e', 0, 16, 1200, 1, "1.2e+03"},
        {'e', 0, 16, -0.5, 0, "-5e-01"},
        {'f', 0, 3, 2.25, 2, "2.25"},
        {'f', 0, 3, 7, 0, "7"},
        {'f', 0, 3, 0.0625, 4, "0.062"}, /* none does */
        {'f', 2, 2, 1.0 / 3, 3, "0.33"},
    };
    char text[BN_NUMBER_BYTES];
    for (size_t i = 0; i < BN_ARRAY_LEN(cases); i++) {
        assert_int_equal(
            bn_number_text(text, cases[i].style, cases[i].least, cases[i].most, cases[i].v),
            cases[i].digits);
        assert_string_equal(text, cases[i].text);
    }
    struct bn_rng r = {1};
    for (int i = 0; i < 10000; i++) {
        double v = (double)(int64_t)bn_rng_u64(&r) / (double)(1 + bn_rng_below(&r, 1 << 30));
        assert_in_range(bn_number_text(text, 'g', 1, 17, v), 1, 17);
        assert_true(strtod(text, NULL) == v);
    }
}

/* Every exponent, and the same text as printf but for a tie now and then. */
static void floats_in_nine_digits_read_back(void **state)
{
    (void)state;
    static const float some[] = {
        0,        -0.0f,  1,    -1,        0.5f,          0.05f,    0.0001f,
        0.00001f, 1e9f,   1e8f, 123456792, 99999.99f,     16777216, FLT_MAX,
        FLT_MIN,  1e-45f, 0.1f, 1e10f,     9.99999999e8f, 3.5f,     -0.00012345f};
    char text[BN_NUMBER_BYTES], want[64];
    uint32_t n_other = 0, n = 200000;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t bits = (uint32_t)bn_mix64(i);
        float v = bn_u32_as_f32(bits);
        if (i < BN_ARRAY_LEN(some)) v = some[i];
        else if (i % 2) v = (float)(int32_t)bits * 0x1p-31f; /* as numbers of vectors are */
        size_t len = bn_number_float(text, v);
        assert_int_equal(len, strlen(text));
        if (!isfinite(v)) {
            assert_string_equal(text, "null");
            continue;
        }
        assert_true(strtof(text, NULL) == v && !signbit(strtof(text, NULL)) == !signbit(v));
        snprintf(want, sizeof want, "%.9g", (double)v);
        n_other += strcmp(text, want) != 0;
    }
    assert_in_range(n_other, 0, n / 10000);
}

static void parts_are_told_by_their_names(void **state)
{
    (void)state;
    unsigned part = 0, of = 0;
    char other[64];
    assert_true(bn_part_read(&part, &of, "a/m-00002-of-00015.gguf", ".gguf"));
    assert_true(part == 2 && of == 15);
    assert_true(bn_part_write(other, sizeof other, "a/m-00002-of-00015.gguf", 13, ".gguf"));
    assert_string_equal(other, "a/m-00013-of-00015.gguf");
    assert_false(bn_part_write(other, 20, "a/m-00002-of-00015.gguf", 13, ".gguf"));
    static const char *const none[] = {"m.gguf",
                                       "-00001-of-00002.gguf",
                                       "m-00001-of-00002.safetensors",
                                       "m-0001-of-00002.gguf",
                                       "m-00003-of-00002.gguf",
                                       "m-00000-of-00002.gguf",
                                       "m-00001-of-0000x.gguf",
                                       "m- 0001-of-00002.gguf",
                                       "m-00001_of-00002.gguf",
                                       ".gguf",
                                       ""};
    for (size_t i = 0; i < BN_ARRAY_LEN(none); i++)
        assert_false(bn_part_read(&part, &of, none[i], ".gguf"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(buf_stops_at_its_maximum),
        cmocka_unit_test(map_finds_what_was_put_in),
        cmocka_unit_test(utf8_is_strict),
        cmocka_unit_test(halves_widen_exactly_and_narrow_to_nearest_even),
        cmocka_unit_test(det_math_agrees_with_libm),
        cmocka_unit_test(gumbel_noise_stays_below_its_bound),
        cmocka_unit_test(file_output_appears_whole_or_not_at_all),
        cmocka_unit_test(pool_keeps_its_workers_in_step),
        cmocka_unit_test(workers_are_bound_the_caller_is_not),
        cmocka_unit_test(pool_deals_every_item_once),
        cmocka_unit_test(file_output_takes_a_descriptor),
        cmocka_unit_test(file_output_keeps_devices_and_pipes),
        cmocka_unit_test(bandwidth_reads_all_of_its_buffer),
        cmocka_unit_test(slabs_hand_out_zeroed_lines_of_their_own),
        cmocka_unit_test(large_blocks_start_at_huge_pages),
        cmocka_unit_test(errors_are_one_printable_line),
        cmocka_unit_test(numbers_are_short_and_read_back),
        cmocka_unit_test(floats_in_nine_digits_read_back),
        cmocka_unit_test(parts_are_told_by_their_names),
        cmocka_unit_test(backends_narrow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
