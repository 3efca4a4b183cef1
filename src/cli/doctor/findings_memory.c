/* SPDX-License-Identifier: Apache-2.0
 *
 * findings_memory.c: memory: whether there is enough of it, in what pages, and how fast.
 */
#include "cli/doctor/doctor.h"
#include "app/term.h"

static void check_room(struct doctor_findings *out, const struct doctor_facts *f)
{
    const struct bn_machine *m = &f->machine;
    uint64_t limit = m->group.memory_bytes, have = m->available_bytes;
    char need_text[TERM_SIZE_BYTES], have_text[TERM_SIZE_BYTES];
    if (limit && (!have || limit < have)) have = limit;
    if (!have || !f->n_models || !f->model_given) return;
    uint64_t need = f->models[0].memory_bytes;
    term_size(need_text, need);
    term_size(have_text, have);
    if (need <= have) {
        doctor_add(out, "memory", DOCTOR_OK, "%s needs %s of %s", f->models[0].name, need_text,
                   have_text);
        return;
    }
    struct doctor_finding *d =
        doctor_add(out, "memory", DOCTOR_BAD, "%s needs %s, but %s are %s", f->models[0].name,
                   need_text, have_text, have == limit ? "the control group's limit" : "available");
    doctor_cost(d, 1 - (double)have / (double)need, "reckoned",
                "at least that share of every token comes from the disk, a hundred times slower");
    doctor_todo(d, "--ffn dense --head exact need the least; else a smaller model or more memory");
}

static void check_swap(struct doctor_findings *out, const struct doctor_facts *f)
{
    const struct bn_machine *m = &f->machine;
    char used[TERM_SIZE_BYTES];
    if (!m->swap_bytes) return;
    if (m->swap_used_bytes < m->swap_bytes / 20) {
        doctor_add(out, "swap", DOCTOR_OK, "swap is hardly used");
        return;
    }
    struct doctor_finding *d = doctor_add(out, "swap", DOCTOR_NOTE, "%s are swapped out",
                                          term_size(used, m->swap_used_bytes));
    doctor_todo(d, "--mlock keeps a model's weights from that");
}

static void check_memlock(struct doctor_findings *out, const struct doctor_facts *f)
{
    char need[TERM_SIZE_BYTES], limit[TERM_SIZE_BYTES];
    const struct doctor_model *m = &f->models[0];
    if (!f->model_given || !f->machine.memlock_bytes || f->machine.memlock_bytes == UINT64_MAX)
        return;
    if (m->memory_bytes <= f->machine.memlock_bytes) {
        doctor_add(out, "memlock", DOCTOR_OK, "--mlock is possible for %s", m->name);
        return;
    }
    struct doctor_finding *d = doctor_add(
        out, "memlock", DOCTOR_NOTE, "--mlock would need %s for %s, and the limit is %s",
        term_size(need, m->memory_bytes), m->name, term_size(limit, f->machine.memlock_bytes));
    doctor_todo(d, "for --mlock: ulimit -l unlimited; in a systemd unit LimitMEMLOCK=infinity");
}

static void check_pages(struct doctor_findings *out, const struct doctor_facts *f)
{
    const char *thp = f->machine.thp;
    if (!*thp) return;
    if (strcmp(thp, "never") != 0) {
        doctor_add(out, "hugepages", DOCTOR_OK, "transparent huge pages: %s", thp);
        return;
    }
    struct doctor_finding *d =
        doctor_add(out, "hugepages", DOCTOR_WARNING, "transparent huge pages are switched off");
    snprintf(d->how, sizeof d->how,
             "the loss differs from machine to machine; docs/tune/tuning.md has figures");
    doctor_todo(d, "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled");
}

/* All threads together read less than one alone only if something is in their way. */
static void check_bandwidth(struct doctor_findings *out, const struct doctor_facts *f)
{
    double one = f->read_one, all = f->read_all;
    struct doctor_finding *d;
    if (one <= 0 || all <= 0) return;
    if (f->threads > 1 && all < 0.9 * one) {
        d = doctor_add(out, "bandwidth", DOCTOR_NOTE,
                       "%u threads read %.1f GB/s, one alone %.1f: something is in their way",
                       f->threads, all / 1e9, one / 1e9);
        doctor_cost(d, 1 - all / one, "measured", "beside what one thread reads");
        doctor_todo(d, "look for other programs, then compare --threads 1 with bitnet bench");
    } else if (f->threads > 1 && all < 1.1 * one)
        doctor_add(out, "bandwidth", DOCTOR_NOTE,
                   "one thread reads %.1f GB/s, all %.1f: more threads help prompts and several "
                   "requests, not a single answer of a large model",
                   one / 1e9, all / 1e9);
    else
        doctor_add(out, "bandwidth", DOCTOR_OK, "%u thread%s read %.1f GB/s, one %.1f", f->threads,
                   f->threads == 1 ? "" : "s", all / 1e9, one / 1e9);
}

void doctor_judge_memory(struct doctor_findings *out, const struct doctor_facts *f)
{
    check_room(out, f);
    check_swap(out, f);
    check_memlock(out, f);
    check_pages(out, f);
    check_bandwidth(out, f);
}
