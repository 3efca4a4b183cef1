/* SPDX-License-Identifier: Apache-2.0
 *
 * The harness: guarded memory, faults, comparison, fills. See check.h. */
#include "check.h"

#include <fenv.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PATTERN = 0xa5, CANARY = 0x5c };

void ck_case(struct ck *c, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(c->where, sizeof c->where, fmt, ap);
    va_end(ap);
    c->n_buffers = 0;
    c->n_cases++;
    c->rng.state = c->seed;
    for (const char *p = c->where; *p; p++) c->rng.state = bn_mix64(c->rng.state ^ (uint8_t)*p);
}

void ck_fail(struct ck *c, const char *fmt, ...)
{
    if (++c->n_failed > 5) return; /* the first few say enough */
    va_list ap;
    va_start(ap, fmt);
    printf("# %s_%s: %s: ", c->v->op, c->v->isa, c->where);
    vprintf(fmt, ap);
    printf("\n");
    va_end(ap);
}

/* ---- memory ---- */

static void die(const char *what)
{
    perror(what);
    exit(1);
}

void *ck_buffer(struct ck *c, size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (c->n_buffers == CK_BUFFERS || bytes + CK_CANARY > CK_BUFFER_BYTES) {
        fprintf(stderr, "check_kernels: a case needs too much memory: %s\n", c->where);
        exit(1);
    }
    struct ck_buffer *b = &c->buffer[c->n_buffers++];
    if (!b->map) {
        b->map = mmap(NULL, CK_BUFFER_BYTES + page, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (b->map == MAP_FAILED) die("mmap");
        if (mprotect(b->map + CK_BUFFER_BYTES, page, PROT_NONE) != 0) die("mprotect");
    }
    b->data = b->map + CK_BUFFER_BYTES - bytes;
    b->bytes = bytes;
    memset(b->data, PATTERN, bytes);
    memset(b->data - CK_CANARY, CANARY, CK_CANARY);
    return b->data;
}

static bool canaries_alive(struct ck *c)
{
    for (size_t i = 0; i < c->n_buffers; i++)
        for (size_t j = 0; j < CK_CANARY; j++)
            if ((c->buffer[i].data - CK_CANARY)[j] != CANARY) {
                ck_fail(c, "wrote %zu bytes before buffer %zu", CK_CANARY - j, i);
                return false;
            }
    return true;
}

/* ---- calling ---- */

static sigjmp_buf fault_return;
static volatile sig_atomic_t fault_expected;

static void on_fault(int sig)
{
    if (!fault_expected) _exit(128 + sig); /* our own fault, not a kernel's */
    siglongjmp(fault_return, sig);
}

static void catch_faults(void)
{
    static const int sigs[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE};
    struct sigaction a = {.sa_handler = on_fault};
    sigemptyset(&a.sa_mask);
    for (size_t i = 0; i < BN_ARRAY_LEN(sigs); i++) sigaction(sigs[i], &a, NULL);
}

/* The bits that steer float arithmetic, without the sticky exception flags. */
static unsigned float_control(void)
{
#if defined(__x86_64__)
    return __builtin_ia32_stmxcsr() & ~0x3fu;
#elif defined(__aarch64__)
    uint64_t fpcr;
    __asm__ volatile("mrs %0, fpcr" : "=r"(fpcr));
    return (unsigned)fpcr;
#elif defined(__riscv)
    unsigned long frm;
    __asm__ volatile("frrm %0" : "=r"(frm));
    return (unsigned)frm;
#else
    return 0;
#endif
}

bool ck_run(struct ck *c, void (*run)(void *), void *arg)
{
    static bool catching;
    if (!catching) catch_faults();
    catching = true;
    unsigned before = float_control();
    fenv_t env;
    fegetenv(&env);
    fault_expected = 1;
    int sig = sigsetjmp(fault_return, 1);
    if (sig == 0) run(arg);
    fault_expected = 0;
    if (float_control() != before) {
        ck_fail(c, "left another float control word: %#x, was %#x", float_control(), before);
        fesetenv(&env);
        return false;
    }
    if (sig != 0) {
        ck_fail(c, "%s",
                sig == SIGSEGV  ? "SIGSEGV (read or wrote outside a buffer)"
                : sig == SIGILL ? "SIGILL"
                : sig == SIGBUS ? "SIGBUS"
                                : "SIGFPE");
        return false;
    }
    return canaries_alive(c);
}

/* ---- comparing ---- */

bool ck_same_f32(struct ck *c, const char *what, const float *want, const float *got, size_t n,
                 size_t width)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t a, b;
        memcpy(&a, want + i, sizeof a);
        memcpy(&b, got + i, sizeof b);
        bool nan_a = (a & 0x7fffffff) > 0x7f800000, nan_b = (b & 0x7fffffff) > 0x7f800000;
        if (a == b || (nan_a && nan_b)) continue;
        ck_fail(c, "%s[%zu][%zu] is %a (%08x), wanted %a (%08x)", what, i / width, i % width,
                (double)got[i], b, (double)want[i], a);
        return false;
    }
    return true;
}

bool ck_same_bytes(struct ck *c, const char *what, const void *want, const void *got, size_t n)
{
    const uint8_t *a = want, *b = got;
    for (size_t i = 0; i < n; i++)
        if (a[i] != b[i]) {
            ck_fail(c, "%s: byte %zu is %02x, wanted %02x", what, i, b[i], a[i]);
            return false;
        }
    return true;
}

bool ck_near(struct ck *c, const char *what, double want, double got, double bound, size_t at)
{
    if (fabs(got - want) <= bound) return true;
    ck_fail(c, "%s[%zu] is %.9g, naive %.9g, bound %.3g", what, at, got, want, bound);
    return false;
}

/* ---- fills ---- */

const char *ck_fill_name(enum ck_fill f)
{
    static const char *const name[] = {"random", "zero", "tiny", "wide", "huge", "special"};
    return name[f];
}

/* Integers and IEEE operations only: the same inputs on every machine. */
void ck_fill_f32(struct ck *c, float *x, size_t n, enum ck_fill f)
{
    static const uint32_t special[] = {0x7f800000, 0xff800000, 0x7fc00000, 0xffc01234, 0x00000001};
    for (size_t i = 0; i < n; i++) {
        uint32_t u = (uint32_t)(bn_rng_u64(&c->rng) >> 32), sign = u & 0x80000000, bits = 0;
        float v = (float)(bn_rng_unit(&c->rng) * 8 - 4);
        memcpy(&bits, &v, sizeof bits);
        switch (f) {
        case CK_ZERO: bits = sign; break;
        case CK_TINY: bits = sign | (u & 0x7fffff); break;
        case CK_WIDE: bits = sign | (bn_rng_below(&c->rng, 80) + 87) << 23 | (u & 0x7fffff); break;
        case CK_HUGE: bits = sign | 0x7f000000 | (u & 0x7fffff); break;
        case CK_SPECIAL:
            if (u % 16 == 0) bits = special[u / 16 % BN_ARRAY_LEN(special)];
            break;
        default: break;
        }
        memcpy(x + i, &bits, sizeof bits);
    }
}

void ck_fill_f16(struct ck *c, uint16_t *x, size_t n, enum ck_fill f)
{
    static const uint16_t special[] = {0x7c00, 0xfc00, 0x7e00, 0xfe12, 0x0001};
    for (size_t i = 0; i < n; i++) {
        uint32_t u = (uint32_t)(bn_rng_u64(&c->rng) >> 32), sign = u >> 16 & 0x8000, bits;
        bits = bn_f32_to_f16((float)(bn_rng_unit(&c->rng) * 8 - 4));
        switch (f) {
        case CK_ZERO: bits = sign; break;
        case CK_TINY: bits = sign | (u & 0x3ff); break;
        case CK_WIDE: bits = sign | (bn_rng_below(&c->rng, 30) + 1) << 10 | (u & 0x3ff); break;
        case CK_HUGE: bits = sign | 0x7800 | (u & 0x3ff); break;
        case CK_SPECIAL:
            if (u % 16 == 0) bits = special[u / 16 % BN_ARRAY_LEN(special)];
            break;
        default: break;
        }
        bn_store_u16(x + i, (uint16_t)bits);
    }
}
