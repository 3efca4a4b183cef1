/* SPDX-License-Identifier: Apache-2.0
 *
 * check_kernels: walks the list of kernels and reports in TAP. An operation without a check does
 * not link; a variant this machine cannot run is a visible SKIP. */
#include "base/clock.h"
#include "check.h"

#include <stdio.h>
#include <stdlib.h>

struct op {
    const char *name;
    void (*check)(struct ck *), (*bench)(struct ck *);
};

static const struct op ops[] = {
#define K_REF(op_, fn_)  {#op_, check_##op_, bench_##op_},
#define G_REF(op_, obj_) {#op_, check_##op_, bench_##op_},
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

/* ---- timing ---- */

static double best_ns(void (*run)(void *), void *arg)
{
    double best = 1e30;
    uint64_t t0 = bn_now_ns();
    run(arg);
    uint64_t once = bn_now_ns() - t0;
    size_t loops = once > 2000000 ? 1 : (size_t)(2000000 / (once + 1)) + 1;
    for (int rep = 0; rep < 9; rep++) {
        t0 = bn_now_ns();
        for (size_t i = 0; i < loops; i++) run(arg);
        double ns = (double)(bn_now_ns() - t0) / (double)loops;
        if (ns < best) best = ns;
    }
    return best;
}

void ck_time(struct ck *c, const char *label, void (*run)(void *), void *arg, double bytes)
{
    double ns = best_ns(run, arg), ref_ns = 0;
    char key[sizeof c->timing[0].key];
    snprintf(key, sizeof key, "%s %s", c->v->op, label);
    for (size_t i = 0; i < c->n_timings; i++)
        if (strcmp(c->timing[i].key, key) == 0) ref_ns = c->timing[i].ns;
    if (c->naive && c->n_timings < BN_ARRAY_LEN(c->timing)) {
        struct ck_timing *t = &c->timing[c->n_timings++];
        memcpy(t->key, key, sizeof key);
        t->ns = ref_ns = ns;
    }
    if (c->json)
        printf("{\"op\":\"%s\",\"isa\":\"%s\",\"case\":\"%s\",\"ns\":%.1f,\"gb_per_s\":%.3f,"
               "\"ratio_to_c\":%.3f}\n",
               c->v->op, c->v->isa, label, ns, bytes / ns, ref_ns / ns);
    else
        printf("%-11s %-8s %-28s %12.0f ns %7.2f GB/s %7.2fx\n", c->v->op, c->v->isa, label, ns,
               bytes / ns, ref_ns / ns);
    fflush(stdout);
}

/* ---- modes ---- */

struct options {
    const char *op, *isa;
    bool bench, hash;
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
    c->hash = 0xcbf29ce484222325u;
}

static int run_bench(struct ck *c, const struct options *o)
{
    for (size_t i = 0; i < BN_ARRAY_LEN(ops); i++)
        for (size_t j = 0; j < bn_kernel_count; j++) {
            const struct bn_kernel_info *v = &bn_kernel_list[j];
            if (strcmp(v->op, ops[i].name) != 0 || (o->op && strcmp(o->op, v->op) != 0)) continue;
            if (o->isa && v->needs != 0 && strcmp(o->isa, v->isa) != 0) continue;
            if ((o->features & v->needs) != v->needs) continue;
            use(c, v);
            ops[i].bench(c);
        }
    return 0;
}

/* One number over the outputs of the best variants that --isa allows. It must be the same for every
 * ISA and every architecture. */
static int run_hash(struct ck *c, struct options *o)
{
    uint64_t all = 0xcbf29ce484222325u;
    int failed = 0;
    if (!bn_cpu_narrow(&o->features, o->isa)) {
        fprintf(stderr, "check_kernels: no backend '%s'\n", o->isa);
        return 2;
    }
    c->quick = true;
    for (size_t i = 0; i < BN_ARRAY_LEN(ops); i++) {
        const struct bn_kernel_info *v = NULL;
        for (size_t j = 0; j < bn_kernel_count; j++)
            if (strcmp(bn_kernel_list[j].op, ops[i].name) == 0 &&
                (o->features & bn_kernel_list[j].needs) == bn_kernel_list[j].needs)
                v = &bn_kernel_list[j];
        use(c, v);
        c->naive = false; /* compare with the reference, even if it is the reference */
        ops[i].check(c);
        failed |= c->n_failed != 0;
        printf("# %s_%s %016llx\n", v->op, v->isa, (unsigned long long)c->hash);
        all = bn_mix64(all ^ c->hash);
    }
    printf("hash %016llx\n", (unsigned long long)all);
    return failed;
}

static int run_checks(struct ck *c, const struct options *o)
{
    static const struct bn_kernel_info exp_info = {"exp", "scalar", 0, NULL, NULL};
    size_t n = 0, bad = 0;
    printf("# seed %llu\n", (unsigned long long)c->seed);
    for (size_t i = 0; i < bn_kernel_count; i++) {
        const struct bn_kernel_info *v = &bn_kernel_list[i];
        if (!selected(o, v)) continue;
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
    if (selected(o, &exp_info)) {
        use(c, &exp_info);
        check_exp(c);
        printf("%sok %zu - exp (%zu cases)\n", c->n_failed ? "not " : "", ++n, c->n_cases);
        bad += c->n_failed != 0;
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
    fputs("check_kernels [--op OP] [--isa ISA] [--seed N] [--quick] [--bench [--json]] [--hash]\n"
          "  --seed 0 takes the clock; --hash prints one number over all results, the same for\n"
          "  every ISA and architecture\n",
          stderr);
    return 2;
}

int main(int argc, char **argv)
{
    struct ck *c = calloc(1, sizeof *c);
    struct options o = {.features = bn_cpu_detect()};
    if (!c) return 1;
    c->seed = 1;
    for (int i = 1; i < argc; i++) {
        const char *a = argv[i], *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (strcmp(a, "--bench") == 0) o.bench = true;
        else if (strcmp(a, "--hash") == 0) o.hash = true;
        else if (strcmp(a, "--json") == 0) c->json = true;
        else if (strcmp(a, "--quick") == 0) c->quick = true;
        else if (strcmp(a, "--op") == 0 && value) o.op = value, i++;
        else if (strcmp(a, "--isa") == 0 && value) o.isa = value, i++;
        else if (strcmp(a, "--seed") == 0 && value) c->seed = strtoull(value, NULL, 0), i++;
        else return usage();
    }
    if (c->seed == 0) c->seed = bn_now_ns();
    int rc = o.bench ? run_bench(c, &o) : o.hash ? run_hash(c, &o) : run_checks(c, &o);
    free(c);
    return rc;
}
