/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/bench.h"
#include "cli/command.h"
#include "cli/model_opts.h"
#include "cli/term.h"
#include <errno.h>
#include <sys/mman.h>

int bench_synthetic(int *fd, char path[BENCH_FD_PATH_BYTES], const char *shape,
                    bitnet_synth_options *o)
{
    int code = model_shape_check(shape, "bench");
    if (code != EXIT_DONE) return code;
    *fd = memfd_create("bitnet-synthetic", MFD_CLOEXEC);
    if (*fd < 0) return term_fail_text("cannot make a file in memory: %s", strerror(errno));
    snprintf(path, BENCH_FD_PATH_BYTES, "/proc/self/fd/%d", *fd);
    struct term_progress bar = {0};
    bitnet_error err = {0};
    o->overwrite = 1;
    o->progress = term_progress_show;
    o->progress_user = &bar;
    bitnet_status s = bitnet_synth(shape, path, o, &err);
    term_progress_end(&bar);
    return s == BITNET_OK ? EXIT_DONE : term_fail(&err);
}
