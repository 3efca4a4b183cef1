/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/options/backend.h"

#include "app/term.h"
#include "base/buf.h"
#include <bitnet/bitnet.h>
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

int backend_check(const char *name, const char *command)
{
    struct bn_buf known;
    bn_buf_init(&known, 1024);
    bn_buf_puts(&known, "auto");
    bool ok = strcmp(name, "auto") == 0;
    const char *b;
    for (size_t i = 0; !ok && (b = bitnet_backend_name(i, NULL)); i++) {
        ok = strcmp(name, b) == 0;
        bn_buf_printf(&known, ", %s", b);
    }
    int code = EXIT_DONE;
    if (!ok)
        code = term_usage(command, "there is no backend '%s'; known: %s", name,
                          known.data ? known.data : "");
    bn_buf_free(&known);
    return code;
}

/* In a process of its own, which leaves no core and nothing of ours in another state. Where there
 * cannot be one, nobody knows, and the kernels are taken as they are. */
static bool ends_illegally(const char *backend)
{
    int status;
    pid_t child = fork();
    if (child < 0) return false;
    if (child == 0) {
        setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
        signal(SIGILL, SIG_DFL);
        bitnet_kernel_selftest(backend, NULL);
        _exit(0); /* what the test says, it says again to whoever opens a model */
    }
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR) return false;
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGILL;
}

/* The best of the supported backends below `name`, NULL: below none of them. */
static const char *lesser(const char *name)
{
    const char *below = NULL, *b;
    int supported;
    for (size_t i = 0; (b = bitnet_backend_name(i, &supported)); i++) {
        if (name && strcmp(b, name) == 0) break;
        if (supported) below = b;
    }
    return below;
}

const char *backend_probe(const char **name)
{
    const char *asked = strcmp(*name, "auto") == 0 ? lesser(NULL) : *name, *runs = asked, *next;
    char note[256];
    while (ends_illegally(runs) && (next = lesser(runs))) runs = next;
    if (runs == asked) return NULL;
    *name = runs;
    snprintf(
        note, sizeof note,
        "this CPU says that it has %s, and calls it an illegal instruction when it comes; %s is "
        "used",
        asked, runs);
    term_note(note);
    return asked;
}
