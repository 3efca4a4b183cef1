/* SPDX-License-Identifier: Apache-2.0
 *
 * profile/verdict.c: a report in words: what limits decoding, what would help most, and what was
 * not as it should be. A function of the report alone. Each sentence has its rule, and its limit
 * stands here.
 */
#include "base/buf.h"
#include "app/report.h"
#include "cli/profile/profile.h"

enum { VERDICT_MAX_BYTES = 4096 };

static const double memory_bound = 0.70; /* share of the bandwidth */
static const double from_caches = 1.05;  /* more than the memory can give */
static const double much_waiting = 0.15, much_attention = 0.25, much_sampling = 0.05;
static const double large_head = 0.15; /* of the bytes of a token */
static const double busy_others = 0.05;
static const double good_kernel = 0.70;

/* ------------------------------------------------------------------ looking things up */

static const struct bn_json *decode_of(const struct bn_json *report)
{
    return bn_json_get(bn_json_get(report, "phases"), "decode");
}

/* A number of one kind of operations; 0 if it did not occur. */
static double kind_number(const struct bn_json *phase, const char *kind, const char *key)
{
    const struct bn_json *kinds = bn_json_get(phase, "kinds");
    for (size_t i = 0; i < bn_json_size(kinds); i++)
        if (strcmp(report_text(bn_json_at(kinds, i), "kind"), kind) == 0)
            return report_number(bn_json_at(kinds, i), key);
    return 0;
}

/* The operation that takes most of the time, but for waiting. */
static const struct bn_json *largest_op(const struct bn_json *phase)
{
    const struct bn_json *ops = bn_json_get(phase, "ops"), *best = NULL;
    for (size_t i = 0; i < bn_json_size(ops); i++) {
        const struct bn_json *op = bn_json_at(ops, i);
        if (strcmp(report_text(op, "kind"), "wait") == 0) continue;
        if (!best || report_number(op, "share") > report_number(best, "share")) best = op;
    }
    return best;
}

static double of_member(const struct bn_json *o, const char *object, const char *key)
{
    return report_number(bn_json_get(o, object), key);
}

static void put_bytes(struct bn_buf *b, double bytes)
{
    bn_buf_printf(b, bytes >= 1e8 ? "%.2f GB" : "%.1f MB", bytes / (bytes >= 1e8 ? 1e9 : 1e6));
}

/* ------------------------------------------------------------------ what limits decoding */

/* Fewer bytes are all that helps. */
static void say_memory(struct bn_buf *b, const struct bn_json *r)
{
    const struct bn_json *d = decode_of(r), *settings = bn_json_get(r, "settings");
    double all = report_number(d, "bytes_per_token");
    double head = all > 0 ? kind_number(d, "head", "bytes_per_token") / all : 0;
    const char *layout = report_text(bn_json_get(r, "model"), "layout");
    bn_buf_puts(b, "memory-bound");
    if (head >= large_head) {
        bn_buf_printf(b, "; the head is %.0f %% of it: a smaller head would help most", head * 100);
        if (strcmp(report_text(settings, "head"), "exact") == 0)
            bn_buf_puts(b, " (--head screened, or int8)");
    } else if (strcmp(layout, "t2") == 0) {
        bn_buf_puts(b, "; --layout t3 or t5 has fewer bytes for the same weights");
    } else {
        bn_buf_puts(b, "; this model cannot be decoded much faster here");
    }
    bn_buf_puts(b, ". ");
}

/* Why workers wait, as far as the report knows. */
static void say_waiting(struct bn_buf *b, const struct bn_json *r, double waiting)
{
    const struct bn_json *machine = bn_json_get(r, "machine");
    double threads = report_number(machine, "threads"),
           cpus = report_number(machine, "usable_cpus");
    double others = report_number(machine, "others");
    bn_buf_printf(b, "held up by waiting: %.0f %% of the %.0f threads' time; ", waiting * 100,
                  threads);
    if (threads > cpus)
        bn_buf_printf(b, "there are more threads than the %.0f usable CPUs (-t %.0f). ", cpus,
                      cpus);
    else if (others > busy_others)
        bn_buf_puts(b, "other programs take CPUs away from workers that the rest then waits for. ");
    else
        bn_buf_puts(b, "the parts between barriers may be too short for so many threads: try fewer "
                       "(-t), or a larger batch. ");
}

static void say_computing(struct bn_buf *b, const struct bn_json *r, bool caches)
{
    const struct bn_json *op = largest_op(decode_of(r)), *machine = bn_json_get(r, "machine");
    double threads = report_number(machine, "threads"),
           usual = report_number(machine, "default_threads");
    bn_buf_puts(b, caches ? "the weights come from the caches, so the CPU is the limit"
                          : "compute-bound");
    if (op)
        bn_buf_printf(b, "; most of the time goes to '%s', %.0f %%", report_text(op, "op"),
                      report_number(op, "share") * 100);
    if (threads < usual)
        bn_buf_printf(
            b, "; %.0f of %.0f threads that this machine has cores for: more would help (-t %.0f)",
            threads, usual, usual);
    bn_buf_puts(b, ". ");
}

static void say_limit(struct bn_buf *b, const struct bn_json *r)
{
    const struct bn_json *d = decode_of(r), *machine = bn_json_get(r, "machine");
    double share = report_number(d, "roofline_share"), waiting = kind_number(d, "wait", "share");
    bn_buf_puts(b, "Decode reads ");
    put_bytes(b, report_number(d, "bytes_per_token"));
    bn_buf_printf(b, " a token at %.1f GB/s, %.0f %% of the %.1f GB/s that this machine can read: ",
                  report_number(d, "bytes_per_s") / 1e9, share * 100,
                  report_number(machine, "bandwidth_bytes_per_s") / 1e9);
    if (share >= memory_bound && share <= from_caches) say_memory(b, r);
    else if (waiting > much_waiting) say_waiting(b, r, waiting);
    else say_computing(b, r, share > from_caches);
}

/* ------------------------------------------------------------------ what else is worth a word */

static void say_parts(struct bn_buf *b, const struct bn_json *r)
{
    const struct bn_json *d = decode_of(r), *settings = bn_json_get(r, "settings");
    double attention = kind_number(d, "attention", "share"),
           sampling = kind_number(d, "sampling", "share");
    const char *kv = report_text(settings, "kv_type");
    if (attention > much_attention) {
        bn_buf_printf(b,
                      "Attention takes %.0f %% of the time behind %.0f tokens, and more behind "
                      "longer texts",
                      attention * 100, report_number(settings, "prompt_tokens"));
        if (strstr(kv, "16") || strstr(kv, "32"))
            bn_buf_printf(b, ": a smaller cache than %s would help (--kv-type int8)", kv);
        bn_buf_puts(b, ". ");
    }
    if (sampling > much_sampling)
        bn_buf_printf(b, "Sampling and text take %.0f %%, by one thread while the others wait. ",
                      sampling * 100);
}

static void say_prefill(struct bn_buf *b, const struct bn_json *r)
{
    const struct bn_json *p = bn_json_get(bn_json_get(r, "phases"), "prefill");
    const struct bn_json *kernel = bn_json_get(p, "kernel_share");
    double waiting = kind_number(p, "wait", "share");
    if (!(report_number(p, "tok_per_s") > 0)) return;
    bn_buf_printf(b, "Prefill reads %.0f tokens a second", report_number(p, "tok_per_s"));
    if (kernel)
        bn_buf_printf(b, ", its matrices at %.0f %% of what their kernel does in the cache%s",
                      bn_json_number(kernel) * 100,
                      bn_json_number(kernel) >= good_kernel ? ": compute-bound" : "");
    if (waiting > much_waiting) bn_buf_printf(b, "; %.0f %% of it is waiting", waiting * 100);
    bn_buf_puts(b, ". ");
}

/* What should be zero while decoding, or is somebody else's doing. */
static void say_faults(struct bn_buf *b, const struct bn_json *r)
{
    const struct bn_json *d = decode_of(r);
    double minor = of_member(d, "page_faults", "minor_per_token"),
           major = of_member(d, "page_faults", "major_per_token"),
           heap = report_number(d, "heap_allocations_per_token"),
           others = of_member(r, "machine", "others"),
           throttled = of_member(r, "frequency", "throttle_events");
    if (minor + major > 0)
        bn_buf_printf(b,
                      "There were %.2f page faults a token after the warm-up, and should be none: "
                      "memory was not there yet, or was taken away. ",
                      minor + major);
    if (heap > 0)
        bn_buf_printf(b, "There were %.2f heap allocations a token, and should be none. ", heap);
    if (throttled > 0)
        bn_buf_printf(b, "The CPU was slowed down %.0f times because of heat. ", throttled);
    if (others > busy_others)
        bn_buf_printf(b, "Other programs used %.0f %% of the machine meanwhile. ", others * 100);
}

char *profile_verdict(const struct bn_json *report)
{
    struct bn_buf b;
    bn_buf_init(&b, VERDICT_MAX_BYTES);
    say_limit(&b, report);
    say_parts(&b, report);
    say_prefill(&b, report);
    say_faults(&b, report);
    if (b.len) b.data[--b.len] = 0; /* the space at its end */
    char *text = bn_buf_take(&b);
    bn_buf_free(&b);
    return text;
}
