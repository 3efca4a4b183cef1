/* SPDX-License-Identifier: Apache-2.0
 *
 * check_kernels: walks the list of kernels and reports in TAP. An operation without a check does
 * not link; a variant this machine cannot run is a visible SKIP. */
#include "base/clock.h"
#include "check.h"
#include "effort.h"

#include <stdio.h>
#include <stdlib.h>

struct op {
    const char *name;
    void (*check)(struct ck *);
};

static const struct op ops[] = {
#define K_REF(op_, fn_)  {#op_, check_##op_},
#define G_REF(op_, obj_) {#op_, check_##op_},
#define K(op_, isa_, needs_, fn_)
#define G(op_, isa_, needs_, obj_)
#include "kernels/kernels.def"
};

static const struct op *find_op(const char *name)
{
    for (size_t i = 0; i < BN_ARRAY_LEN(ops); i++)
        if (strcmp(ops[i].name, name) == 0) return &ops[i];
    return NULL;
}

static const struct bn_kernel_info *find_ref(const char *op)
{
    for (size_t i = 0; i < bn_kernel_count; i++)
        if (strcmp(bn_kernel_list[i].op, op) == 0 && bn_kernel_list[i].needs == 0)
            return &bn_kernel_list[i];
    return NULL;
}

/* ---- modes ---- */

struct options {
    const char *op, *isa;
    size_t part, parts; /* every parts-th variant, from number `part` on; the rest in part 0 */
    uint32_t features;
};

static bool selected(const struct options *o, const struct bn_kernel_info *v)
{
    return (!o->op || strcmp(o->op, v->op) == 0) && (!o->isa || strcmp(o->isa, v->isa) == 0);
}

static void use(struct ck *c, const struct bn_kernel_info *v)
{
    c->v = v;
    c->ref = find_ref(v->op);
    c->naive = c->ref == v;
    c->n_cases = c->n_failed = 0;
}

static const struct bn_kernel_info exp_info = {"exp", "scalar", 0, NULL, NULL};

static int run_checks(struct ck *c, const struct options *o)
{
    size_t n = 0, bad = 0;
    printf("# seed %llu\n", (unsigned long long)c->seed);
    for (size_t i = 0; i < bn_kernel_count; i++) {
        const struct bn_kernel_info *v = &bn_kernel_list[i];
        if (!selected(o, v) || i % o->parts != o->part) continue;
        n++;
        if ((o->features & v->needs) != v->needs) {
            printf("ok %zu - %s_%s # SKIP this CPU lacks it\n", n, v->op, v->isa);
            continue;
        }
        const struct op *op = find_op(v->op);
        use(c, v);
        if (op && c->ref) op->check(c);
        else ck_fail(c, "no check or no reference for this operation");
        bool ok = c->n_failed == 0 && c->n_cases > 0;
        printf("%sok %zu - %s_%s (%zu cases)\n", ok ? "" : "not ", n, v->op, v->isa, c->n_cases);
        fflush(stdout);
        bad += !ok;
    }
    if (selected(o, &exp_info) && o->part == 0) {
        use(c, &exp_info);
        check_exp(c);
        printf("%sok %zu - exp (%zu cases)\n", c->n_failed ? "not " : "", ++n, c->n_cases);
        bad += c->n_failed != 0;
    }
    if (o->part > 0) {
        printf("1..%zu\n", n);
        return bad != 0;
    }
    use(c, &(struct bn_kernel_info){"self test", bn_kernels_select(o->features).backend, 0, NULL,
                                    NULL});
    check_self_test(c, o->features);
    printf("%sok %zu - self test of %s (%zu cases)\n", c->n_failed ? "not " : "", ++n, c->v->isa,
           c->n_cases);
    bad += c->n_failed != 0;
    printf("1..%zu\n", n);
    return bad != 0;
}

static int usage(void)
{
    fputs("check_kernels [--op OP] [--isa ISA] [--seed N] [--quick] [--part I/N]\n"
          "  --seed 0 takes the clock; --part 0/2 and 1/2 are all, to run side by side\n",
          stderr);
    return 2;
}

int main(int argc, char **argv)
{
    struct ck *c = calloc(1, sizeof *c);
    struct options o = {.features = bn_cpu_detect(), .parts = 1};
#if defined(SIMDE_VERSION)
    o.features |= BN_CPU_AVX512; /* emulated */
#endif
    if (!c) return 1;
    c->seed = 1;
    c->quick = !full_effort();
    for (int i = 1; i < argc; i++) {
        const char *a = argv[i], *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (strcmp(a, "--quick") == 0) c->quick = true;
        else if (strcmp(a, "--op") == 0 && value) o.op = value, i++;
        else if (strcmp(a, "--isa") == 0 && value) o.isa = value, i++;
        else if (strcmp(a, "--seed") == 0 && value) c->seed = strtoull(value, NULL, 0), i++;
        else if (strcmp(a, "--part") == 0 && value &&
                 sscanf(value, "%zu/%zu", &o.part, &o.parts) == 2 && o.part < o.parts)
            i++;
        else return usage();
    }
    bool known = selected(&o, &exp_info);
    for (size_t i = 0; i < bn_kernel_count; i++) known |= selected(&o, &bn_kernel_list[i]);
    if (!known) {
        fputs("no kernel has that operation and instruction set (src/kernels/kernels.def)\n",
              stderr);
        return usage();
    }
    if (c->seed == 0) c->seed = bn_now_ns();
    int rc = run_checks(c, &o);
    free(c);
    return rc;
}
