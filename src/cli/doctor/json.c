/* SPDX-License-Identifier: Apache-2.0
 *
 * doctor/json.c: facts and findings as JSON. What is unknown is null.
 */
#include "cli/doctor/doctor.h"
#include "app/report.h"

/* "" is unknown. */
static void set_known_text(struct bn_json *o, const char *key, const char *s)
{
    if (*s) set_text(o, key, s);
    else bn_json_set(o, key, bn_json_null());
}

/* 0 is unknown. */
static void set_known(struct bn_json *o, const char *key, uint64_t v)
{
    bn_json_set(o, key, v ? bn_json_int((int64_t)v) : bn_json_null());
}

static void set_answer(struct bn_json *o, const char *key, enum bn_tristate a)
{
    bn_json_set(o, key, a == BN_UNKNOWN ? bn_json_null() : bn_json_bool(a == BN_YES));
}

static void set_cpus(struct bn_json *o, const char *key, const cpu_set_t *set_of)
{
    char list[BN_MAX_CPUS * 4];
    bn_cpus_format(list, sizeof list, set_of);
    bn_json_set(o, key, bn_json_string(list));
}

static struct bn_json *json_cpus(const struct bn_machine *m)
{
    const struct bn_topology *t = &m->cpus;
    cpu_set_t fast = bn_topology_fast(t);
    struct bn_json *o = bn_json_object();
    set_known_text(o, "name", m->cpu_name);
    set_cpus(o, "online", &t->online);
    set_cpus(o, "usable", &t->usable);
    set_cpus(o, "fast", &fast);
    set_int(o, "cpus", CPU_COUNT(&t->online));
    set_int(o, "packages", bn_topology_groups(t->package, &t->online));
    set_int(o, "cores", bn_topology_groups(t->core, &t->online));
    set_int(o, "usable_cores", bn_topology_groups(t->core, &t->usable));
    set_answer(o, "smt", m->smt);
    bn_json_set(o, "hybrid", bn_json_bool(CPU_COUNT(&t->slow) > 0));
    set_answer(o, "virtual_machine", m->virtual_machine);
    set_known_text(o, "virtual_name", m->virtual_machine == BN_YES ? m->virtual_name : "");
    set_int(o, "default_threads", m->default_threads);
    return o;
}

static struct bn_json *json_caches(const struct bn_machine *m)
{
    struct bn_json *a = bn_json_array();
    for (uint32_t i = 0; i < m->n_caches; i++) {
        const struct bn_machine_cache *c = &m->caches[i];
        const char *type = c->type == 'd' ? "data" : c->type == 'i' ? "instructions" : "unified";
        bn_json_append(a, bn_json_pack("{s:I, s:s, s:I, s:I, s:I}", "level", (int64_t)c->level,
                                       "type", type, "bytes", (int64_t)c->bytes, "count",
                                       (int64_t)c->n, "cpus", (int64_t)c->cpus));
    }
    return a;
}

static struct bn_json *json_nodes(const struct bn_machine *m)
{
    struct bn_json *a = bn_json_array();
    for (uint32_t i = 0; i < m->n_nodes; i++) {
        const struct bn_machine_node *n = &m->nodes[i];
        struct bn_json *o = bn_json_object();
        set_int(o, "id", n->id);
        set_int(o, "cpus", n->n_cpus);
        set_known(o, "total_bytes", n->total_bytes);
        set_known(o, "free_bytes", n->free_bytes);
        set_known(o, "farthest", n->farthest);
        bn_json_append(a, o);
    }
    return a;
}

static struct bn_json *json_limits(const struct bn_machine *m)
{
    struct bn_json *o = bn_json_object();
    bn_json_set(o, "quota_cpus",
                m->group.quota_cpus > 0 ? bn_json_real(m->group.quota_cpus) : bn_json_null());
    set_int(o, "periods", m->group.n_periods);
    set_int(o, "periods_throttled", m->group.n_throttled);
    set_known_text(o, "cpuset", m->group.cpuset);
    set_known(o, "memory_bytes", m->group.memory_bytes);
    if (m->memlock_bytes == UINT64_MAX)
        bn_json_set(o, "memlock_bytes", bn_json_string("unlimited"));
    else set_known(o, "memlock_bytes", m->memlock_bytes);
    return o;
}

static struct bn_json *json_frequency(const struct bn_machine *m)
{
    struct bn_json *o = bn_json_object();
    set_known_text(o, "driver", m->driver);
    set_known_text(o, "governor", m->governor);
    set_known_text(o, "preference", m->preference);
    set_known(o, "min_khz", m->min_khz);
    set_known(o, "max_khz", m->max_khz);
    set_known(o, "now_khz", m->now_khz);
    set_answer(o, "boost", m->boost);
    bn_json_set(o, "throttles",
                m->throttle_known == BN_YES ? bn_json_int((int64_t)m->n_throttles)
                                            : bn_json_null());
    return o;
}

static struct bn_json *json_memory(const struct bn_machine *m)
{
    struct bn_json *o = bn_json_object(), *huge = bn_json_array();
    set_known(o, "total_bytes", m->memory_bytes);
    set_known(o, "available_bytes", m->available_bytes);
    set_int(o, "swap_bytes", m->swap_bytes);
    set_int(o, "swap_used_bytes", m->swap_used_bytes);
    set_known_text(o, "transparent_huge_pages", m->thp);
    set_known_text(o, "transparent_huge_pages_defrag", m->thp_defrag);
    set_answer(o, "khugepaged_defrag", m->khugepaged);
    for (uint32_t i = 0; i < m->n_huge; i++)
        bn_json_append(huge,
                       bn_json_pack("{s:I, s:I, s:I}", "page_bytes", (int64_t)m->huge[i].page_bytes,
                                    "pages", (int64_t)m->huge[i].n_pages, "free",
                                    (int64_t)m->huge[i].n_free));
    bn_json_set(o, "huge_pages", huge);
    return o;
}

static struct bn_json *json_measured(const struct doctor_facts *f)
{
    struct bn_json *o = bn_json_object();
    double load = f->machine.load_average;
    bn_json_set(o, "read_one_thread_gb_s",
                f->read_one > 0 ? bn_json_real(f->read_one / 1e9) : bn_json_null());
    bn_json_set(o, "read_gb_s", f->read_all > 0 ? bn_json_real(f->read_all / 1e9) : bn_json_null());
    bn_json_set(o, "other_programs_share",
                f->others < 0 ? bn_json_null() : bn_json_real(f->others));
    bn_json_set(o, "load_average", load < 0 ? bn_json_null() : bn_json_real(load));
    bn_json_set(o, "perf_event_paranoid",
                f->machine.perf_known == BN_YES ? bn_json_int(f->machine.perf_paranoid)
                                                : bn_json_null());
    return o;
}

static struct bn_json *json_models(const struct doctor_facts *f)
{
    struct bn_json *a = bn_json_array();
    for (size_t i = 0; i < f->n_models; i++) {
        const struct doctor_model *m = &f->models[i];
        double most = doctor_tokens_s(f, m);
        struct bn_json *o = bn_json_object();
        set_known_text(o, "name", m->name);
        set_int(o, "token_bytes", m->token_bytes);
        set_int(o, "memory_bytes", m->memory_bytes);
        bn_json_set(o, "fits_into_caches", bn_json_bool(doctor_cached(f, m)));
        bn_json_set(o, "most_tok_s", most > 0 ? bn_json_real(most) : bn_json_null());
        bn_json_set(o, "usual_tok_s",
                    most > 0
                        ? bn_json_pack("[f, f]", most * DOCTOR_USUAL_LOW, most * DOCTOR_USUAL_HIGH)
                        : bn_json_null());
        bn_json_append(a, o);
    }
    return a;
}

static struct bn_json *json_findings(const struct doctor_findings *d)
{
    struct bn_json *a = bn_json_array();
    for (size_t i = 0; i < d->n; i++) {
        const struct doctor_finding *x = &d->items[i];
        struct bn_json *o = bn_json_object();
        set_known_text(o, "id", x->id);
        set_known_text(o, "severity", doctor_severity_name(x->severity));
        set_known_text(o, "what", x->what);
        bn_json_set(o, "cost", *x->basis ? bn_json_real(x->cost) : bn_json_null());
        set_known_text(o, "basis", x->basis);
        set_known_text(o, "how", x->how);
        set_known_text(o, "do", x->todo);
        bn_json_append(a, o);
    }
    return a;
}

struct bn_json *doctor_json(const struct doctor_facts *f, const struct doctor_findings *d)
{
    const struct bn_machine *m = &f->machine;
    struct bn_json *o = bn_json_object();
    set_known_text(o, "version", bitnet_version());
    bn_json_set(o, "recorded", bn_json_bool(f->recorded));
    set_int(o, "threads", f->threads);
    bn_json_set(o, "cpu", json_cpus(m));
    bn_json_set(o, "kernels", f->recorded ? bn_json_null() : doctor_json_kernels(f));
    bn_json_set(o, "caches", json_caches(m));
    bn_json_set(o, "nodes", json_nodes(m));
    bn_json_set(o, "limits", json_limits(m));
    bn_json_set(o, "frequency", json_frequency(m));
    bn_json_set(o, "memory", json_memory(m));
    bn_json_set(o, "measured", json_measured(f));
    bn_json_set(o, "models", json_models(f));
    bn_json_set(o, "findings", json_findings(d));
    return o;
}
