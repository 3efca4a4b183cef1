/* SPDX-License-Identifier: Apache-2.0 */
#include "app/interrupt.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

/* The signal that came, 0 for none. The handler sets it. */
static volatile sig_atomic_t caught;

static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
enum { N_SIGNALS = sizeof signals / sizeof signals[0] };

/* How the terminal is left behind when a second signal ends the program at once. */
static struct termios kept;
static volatile sig_atomic_t has_kept;

static void on_signal(int signal_number)
{
    if (caught == signal_number) {
        if (has_kept) tcsetattr(STDIN_FILENO, TCSANOW, &kept);
        signal(signal_number, SIG_DFL);
        raise(signal_number); /* comes when this handler returns */
    }
    caught = signal_number;
}

void interrupt_keep_terminal(const struct termios *t)
{
    has_kept = 0;
    if (t) kept = *t;
    has_kept = t != NULL;
}

void interrupt_install(void)
{
    struct sigaction a, old;
    memset(&a, 0, sizeof a);
    a.sa_handler = on_signal;
    a.sa_flags = 0; /* no SA_RESTART: a blocked read must return */
    sigemptyset(&a.sa_mask);
    for (int i = 0; i < N_SIGNALS; i++)
        /* nohup and shells that start jobs in the background ignore some of these: leave that as
         * it is */
        if (sigaction(signals[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
            sigaction(signals[i], &a, NULL);
    /* a reader that has left ends us silently, also when our parent ignored SIGPIPE */
    signal(SIGPIPE, SIG_DFL);
}

bool interrupt_pending(void) { return caught != 0; }
bool interrupt_by_user(void) { return caught == SIGINT; }

void interrupt_clear(void)
{
    caught = 0;
    interrupt_install();
}

bool interrupt_wait_readable(int fd)
{
    sigset_t ours, before;
    sigemptyset(&ours);
    for (int i = 0; i < N_SIGNALS; i++) sigaddset(&ours, signals[i]);
    /* held back while we look; ppoll lets them in and begins to wait in one step */
    sigprocmask(SIG_BLOCK, &ours, &before);
    struct pollfd p = {.fd = fd, .events = POLLIN};
    int got = 0;
    while (!caught && (got = ppoll(&p, 1, NULL, &before)) < 0 && errno == EINTR) {
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
    return !caught && got != 0; /* what poll cannot wait for, read() will explain */
}

int interrupt_exit_code(void) { return 128 + (caught ? (int)caught : SIGINT); }
