/* SPDX-License-Identifier: Apache-2.0
 *
 * pairs.c: `bitnet bench diff --run OLD NEW`: two programs are measured in turn, old new, new
 * old, old new, ..., each time in a process of its own. Reports that were taken one after the other
 * differ by whatever the machine did in between, and by the luck of each process (where its memory
 * came to lie), which their own repeats cannot show. Here every process gives one value, its
 * median, and the two of a pair are compared with each other. Where it decodes, it also gives the median of
 * its steps: most steps are short enough to pass between two interruptions, so that this figure
 * still says something on a machine that others use as well.
 */
#include "base/os/mem.h"
#include "app/report.h"
#include "cli/bench/bench.h"
#include "cli/core/command.h"
#include "app/interrupt.h"
#include "app/term.h"
#include <errno.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

struct side {
    const char *program;
    struct bn_json *report; /* owned: of the first run, with the repeats of all */
};

/* ------------------------------------------------------------------ one run */

/* *failed: how it ended if not well; 0: not run at all, errno says why. */
static bool spawn(char *const *argv, int out_fd, int *failed)
{
    posix_spawn_file_actions_t files;
    pid_t pid;
    *failed = 0;
    if (posix_spawn_file_actions_init(&files) != 0) return false;
    posix_spawn_file_actions_adddup2(&files, out_fd, STDOUT_FILENO);
    int e = posix_spawnp(&pid, argv[0], &files, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&files);
    if (e) {
        errno = e;
        return false;
    }
    while (waitpid(pid, failed, 0) < 0)
        if (errno != EINTR) return false;
    return *failed == 0;
}

/* argv[0] is the program. */
static int run_once(struct bn_json **report, char *const *argv)
{
    char path[64];
    bitnet_error err = {0};
    int failed, code = EXIT_DONE, fd = memfd_create("bitnet-report", MFD_CLOEXEC);
    if (fd < 0) return term_fail_text("cannot make a file in memory: %s", strerror(errno));
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (!spawn(argv, fd, &failed)) {
        if (interrupt_pending()) code = interrupt_exit_code();
        else if (failed) code = term_fail_text("'%s bench' failed", argv[0]);
        else code = term_fail_text("cannot run '%s': %s", argv[0], strerror(errno));
    } else if (bench_read_report(report, path, &err) != BITNET_OK) {
        code = term_fail_text("'%s bench --json' gave no report: %s", argv[0], err.text);
    }
    close(fd);
    return code;
}

/* ------------------------------------------------------------------ many runs */

static void append(struct bn_json *o, const char *key, double value)
{
    bn_json_append(bn_json_get(o, key), bn_json_real(value));
}

/* Adds what one run found to the side; the first run's report is the one that is kept. */
static bool collect(struct side *s, struct bn_json *report)
{
    bool first = !s->report;
    if (first) s->report = bn_json_ref(report);
    struct bn_json *items = bn_json_get(s->report, "measurements"),
                   *machine = bn_json_get(s->report, "machine");
    const struct bn_json *others = bn_json_get(report, "measurements");
    double bandwidth = report_number(bn_json_get(report, "machine"), "read_bandwidth_gb_s");
    if (bn_json_size(items) != bn_json_size(others)) return false;
    if (first) bn_json_set(machine, "read_bandwidth_gb_s_repeats", bn_json_array());
    append(machine, "read_bandwidth_gb_s_repeats", bandwidth);
    for (size_t i = 0; i < bn_json_size(items); i++) {
        struct bn_json *m = bn_json_at(items, i);
        const struct bn_json *other = bn_json_at(others, i);
        double median = report_number(other, "median"), ttft = report_number(other, "ttft_ms");
        double step = report_number(bn_json_get(other, "step_ms"), "p50");
        if (strcmp(report_text(m, "name"), report_text(other, "name")) != 0) return false;
        if (first) bn_json_set(m, "repeats", bn_json_array());
        if (first && ttft > 0) bn_json_set(m, "ttft_ms_repeats", bn_json_array());
        if (first && step > 0) bn_json_set(m, "step_ms_repeats", bn_json_array());
        append(m, "repeats", median);
        if (ttft > 0) append(m, "ttft_ms_repeats", ttft);
        if (step > 0) append(m, "step_ms_repeats", step);
    }
    return true;
}

static int run_side(struct side *s, char **argv)
{
    struct bn_json *report = NULL;
    argv[0] = (char *)s->program;
    int code = run_once(&report, argv);
    if (code == EXIT_DONE && !collect(s, report))
        code = term_fail_text("'%s' does not measure the same each time", s->program);
    bn_json_free(report);
    return code;
}

static int run_pairs(struct side *sides, uint32_t n, char **argv)
{
    struct term_progress bar = {0};
    int code = EXIT_DONE;
    for (uint32_t i = 0; code == EXIT_DONE && i < 2 * n; i++) {
        bool new_one = i % 4 == 1 || i % 4 == 2;
        if (term_progress_show(&bar, new_one ? "new" : "old", i, 2 * (uint64_t)n))
            code = interrupt_exit_code();
        else code = run_side(&sides[new_one], argv);
    }
    term_progress_end(&bar);
    return code;
}

int bench_pairs(const struct bench_diff_options *o, uint32_t n, char *const *args, size_t n_args)
{
    char bench[] = "bench", json[] = "--json";
    struct side sides[2] = {{.program = o->old_name}, {.program = o->new_name}};
    char **argv = bn_calloc(n_args + 4, sizeof *argv);
    if (!argv) return term_fail_text("out of memory");
    size_t at = 1;
    argv[at++] = bench;
    for (size_t i = 0; i < n_args; i++) argv[at++] = args[i];
    argv[at] = json;
    int code = run_pairs(sides, n, argv);
    struct bench_diff_options paired = *o;
    paired.paired = true;
    if (code == EXIT_DONE) code = bench_diff_reports(sides[0].report, sides[1].report, &paired);
    bn_json_free(sides[0].report);
    bn_json_free(sides[1].report);
    free(argv);
    return code;
}
