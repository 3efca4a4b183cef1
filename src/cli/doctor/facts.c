/* SPDX-License-Identifier: Apache-2.0
 *
 * facts.c: looks at the machine, a real or a recorded one, and measures what can be measured.
 */
#include "base/threads/bandwidth.h"
#include "app/machine_report.h"
#include <stdio.h>
#include "base/machine/cpu.h"
#include "cli/doctor/doctor.h"
#include <time.h>

/* ------------------------------------------------------------------ models */

static void add(struct doctor_facts *f, const char *name, uint64_t token_bytes,
                uint64_t memory_bytes)
{
    struct doctor_model *m = &f->models[f->n_models++];
    snprintf(m->name, sizeof m->name, "%s", name);
    m->token_bytes = token_bytes;
    m->memory_bytes = memory_bytes;
}

/* What a token reads of a copy for screening: of its second half about an eighth. */
static uint64_t screened_bytes(uint64_t copy, uint64_t screen)
{
    return screen + (copy - screen) / 8;
}

/* A token reads the copy of the head, if there is one; the head itself stays in memory. */
void doctor_add_model(struct doctor_facts *f, const bitnet_model *m)
{
    bitnet_model_info i = {.size = sizeof i};
    bitnet_model_get_info(m, &i);
    uint64_t head = i.memory.head_copy_bytes ? i.memory.head_copy_bytes : i.memory.head_bytes;
    if (i.memory.head_screen_bytes)
        head = screened_bytes(i.memory.head_copy_bytes, i.memory.head_screen_bytes);
    add(f, i.name, i.memory.layer_bytes + head, i.memory.packed_bytes + i.memory.head_bytes);
}

/* As `bitnet bench --synthetic 2b-4t --layout t3` reports it: 16-bit head with its copy, and the copies
 * of feed-forward matrices. */
void doctor_add_known_model(struct doctor_facts *f)
{
    static const uint64_t layers = 434390400, head = 656670720, ffn = 265420800;
    static const uint64_t copy = 170116096, screen = 86985728;
    add(f, "2B-4T", layers + screened_bytes(copy, screen), layers + copy + ffn + head);
}

double doctor_tokens_s(const struct doctor_facts *f, const struct doctor_model *m)
{
    return m->token_bytes ? f->read_all / (double)m->token_bytes : 0;
}

bool doctor_cached(const struct doctor_facts *f, const struct doctor_model *m)
{
    uint64_t last_bytes = 0;
    uint32_t last = 0;
    for (uint32_t i = 0; i < f->machine.n_caches; i++) {
        const struct bn_machine_cache *c = &f->machine.caches[i];
        if (c->level < last || c->type == 'i') continue;
        last_bytes = (c->level > last ? 0 : last_bytes) + c->bytes * c->n;
        last = c->level;
    }
    return m->token_bytes <= last_bytes;
}

/* ------------------------------------------------------------------ measuring */

/* The clock of /proc/stat moves in hundredths of a second. */
static void wait_a_moment(void)
{
    struct timespec moment = {.tv_nsec = 300000000};
    nanosleep(&moment, NULL);
}

static void measure(struct doctor_facts *f, bool bandwidth)
{
    struct machine_clock from = machine_clock_now();
    wait_a_moment(); /* how busy others are, while this program does nothing */
    struct machine_clock to = machine_clock_now();
    f->others = machine_others(&from, &to);
    if (!bandwidth) return;
    f->read_one = bn_bandwidth_best(1);
    f->read_all = f->threads > 1 ? bn_bandwidth_best(f->threads) : f->read_one;
}

/* ------------------------------------------------------------------ this program */

/* The CPU's best level, whether there are kernels for it or not. */
static const char *detect(void)
{
    const char *best = "scalar", *name;
    uint32_t has = bn_cpu_detect(), needs;
    for (size_t i = 0; (name = bn_cpu_backend(i, &needs)); i++)
        if ((has & needs) == needs) best = name;
    return best;
}

static bitnet_status look_at_program(struct doctor_facts *f, const char *backend, bitnet_error *err)
{
    f->detected = detect();
    f->best_backend = doctor_best_backend();
    f->backend = strcmp(backend, "auto") == 0 ? f->best_backend : backend;
    f->selftest.status = bitnet_kernel_selftest(f->backend, &f->selftest);
    if (f->selftest.status != BITNET_OK && f->selftest.status != BITNET_E_INTERNAL) {
        *err = f->selftest; /* a backend that this CPU does not have */
        return err->status;
    }
#ifdef __OPTIMIZE__
    f->optimized = true;
#endif
#ifndef NDEBUG
    f->assertions = true;
#endif
    return BITNET_OK;
}

/* ------------------------------------------------------------------ the machine */

static bitnet_status look_at_recording(struct doctor_facts *f, const char *root, bitnet_error *err)
{
    struct bn_machine_source source;
    struct bn_sysfiles sys;
    BN_TRY(bn_sysfiles_open(&sys, root, err));
    bn_machine_source_recorded(&source, &sys);
    bn_machine_read(&f->machine, &source);
    bn_sysfiles_close(&sys);
    if (CPU_COUNT(&f->machine.cpus.online) == 0)
        return bn_fail(err, BITNET_E_FORMAT, "%s is no recording of a machine: it has no CPUs",
                       root);
    return BITNET_OK;
}

static void look_here(struct doctor_facts *f)
{
    struct bn_machine_source source;
    bn_machine_source_here(&source);
    bn_machine_read(&f->machine, &source);
}

bitnet_status doctor_gather(struct doctor_facts *out, const struct doctor_wishes *w,
                            bitnet_error *err)
{
    out->recorded = w->root != NULL;
    out->cpus_given = w->cpus_given;
    out->numa_given = w->numa_given;
    out->others = -1;
    out->illegal = w->illegal;
    if (w->root) BN_TRY(look_at_recording(out, w->root, err));
    else look_here(out);
    out->threads = w->threads ? w->threads : out->machine.default_threads;
    if (out->recorded) return BITNET_OK;
    BN_TRY(look_at_program(out, w->backend, err));
    measure(out, w->measure);
    return BITNET_OK;
}
