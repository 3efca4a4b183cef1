/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/options/pull_model.h"

#include "app/interrupt.h"
#include "app/term.h"
#include "base/clock.h"
#include "base/machine/machine.h"
#include "hub/catalogue.h"
#include "hub/pull.h"
#include <bitnet/bitnet.h>
#include <signal.h>

enum { DRAW_MS = 100, RATE_MS = 3000, NAME_COLUMNS = 28, BAR_CELLS = 30 };

struct show {
    const char *name;
    bool quiet, drawn;
    struct hub_pull_plan plan;
    char licence[64];
    uint64_t start_ns, drawn_ns;
    /* the rate is that of the last seconds */
    uint64_t mark_ns, mark_bytes;
    double rate;
};

/* "1:07:09", "2:05", "48 s" */
static const char *duration(char out[24], double s)
{
    unsigned long t = s > 0 && s < 1e8 ? (unsigned long)(s + 0.5) : 0;
    if (t >= 3600) snprintf(out, 24, "%lu:%02lu:%02lu", t / 3600, t / 60 % 60, t % 60);
    else if (t >= 60) snprintf(out, 24, "%lu:%02lu", t / 60, t % 60);
    else snprintf(out, 24, "%lu s", t);
    return out;
}

static void measure(struct show *v, uint64_t done, uint64_t now)
{
    if (!v->mark_ns) {
        v->mark_ns = now;
        v->mark_bytes = done;
    }
    double passed = (double)(now - v->mark_ns) / 1e9;
    if (passed < 0.3 || done < v->mark_bytes) return;
    double rate = (double)(done - v->mark_bytes) / passed;
    v->rate = v->rate > 0 ? 0.7 * v->rate + 0.3 * rate : rate;
    v->mark_ns = now;
    v->mark_bytes = done;
}

static void draw(struct show *v, const struct hub_pull_state *s)
{
    char done[TERM_SIZE_BYTES], total[TERM_SIZE_BYTES], rate[TERM_SIZE_BYTES], left[24], tail[128];
    char bar[BAR_CELLS + 1];
    double share = s->total ? (double)s->done / (double)s->total : 1;
    if (s->checking) snprintf(tail, sizeof tail, "%3.0f %%  comparing checksums", share * 100);
    else
        snprintf(tail, sizeof tail, "%3.0f %%  %s of %s  %s/s%s%s%s", share * 100,
                 term_size(done, s->done), term_size(total, s->total),
                 term_size(rate, (uint64_t)v->rate), v->rate > 0 ? "  " : "",
                 v->rate > 0 ? duration(left, (double)(s->total - s->done) / v->rate) : "",
                 v->rate > 0 ? " left" : "");
    int width = term_width(stderr), name = (int)strlen(v->name);
    if (name > NAME_COLUMNS) name = NAME_COLUMNS;
    int room = width - (int)strlen(tail) - name - 6;
    size_t cells = room > BAR_CELLS ? BAR_CELLS : room < 4 ? 0 : (size_t)room;
    memset(bar, '.', cells);
    memset(bar, '#', bn_min_size((size_t)(share * (double)cells), cells));
    bar[cells] = 0;
    if (name + (int)strlen(tail) + 2 > width) name = 0; /* a narrow terminal: figures only */
    fprintf(stderr, "\r\033[K%.*s%s%s%s%s%.*s", name, v->name, name ? " " : "", cells ? "[" : "",
            bar, cells ? "] " : "", width - 1, tail);
    fflush(stderr);
    v->drawn = true;
}

static void on_progress(void *user, const struct hub_pull_state *s)
{
    struct show *v = user;
    uint64_t now = bn_now_ns();
    if (!s->checking) measure(v, s->done, now);
    if (v->quiet || !term_is_tty(stderr)) return;
    if (now - v->drawn_ns < (uint64_t)DRAW_MS * 1000000u) return;
    v->drawn_ns = now;
    draw(v, s);
}

static void on_waiting(void *user, const char *what)
{
    struct show *v = user;
    char note[256];
    if (v->quiet) return;
    if (v->drawn) fputs("\r\033[K", stderr);
    v->drawn = false;
    snprintf(note, sizeof note, "another program is downloading '%.150s'; waiting for it", what);
    term_note(note);
}

static void on_plan(void *user, const struct hub_pull_plan *plan)
{
    struct show *v = user;
    char size[TERM_SIZE_BYTES], missing[TERM_SIZE_BYTES];
    v->plan = *plan;
    snprintf(v->licence, sizeof v->licence, "%s", plan->licence);
    v->plan.licence = v->licence;
    if (v->quiet || !plan->missing_bytes) return;
    fprintf(stderr, "%s: %s", v->name, term_size(size, plan->bytes));
    if (plan->n_files > 1) fprintf(stderr, " in %zu files", plan->n_files);
    uint64_t left = plan->missing_bytes - plan->begun_bytes;
    if (left < plan->bytes) fprintf(stderr, ", %s still to come", term_size(missing, left));
    if (*plan->licence) {
        fprintf(stderr, ", licence ");
        term_print_clean(stderr, plan->licence);
    }
    fputc('\n', stderr);
    pull_tell_memory(plan->bytes);
}

void pull_tell_memory(uint64_t file_bytes)
{
    char need[TERM_SIZE_BYTES], have[TERM_SIZE_BYTES], total[TERM_SIZE_BYTES], note[192];
    struct bn_machine m;
    struct bn_machine_source here;
    uint64_t bytes = hub_memory_need(file_bytes);
    bn_machine_source_here(&here);
    bn_machine_read(&m, &here);
    if (!m.memory_bytes) return;
    term_size(need, bytes);
    term_size(total, m.memory_bytes);
    if (bytes > m.memory_bytes) {
        snprintf(
            note, sizeof note,
            "it needs about %s of memory, and this machine has %s: it will be very slow, if it "
            "runs at all",
            need, total);
        term_note(note);
    } else
        fprintf(stderr, "It needs about %s of memory; %s of %s are available here.\n", need,
                term_size(have, m.available_bytes), total);
}

/* What this engine cannot run may be of use to another; but the user should know. */
static void tell_runnable(const char *path)
{
    bitnet_file *f = NULL;
    bitnet_error err = {0};
    bitnet_file_model m = {.size = sizeof m};
    char note[sizeof err.text + 64];
    bitnet_status s = bitnet_file_open(&f, path, &err);
    if (s == BITNET_OK) s = bitnet_file_get_model(f, &m, &err);
    bitnet_file_close(f);
    if (s == BITNET_OK) return;
    snprintf(note, sizeof note, "it is here, but cannot run here: %s", err.text);
    term_note(note);
}

static bool user_interrupts(void *user)
{
    (void)user;
    return interrupt_pending();
}

static int with_hub(struct hub_local *got, const struct hub_places *p, const struct hub_name *name,
                    struct show *v, bool only_plan)
{
    char text[HUB_TYPED_BYTES];
    struct hub_net net;
    bitnet_error err = {0};
    const struct hub_pull_view view = {v, on_plan, on_progress, on_waiting};
    hub_name_text(text, name);
    v->name = text;
    if (p->offline)
        return term_fail_text("'%s' cannot be looked up: downloads are switched off (--offline or "
                              "HF_HUB_OFFLINE)",
                              text);
    v->start_ns = bn_now_ns();
    void (*before)(int) = signal(SIGPIPE, SIG_IGN); /* of connections that break */
    bitnet_status s = hub_net_open(&net, p, &(struct hub_cancel){user_interrupts, NULL}, &err);
    if (s == BITNET_OK) s = hub_pull(got, &net, name, &view, only_plan, &err);
    hub_net_close(&net);
    signal(SIGPIPE, before);
    if (v->drawn) fputs("\r\033[K", stderr);
    if (s == BITNET_E_CANCELLED && interrupt_pending() && !v->quiet && v->mark_bytes)
        term_note("what was downloaded is kept; the same command goes on from there");
    v->name = "";
    return s == BITNET_OK ? EXIT_DONE : term_fail(&err);
}

int pull_model(struct hub_local *got, const struct hub_places *p, const struct hub_name *name,
               bool quiet)
{
    char size[TERM_SIZE_BYTES], rate[TERM_SIZE_BYTES], took[24];
    struct show v = {.quiet = quiet};
    int code = with_hub(got, p, name, &v, false);
    if (code != EXIT_DONE || quiet) return code;
    double s = (double)(bn_now_ns() - v.start_ns) / 1e9;
    uint64_t came = v.plan.missing_bytes - v.plan.begun_bytes;
    if (!v.plan.missing_bytes) fprintf(stderr, "%s is here already\n", got->name);
    else
        fprintf(stderr, "%s: %s in %s, %s/s, checksums compared\n", got->name,
                term_size(size, came), duration(took, s),
                term_size(rate, (uint64_t)((double)came / (s > 0.001 ? s : 1))));
    tell_runnable(got->path);
    return code;
}

bitnet_status pull_quietly(struct hub_local *got, const struct hub_places *p,
                           const struct hub_name *name, const struct hub_pull_view *view,
                           const struct hub_cancel *cancel, bitnet_error *err)
{
    struct hub_net net;
    BN_TRY(hub_net_open(&net, p, cancel, err));
    bitnet_status s = hub_pull(got, &net, name, view, false, err);
    hub_net_close(&net);
    return s;
}

int pull_look(struct pull_plan *out, const struct hub_places *p, const struct hub_name *name)
{
    struct hub_local none;
    struct show v = {.quiet = true};
    int code = with_hub(&none, p, name, &v, true);
    *out = (struct pull_plan){
        .n_files = v.plan.n_files, .bytes = v.plan.bytes, .missing_bytes = v.plan.missing_bytes};
    snprintf(out->licence, sizeof out->licence, "%s", v.licence);
    return code;
}
