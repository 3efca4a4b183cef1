/* SPDX-License-Identifier: Apache-2.0
 * The door: opens the sockets, takes connections and counts them. */
#include "base/clock.h"
#include "base/os/mem.h"
#include "server/http/net_impl.h"

#include <errno.h>
#include <event2/listener.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    BACKLOG = 4096,
    ACCEPT_BURST = 64, /* connections that are taken in one go */
    ACCEPT_PAUSE_US = 100 * 1000
};

static void tell_crowded(struct net *n, const char *why)
{
    uint64_t now_ns = bn_now_ns();
    if (!n->handler.crowded) return;
    if (n->crowded_ns && now_ns - n->crowded_ns < NET_CROWDED_S * UINT64_C(1000000000)) return;
    n->crowded_ns = now_ns;
    n->handler.crowded(n->handler.user, why);
}

static void pause_accepting(struct net *n, suseconds_t us)
{
    const struct timeval pause = {.tv_usec = us};
    n->n_burst = 0;
    if (event_add(n->accept_again, &pause) != 0)
        return; /* no memory: nothing would end the pause */
    for (size_t i = 0; i < n->n_listeners; i++) evconnlistener_disable(n->listeners[i]);
}

/* After a burst all others have their turn: those that are there, and those that have gone. */
static void on_accept(struct evconnlistener *l, evutil_socket_t fd, struct sockaddr *sa, int len,
                      void *user)
{
    (void)l;
    struct net *n = user;
    char peer[NET_PEER_BYTES];
    if (++n->n_burst == ACCEPT_BURST) pause_accepting(n, 0);
    bool refused = n->stats.n_connections >= n->config.max_connections && !net_conn_make_room(n);
    n->stats.n_accepted++;
    n->stats.n_refused += refused;
    if (refused) {
        char why[HTTP_WHY_BYTES];
        snprintf(why, sizeof why, "all %u connections are in use: further ones are refused",
                 n->config.max_connections);
        tell_crowded(n, why);
    }
    if (refused && n->n_refused == NET_MAX_REFUSED) {
        close(fd);
        return;
    }
    net_peer_name(peer, sa, len);
    net_tune_socket(fd, n->config.write_ms);
    net_conn_open(n, fd, peer, refused);
}

/* Mostly: no descriptor is left, though connections are fewer than the limit. One that is idle gives
 * its own; else the connection stays in the kernel's queue, and asking again at once would only burn
 * time. */
static void on_accept_error(struct evconnlistener *l, void *user)
{
    (void)l;
    struct net *n = user;
    int e = EVUTIL_SOCKET_ERROR();
    char why[HTTP_WHY_BYTES];
    snprintf(why, sizeof why, "a connection cannot be taken: %s (%u are open)", strerror(e),
             n->stats.n_connections);
    tell_crowded(n, why);
    pause_accepting(n, net_conn_make_room(n) ? 0 : ACCEPT_PAUSE_US);
}

static void on_accept_again(evutil_socket_t fd, short what, void *user)
{
    (void)fd, (void)what;
    struct net *n = user;
    for (size_t i = 0; i < n->n_listeners; i++) evconnlistener_enable(n->listeners[i]);
}

static bitnet_status add_listeners(struct net *n, const struct net_sockets *s, bitnet_error *err)
{
    bitnet_status status = BITNET_OK;
    for (size_t i = 0; i < s->n; i++) {
        struct evconnlistener *l =
            status ? NULL
                   : evconnlistener_new(n->base, on_accept, n,
                                        LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC, BACKLOG,
                                        s->fd[i]);
        if (l) {
            evconnlistener_set_error_cb(l, on_accept_error);
            n->listeners[n->n_listeners++] = l;
            continue;
        }
        /* who has bound it as well was quicker */
        if (!status) status = net_fail_listen(n->config.host, s->port, errno, err);
        close(s->fd[i]);
    }
    return status;
}

struct event_base *net_loop_new(void)
{
    struct event_config *c = event_config_new();
    struct event_base *base = NULL;
    if (c && event_config_set_flag(c, EVENT_BASE_FLAG_NO_CACHE_TIME) == 0)
        base = event_base_new_with_config(c);
    if (c) event_config_free(c);
    return base;
}

static char *copy(const char *s) { return s ? strdup(s) : NULL; }

bitnet_status net_open(struct net **out, struct event_base *base, const struct net_config *c,
                       const struct net_handler *h, bitnet_error *err)
{
    struct net_place *place = c->place;
    struct net *n = bn_calloc(1, sizeof *n);
    if (!n) return bn_fail_nomem(err, sizeof *n, "the server's connections");
    *n = (struct net){.base = base,
                      .config = *c,
                      .handler = *h,
                      .tls_cert = copy(c->tls_cert),
                      .tls_key = copy(c->tls_key)};
    n->accept_again = evtimer_new(base, on_accept_again, n);
    bitnet_status s = BITNET_OK;
    if (!n->accept_again || (c->tls_cert && !n->tls_cert) || (c->tls_key && !n->tls_key))
        s = bn_fail_nomem(err, sizeof *n, "the server's connections");
    if (!s && (c->tls_cert || c->tls_key)) s = net_tls_open(&n->tls, c->tls_cert, c->tls_key, err);
    if (!s && !place) s = net_place_take(&place, c->host, c->port, err);
    if (!s) {
        n->port = place->sockets.port;
        n->unix_path = place->unix_path;
        place->unix_path = NULL;
        s = add_listeners(n, &place->sockets, err);
        place->sockets.n = 0;
    }
    if (!c->place) net_place_leave(place);
    if (s) {
        net_close(n);
        return s;
    }
    signal(SIGPIPE, SIG_IGN); /* libevent writes without MSG_NOSIGNAL */
    *out = n;
    return BITNET_OK;
}

void net_close(struct net *n)
{
    if (!n) return;
    while (n->idle.first) net_conn_close(n->idle.first);
    while (n->busy.first) net_conn_close(n->busy.first);
    for (size_t i = 0; i < n->n_listeners; i++) evconnlistener_free(n->listeners[i]);
    if (n->accept_again) event_free(n->accept_again);
    if (n->unix_path) unlink(n->unix_path);
    net_tls_close(n->tls);
    free(n->unix_path), free(n->tls_cert), free(n->tls_key);
    free(n);
}

uint32_t net_port(const struct net *n) { return n->port; }
void net_stats(const struct net *n, struct net_stats *s) { *s = n->stats; }

void net_drain(struct net *n)
{
    n->draining = true;
    for (struct net_request *c = n->idle.first, *next; c; c = next) {
        next = c->next;
        net_conn_drain(c);
    }
}

bool net_quiet(const struct net *n)
{
    const struct net_request *c = n->busy.first;
    while (c && c->phase == NET_CLOSING) c = c->next;
    return !c;
}

bitnet_status net_reload_tls(struct net *n, bitnet_error *err)
{
    struct ssl_ctx_st *tls;
    if (!n->tls) return BITNET_OK;
    BN_TRY(net_tls_open(&tls, n->tls_cert, n->tls_key, err));
    net_tls_close(n->tls);
    n->tls = tls;
    return BITNET_OK;
}
