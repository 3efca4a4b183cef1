/* SPDX-License-Identifier: Apache-2.0
 *
 * doctor/report.c: facts and findings for people: a line a subject, then what to do.
 */
#include "cli/doctor/doctor.h"
#include "app/term.h"

static void subject(const char *name)
{
    printf("%s%-12s%s ", term_style(stdout, TERM_BOLD), name, term_style(stdout, TERM_PLAIN));
}

static const char *known(const char *text) { return *text ? text : "unknown"; }

static const char *answer(enum bn_tristate a)
{
    return a == BN_UNKNOWN ? "unknown" : a == BN_YES ? "on" : "off";
}

/* Caches and pages are powers of two. */
static const char *binary_size(char out[TERM_SIZE_BYTES], uint64_t bytes)
{
    static const char *const units[] = {"KiB", "MiB", "GiB"};
    size_t u = 0;
    uint64_t v = bytes >> 10;
    for (; v >= 1024 && v % 1024 == 0 && u + 1 < BN_ARRAY_LEN(units); u++) v >>= 10;
    snprintf(out, TERM_SIZE_BYTES, "%llu %s", (unsigned long long)v, units[u]);
    return out;
}

static const char *plural(uint32_t n) { return n == 1 ? "" : "s"; }

static void print_cpu(const struct doctor_facts *f)
{
    const struct bn_machine *m = &f->machine;
    const struct bn_topology *t = &m->cpus;
    uint32_t packages = bn_topology_groups(t->package, &t->online);
    uint32_t cores = bn_topology_groups(t->core, &t->online);
    uint32_t cpus = (uint32_t)CPU_COUNT(&t->online);
    cpu_set_t fast = bn_topology_fast(t);
    char list[64];
    subject("CPU");
    term_print_clean(stdout, known(m->cpu_name));
    if (m->virtual_machine == BN_YES)
        printf(", virtual machine%s%s", *m->virtual_name ? " by " : "", m->virtual_name);
    printf("\n");
    subject("cores");
    printf("%u package%s, %u core%s, %u CPU%s, SMT %s", packages, plural(packages), cores,
           plural(cores), cpus, plural(cpus), answer(m->smt));
    bn_cpus_format(list, sizeof list, &t->usable);
    printf("; usable %s", list);
    bn_cpus_format(list, sizeof list, &fast);
    if (CPU_COUNT(&t->slow)) printf("; fast ones %s", list);
    printf("\n");
    subject("threads");
    printf("%u (by default %u)\n", f->threads, m->default_threads);
}

static void print_caches(const struct bn_machine *m)
{
    char size[TERM_SIZE_BYTES];
    subject("caches");
    if (!m->n_caches) printf("unknown");
    for (uint32_t i = 0; i < m->n_caches; i++) {
        const struct bn_machine_cache *c = &m->caches[i];
        printf("%sL%u%s %u x %s", i ? ", " : "", c->level,
               c->type == 'd'   ? "d"
               : c->type == 'i' ? "i"
                                : "",
               c->n, binary_size(size, c->bytes));
    }
    printf("\n");
}

static void print_nodes(const struct bn_machine *m)
{
    char total[TERM_SIZE_BYTES], free_text[TERM_SIZE_BYTES];
    subject("nodes");
    if (!m->n_nodes) printf("unknown");
    for (uint32_t i = 0; i < m->n_nodes; i++) {
        const struct bn_machine_node *n = &m->nodes[i];
        printf("%s%u: %u CPU%s, %s, %s free", i ? "; " : "", n->id, n->n_cpus, plural(n->n_cpus),
               term_size(total, n->total_bytes), term_size(free_text, n->free_bytes));
    }
    printf("\n");
}

static void print_limits(const struct bn_machine *m)
{
    char size[TERM_SIZE_BYTES];
    subject("limits");
    if (m->group.quota_cpus > 0) printf("quota %.2f CPUs", m->group.quota_cpus);
    else printf("no CPU quota");
    printf(", cpuset %s", known(m->group.cpuset));
    printf(", memory %s",
           m->group.memory_bytes ? term_size(size, m->group.memory_bytes) : "not limited");
    printf(", locked memory %s\n", m->memlock_bytes == UINT64_MAX ? "not limited"
                                   : m->memlock_bytes ? term_size(size, m->memlock_bytes)
                                                      : "unknown");
}

static void print_frequency(const struct bn_machine *m)
{
    subject("frequency");
    if (m->max_khz)
        printf("%.2f to %.2f GHz, now %.2f", (double)m->min_khz / 1e6, (double)m->max_khz / 1e6,
               (double)m->now_khz / 1e6);
    else printf("unknown");
    if (*m->governor) printf(", governor %s by %s", m->governor, known(m->driver));
    if (m->boost != BN_UNKNOWN) printf(", boost %s", answer(m->boost));
    if (m->throttle_known == BN_YES)
        printf(", throttled %llu times", (unsigned long long)m->n_throttles);
    printf("\n");
}

static void print_memory(const struct bn_machine *m)
{
    char total[TERM_SIZE_BYTES], available[TERM_SIZE_BYTES], swap[TERM_SIZE_BYTES];
    subject("memory");
    printf("%s, %s available, %s swapped out\n", term_size(total, m->memory_bytes),
           term_size(available, m->available_bytes), term_size(swap, m->swap_used_bytes));
    subject("huge pages");
    printf("transparent: %s (defrag %s)", known(m->thp), known(m->thp_defrag));
    for (uint32_t i = 0; i < m->n_huge; i++)
        printf("; %s: %llu reserved, %llu free", binary_size(total, m->huge[i].page_bytes),
               (unsigned long long)m->huge[i].n_pages, (unsigned long long)m->huge[i].n_free);
    printf("\n");
}

static void print_speed(const struct doctor_facts *f)
{
    char size[TERM_SIZE_BYTES];
    if (f->read_all <= 0) return;
    subject("bandwidth");
    printf("%.1f GB/s by one thread, %.1f by %u\n", f->read_one / 1e9, f->read_all / 1e9,
           f->threads);
    for (size_t i = 0; i < f->n_models; i++) {
        const struct doctor_model *m = &f->models[i];
        double most = doctor_tokens_s(f, m);
        subject(i ? "" : "expected");
        term_print_clean(stdout, m->name);
        printf(", %s a token: ", term_size(size, m->token_bytes));
        if (doctor_cached(f, m)) printf("fits into the caches, memory is not its limit\n");
        else
            printf("at most %.1f tok/s; the engine usually reaches %.0f to %.0f %% of that: "
                   "%.1f to %.1f\n",
                   most, DOCTOR_USUAL_LOW * 100, DOCTOR_USUAL_HIGH * 100, most * DOCTOR_USUAL_LOW,
                   most * DOCTOR_USUAL_HIGH);
    }
}

static void print_company(const struct doctor_facts *f)
{
    subject("load");
    if (f->machine.load_average < 0) printf("unknown");
    else printf("average %.2f", f->machine.load_average);
    if (f->others >= 0) printf(", other programs use %.0f %% of the machine", f->others * 100);
    printf("\n");
}

static void print_finding(const struct doctor_finding *d)
{
    static const enum term_style styles[] = {TERM_GREEN, TERM_PLAIN, TERM_YELLOW, TERM_RED};
    printf("%s%-8s%s %s: %s", term_style(stdout, styles[d->severity]),
           doctor_severity_name(d->severity), term_style(stdout, TERM_PLAIN), d->id, d->what);
    if (*d->basis) printf("\n         costs %.0f %% (%s: %s)", d->cost * 100, d->basis, d->how);
    else if (*d->how) printf("\n         %s", d->how);
    if (*d->todo) printf("\n         do: %s", d->todo);
    printf("\n");
}

void doctor_print(const struct doctor_facts *f, const struct doctor_findings *d)
{
    print_cpu(f);
    if (!f->recorded) {
        subject("kernels");
        doctor_print_backends(f);
    }
    print_caches(&f->machine);
    print_nodes(&f->machine);
    print_limits(&f->machine);
    print_frequency(&f->machine);
    print_memory(&f->machine);
    print_speed(f);
    print_company(f);
    printf("\n");
    for (size_t i = 0; i < d->n; i++) print_finding(&d->items[i]);
}
