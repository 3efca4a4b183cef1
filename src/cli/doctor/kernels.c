/* SPDX-License-Identifier: Apache-2.0
 *
 * doctor/kernels.c: operations, the instruction sets they were compiled for, and the one that runs.
 */
#include "cli/doctor/doctor.h"
#include "app/term.h"

const char *doctor_best_backend(void)
{
    const char *best = "scalar", *name;
    int supported;
    for (size_t i = 0; (name = bitnet_backend_name(i, &supported)); i++)
        if (supported) best = name;
    return best;
}

/* Its place among the backends, the best last; those that are none are beyond all. */
static size_t rank_of(const char *backend)
{
    size_t i = 0;
    const char *name;
    while ((name = bitnet_backend_name(i, NULL)) && strcmp(name, backend) != 0) i++;
    return i;
}

/* The list has all reference versions first, one an operation, then the others. */
bool doctor_kernel_op(struct doctor_op *out, size_t i, const char *backend)
{
    bitnet_kernel_info k = {.size = sizeof k};
    if (!bitnet_kernel_get(i, &k) || strcmp(k.isa, "scalar") != 0) return false;
    *out = (struct doctor_op){.op = k.op};
    for (size_t v = i; bitnet_kernel_get(v, &k) && out->n_compiled < DOCTOR_MAX_VARIANTS; v++) {
        if (strcmp(k.op, out->op) != 0) continue;
        if (k.supported && rank_of(k.isa) <= rank_of(backend)) out->used = out->n_compiled;
        out->compiled[out->n_compiled++] = k.isa;
    }
    return true;
}

struct bn_json *doctor_json_kernels(const struct doctor_facts *f)
{
    struct bn_json *backends = bn_json_array(), *ops = bn_json_array();
    struct doctor_op op;
    const char *name;
    int supported;
    for (size_t i = 0; (name = bitnet_backend_name(i, &supported)); i++)
        bn_json_append(backends, bn_json_pack("{s:s, s:b}", "name", name, "supported", supported));
    for (size_t i = 0; doctor_kernel_op(&op, i, f->backend); i++) {
        struct bn_json *compiled = bn_json_array();
        for (size_t v = 0; v < op.n_compiled; v++)
            bn_json_append(compiled, bn_json_string(op.compiled[v]));
        bn_json_append(ops, bn_json_pack("{s:s, s:o, s:s}", "op", op.op, "compiled", compiled,
                                         "used", op.compiled[op.used]));
    }
    bool passed = f->selftest.status == BITNET_OK;
    return bn_json_pack("{s:o, s:s, s:s, s:s, s:b, s:s, s:o}", "compiled", backends, "detected",
                        f->detected, "best", f->best_backend, "used", f->backend, "selftest_passed",
                        passed, "selftest", passed ? "" : f->selftest.text, "operations", ops);
}

void doctor_print_backends(const struct doctor_facts *f)
{
    const char *name;
    int supported;
    for (size_t i = 0; (name = bitnet_backend_name(i, &supported)); i++)
        printf("%s%s%s", i ? ", " : "", name, supported ? "" : " (not on this CPU)");
    printf("; the CPU has %s; used: %s, self-test %s\n", f->detected, f->backend,
           f->selftest.status == BITNET_OK ? "passed" : "failed");
}

void doctor_print_kernels(const struct doctor_facts *f)
{
    struct doctor_op op;
    for (size_t i = 0; doctor_kernel_op(&op, i, f->backend); i++) {
        printf("  %-14s", op.op);
        for (size_t v = 0; v < op.n_compiled; v++)
            printf(v == op.used ? " %s[%s]%s" : " %s%s%s",
                   term_style(stdout, v == op.used ? TERM_BOLD : TERM_PLAIN), op.compiled[v],
                   term_style(stdout, TERM_PLAIN));
        printf("\n");
    }
}
