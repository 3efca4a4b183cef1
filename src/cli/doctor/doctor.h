/* SPDX-License-Identifier: Apache-2.0
 *
 * doctor.h: the parts of `bitnet doctor`. Facts are gathered (facts.c, doctor/kernels.c),
 * judged by a function that knows nothing else (doctor_findings*.c), and shown (doctor/report.c,
 * doctor/json.c).
 */
#ifndef BN_CLI_DOCTOR_DOCTOR_H
#define BN_CLI_DOCTOR_DOCTOR_H

#include "json/json.h"
#include "base/machine/machine.h"
#include <bitnet/bitnet.h>

/* ------------------------------------------------------------------ facts */

enum { DOCTOR_MAX_MODELS = 2, DOCTOR_NAME = 64 };

/* What decoding a token reads, and what the model needs of memory without its KV cache. */
struct doctor_model {
    char name[DOCTOR_NAME];
    uint64_t token_bytes, memory_bytes;
};

struct doctor_facts {
    struct bn_machine machine;
    bool recorded;             /* another machine: nothing about this program counts */
    uint32_t threads;          /* that would be used */
    bool cpus_given;           /* --cpus: fewer CPUs are what the user wants */
    bool numa_given;           /* --numa: nodes are taken care of */
    double read_one, read_all; /* bytes a second by one and by all threads; 0: not measured */
    double others;             /* share of the machine that others used; < 0: unknown */
    struct doctor_model models[DOCTOR_MAX_MODELS];
    size_t n_models;
    bool model_given;                   /* models[0] is the user's */
    const char *detected;               /* the best instruction sets of this CPU */
    const char *best_backend, *backend; /* of those that have kernels; used */
    const char *illegal;                /* kernels that the CPU promised, and could not run; NULL */
    bitnet_error selftest;              /* of the kernels used; status BITNET_OK: passed */
    bool optimized, assertions;         /* how this program was compiled */
};

struct doctor_wishes {
    const char *root;    /* NULL: this machine */
    const char *backend; /* "auto": the best */
    const char *illegal; /* as in facts */
    uint32_t threads;    /* 0: the default */
    bool cpus_given, numa_given, measure;
};

/* Everything but the models. */
bitnet_status doctor_gather(struct doctor_facts *out, const struct doctor_wishes *w,
                            bitnet_error *err);
void doctor_add_model(struct doctor_facts *f, const bitnet_model *m);
/* The shape of 2B-4T, for those who name no model. */
void doctor_add_known_model(struct doctor_facts *f);

/* What bandwidth allows, and the shares of it that the engine usually reaches. */
#define DOCTOR_USUAL_LOW  0.75
#define DOCTOR_USUAL_HIGH 0.95
double doctor_tokens_s(const struct doctor_facts *f, const struct doctor_model *m); /* 0: unknown */
/* It fits into the last caches, so memory is not its limit. */
bool doctor_cached(const struct doctor_facts *f, const struct doctor_model *m);

/* ------------------------------------------------------------------ kernels */

enum { DOCTOR_MAX_VARIANTS = 8 };

struct doctor_op {
    const char *op;
    const char *compiled[DOCTOR_MAX_VARIANTS]; /* instruction sets, the best last */
    size_t n_compiled;
    size_t used; /* index of the one that runs */
};

/* The i-th operation and its variants, as backend narrows them; false past the end. */
bool doctor_kernel_op(struct doctor_op *out, size_t i, const char *backend);
const char *doctor_best_backend(void);
void doctor_print_backends(const struct doctor_facts *f);
struct bn_json *doctor_json_kernels(const struct doctor_facts *f);
void doctor_print_kernels(const struct doctor_facts *f);

/* ------------------------------------------------------------------ findings */

enum doctor_severity { DOCTOR_OK, DOCTOR_NOTE, DOCTOR_WARNING, DOCTOR_BAD };
enum { DOCTOR_MAX_FINDINGS = 32, DOCTOR_TEXT = 256 };

struct doctor_finding {
    const char *id;
    enum doctor_severity severity;
    double cost;       /* share of the speed that is lost; 0: none, or nobody knows */
    const char *basis; /* of the cost: "measured", "reckoned", "known", or "" */
    char what[DOCTOR_TEXT];
    char how[DOCTOR_TEXT];  /* the cost was found */
    char todo[DOCTOR_TEXT]; /* "" if there is nothing to do */
};

struct doctor_findings {
    struct doctor_finding items[DOCTOR_MAX_FINDINGS];
    size_t n;
};

/* Depends on the facts alone. The worst come first. */
void doctor_judge(struct doctor_findings *out, const struct doctor_facts *f);
extern const double doctor_serious; /* a cost above this is the reason for exit code 1 */
const char *doctor_severity_name(enum doctor_severity s);

/* For the checks: a finding, its cost and what to do. A serious cost makes it a warning at least. */
struct doctor_finding *doctor_add(struct doctor_findings *out, const char *id,
                                  enum doctor_severity severity, const char *fmt, ...)
    BN_PRINTF(4, 5);
void doctor_cost(struct doctor_finding *d, double share, const char *basis, const char *fmt, ...)
    BN_PRINTF(4, 5);
void doctor_todo(struct doctor_finding *d, const char *fmt, ...) BN_PRINTF(2, 3);
/* findings_memory.c */
void doctor_judge_memory(struct doctor_findings *out, const struct doctor_facts *f);

/* ------------------------------------------------------------------ reports */

struct bn_json *doctor_json(const struct doctor_facts *f, const struct doctor_findings *d);
void doctor_print(const struct doctor_facts *f, const struct doctor_findings *d);

#endif
