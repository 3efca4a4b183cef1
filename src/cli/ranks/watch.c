/* SPDX-License-Identifier: Apache-2.0
 *
 * A byte every quarter of a second in both directions. Who is silent for three seconds is lost, and so is
 * who has closed its end. An exchange that waits looks at `lost`; if nobody does within a grace, this thread
 * ends the process, so that nothing hangs.
 */
#include "cli/ranks/ranks_impl.h"

#include "app/term.h"
#include "base/clock.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BEAT_MS = 250, OPEN_MS = 20000, TRY_MS = 1000 };
static const uint64_t silence_ns = UINT64_C(3000000000), grace_ns = UINT64_C(6000000000);

struct hello {
    uint64_t cookie;
    uint32_t rank;
};

/* ------------------------------------------------------------------ opening */

static void list_addresses(struct watch_place *p)
{
    struct ifaddrs *all, *a;
    if (getifaddrs(&all) != 0) return;
    for (a = all; a && p->n_addresses < BN_ARRAY_LEN(p->addresses); a = a->ifa_next) {
        if (!a->ifa_addr || a->ifa_addr->sa_family != AF_INET || !(a->ifa_flags & IFF_UP) ||
            (a->ifa_flags & IFF_LOOPBACK))
            continue;
        struct sockaddr_in in;
        memcpy(&in, a->ifa_addr, sizeof in);
        p->addresses[p->n_addresses++] = in.sin_addr.s_addr;
    }
    freeifaddrs(all);
}

int watch_listen(struct watch_place *p, bool near)
{
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t n = sizeof at;
    int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    *p = (struct watch_place){.n_addresses = 1, .addresses = {htonl(INADDR_LOOPBACK)}};
    at.sin_addr.s_addr = htonl(near ? INADDR_LOOPBACK : INADDR_ANY);
    if (!near) list_addresses(p);
    if (s < 0 || getrandom(&p->cookie, sizeof p->cookie, 0) != sizeof p->cookie ||
        bind(s, (struct sockaddr *)&at, sizeof at) != 0 || listen(s, BITNET_MAX_RANKS) != 0 ||
        getsockname(s, (struct sockaddr *)&at, &n) != 0) {
        if (s >= 0) close(s);
        return -1;
    }
    p->port = at.sin_port;
    return s;
}

static bool wait_for(int s, short what, int ms)
{
    struct pollfd p = {.fd = s, .events = what};
    return poll(&p, 1, ms) == 1 && (p.revents & what);
}

/* Whoever knows the cookie is a rank. */
static void accept_one(struct watch *w, const struct watch_place *place, int listener)
{
    struct hello h;
    int s = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (s < 0) return;
    bool known = wait_for(s, POLLIN, TRY_MS) && recv(s, &h, sizeof h, 0) == sizeof h &&
                 h.cookie == place->cookie && h.rank < w->n_ranks && w->sockets[h.rank] < 0;
    if (known && send(s, &h, sizeof h, MSG_NOSIGNAL) == sizeof h) w->sockets[h.rank] = s;
    else close(s);
}

static bool accept_all(struct watch *w, const struct watch_place *place, int listener)
{
    uint64_t end_ns = bn_now_ns() + OPEN_MS * UINT64_C(1000000);
    uint32_t n = 1;
    while (n < w->n_ranks && bn_now_ns() < end_ns) {
        if (wait_for(listener, POLLIN, TRY_MS)) accept_one(w, place, listener);
        n = 1;
        for (uint32_t i = 1; i < w->n_ranks; i++) n += w->sockets[i] >= 0;
    }
    return n == w->n_ranks;
}

static int reach(const struct watch *w, const struct watch_place *place, uint32_t address)
{
    struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = place->port, .sin_addr.s_addr = address};
    struct hello h = {place->cookie, w->rank}, back;
    int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), error = 0;
    socklen_t n = sizeof error;
    if (s < 0) return -1;
    bool there = connect(s, (struct sockaddr *)&to, sizeof to) == 0 || errno == EINPROGRESS;
    there = there && wait_for(s, POLLOUT, TRY_MS) &&
            getsockopt(s, SOL_SOCKET, SO_ERROR, &error, &n) == 0 && error == 0;
    there = there && send(s, &h, sizeof h, MSG_NOSIGNAL) == sizeof h &&
            wait_for(s, POLLIN, TRY_MS) && recv(s, &back, sizeof back, 0) == sizeof back &&
            back.cookie == h.cookie;
    if (there) return s;
    close(s);
    return -1;
}

static bool reach_first(struct watch *w, const struct watch_place *place)
{
    uint64_t end_ns = bn_now_ns() + OPEN_MS * UINT64_C(1000000);
    while (w->sockets[0] < 0 && bn_now_ns() < end_ns)
        for (uint32_t i = 0; i < place->n_addresses && w->sockets[0] < 0; i++)
            w->sockets[0] = reach(w, place, place->addresses[i]);
    return w->sockets[0] >= 0;
}

/* ------------------------------------------------------------------ watching */

static void lose(struct watch *w, uint32_t rank, const char *how)
{
    unsigned none = 0;
    if (!atomic_compare_exchange_strong(&w->lost, &none, rank + 1)) return;
    bool first = w->rank == (rank == 0); /* of those that are left */
    if (first) fprintf(stderr, "bitnet: rank %u, %s, %s\n", rank, w->names[rank], how);
}

static void hear(struct watch *w, uint32_t rank)
{
    char beats[64];
    ssize_t n;
    while ((n = recv(w->sockets[rank], beats, sizeof beats, 0)) > 0)
        w->heard_ns[rank] = bn_now_ns();
    bool closed = n == 0 || (errno != EAGAIN && errno != EINTR);
    if (closed && !atomic_load(&w->ending)) lose(w, rank, "has ended");
}

static void *watch(void *arg)
{
    struct watch *w = arg;
    uint64_t lost_ns = 0;
    while (!atomic_load(&w->ending)) {
        struct pollfd p[BITNET_MAX_RANKS];
        for (uint32_t i = 0; i < w->n_ranks; i++) {
            p[i] = (struct pollfd){.fd = w->sockets[i], .events = POLLIN};
            if (w->sockets[i] >= 0) (void)send(w->sockets[i], ".", 1, MSG_NOSIGNAL);
        }
        bool lost = atomic_load(&w->lost) != 0;
        poll(p, lost ? 0 : w->n_ranks, BEAT_MS);
        for (uint32_t i = 0; i < w->n_ranks && !lost; i++) {
            if (w->sockets[i] < 0) continue;
            hear(w, i);
            if (bn_now_ns() - w->heard_ns[i] > silence_ns)
                lose(w, i, "has not been heard of for three seconds");
        }
        if (!atomic_load(&w->lost)) continue;
        if (!lost_ns) lost_ns = bn_now_ns();
        if (w->rank || bn_now_ns() - lost_ns > grace_ns) _exit(EXIT_FAILED);
        usleep(BEAT_MS * 1000);
    }
    return NULL;
}

bool watch_open(struct watch *w, const struct watch_place *place, int listener)
{
    for (uint32_t i = 0; i < w->n_ranks; i++) w->sockets[i] = -1;
    bool ok = w->rank ? reach_first(w, place) : listener >= 0 && accept_all(w, place, listener);
    if (listener >= 0) close(listener);
    for (uint32_t i = 0; i < w->n_ranks; i++) w->heard_ns[i] = bn_now_ns();
    if (ok) ok = w->running = pthread_create(&w->thread, NULL, watch, w) == 0;
    if (!ok) watch_close(w);
    return ok;
}

void watch_close(struct watch *w)
{
    atomic_store(&w->ending, true);
    if (w->running) pthread_join(w->thread, NULL);
    w->running = false;
    for (uint32_t i = 0; i < w->n_ranks; i++)
        if (w->sockets[i] >= 0) close(w->sockets[i]);
}
