/* SPDX-License-Identifier: Apache-2.0
 *
 * One connection: its phases and their times. Everything here is called by libevent, but for the
 * first and the last step. The read side is watched in every phase, up to a bounded number of
 * bytes, so that a client that goes is noticed while its reply is computed.
 */
#include "base/clock.h"
#include "base/os/mem.h"
#include "server/http/net_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

static struct timeval from_ms(uint32_t ms)
{
    return (struct timeval){.tv_sec = ms / 1000, .tv_usec = (suseconds_t)(ms % 1000) * 1000};
}

static void set_deadline(struct net_request *c, uint32_t ms)
{
    struct timeval t = from_ms(ms);
    if (!c->lost && event_add(c->timer, &t) != 0) net_conn_lost(c);
}

static void watch(struct net_request *c, short what)
{
    if (bufferevent_enable(c->bev, what) != 0) net_conn_lost(c);
}

static void count_bytes(struct evbuffer *b, const struct evbuffer_cb_info *info, void *user)
{
    struct net_request *c = user;
    if (b == bufferevent_get_input(c->bev)) c->net->stats.n_bytes_in += info->n_added;
    else c->net->stats.n_bytes_out += info->n_deleted;
}

/* Keeps the sum of all bodies; false: this one is too much. What a connection may keep in any case does
 * not count: whoever holds large bodies must not shut out small ones. */
static bool count_body(struct net_request *c)
{
    struct net *n = c->net;
    size_t room = c->reader.body.room, counted = room > HTTP_KEEP_BYTES ? room : 0;
    n->bodies_bytes += counted - c->body_bytes;
    c->body_bytes = counted;
    return n->bodies_bytes <= n->config.bodies_bytes;
}

void net_release_body(struct net_request *c)
{
    bn_buf_free(&c->reader.body);
    count_body(c);
}

void net_take_body(struct net_request *c, struct net_body *b)
{
    *b = (struct net_body){c->reader.body, c->body_bytes};
    bn_buf_init(&c->reader.body, b->bytes.max);
    c->body_bytes = 0;
}

void net_body_free(struct net *n, struct net_body *b)
{
    bn_buf_free(&b->bytes);
    if (n) n->bodies_bytes -= b->counted;
    b->counted = 0;
}

static void leave_list(struct net_request *c)
{
    *(c->prev ? &c->prev->next : &c->in->first) = c->next;
    *(c->next ? &c->next->prev : &c->in->last) = c->prev;
}

static void join_list(struct net_request *c, struct net_list *to)
{
    c->in = to;
    c->prev = to->last;
    c->next = NULL;
    *(to->last ? &to->last->next : &to->first) = c;
    to->last = c;
}

static void free_request(struct net_request *c)
{
    struct net *n = c->net;
    net_release_body(c);
    leave_list(c);
    if (c->refused) n->n_refused--;
    else n->stats.n_connections--;
    /* libevent may still touch its buffers before it lets go of them */
    evbuffer_remove_cb(bufferevent_get_input(c->bev), count_bytes, c);
    evbuffer_remove_cb(bufferevent_get_output(c->bev), count_bytes, c);
    bufferevent_free(c->bev);
    event_free(c->timer);
    http_reader_free(&c->reader);
    bn_buf_free(&c->headers);
    free(c);
}

void net_conn_close(struct net_request *c)
{
    if (c->phase == NET_OPEN) c->net->handler.disconnected(c->net->handler.user, c);
    free_request(c);
}

/* What came was no request, or did not come in time. code 0: nobody is there to be told. */
static void report_broken(struct net_request *c, int code, const char *why)
{
    c->net->stats.n_broken++;
    c->net->handler.broken(c->net->handler.user, c->peer, code, why);
    if (code) net_reply_error(c, code, why);
}

/* Bodies of others may be done with soon. */
static void refuse_body(struct net_request *c)
{
    char why[HTTP_WHY_BYTES];
    snprintf(why, sizeof why, "requests that are on their way have more than %zu bytes, the limit",
             c->net->config.bodies_bytes);
    net_release_body(c);
    net_add_header(c, "Retry-After", "1");
    report_broken(c, 503, why);
}

static void begin_request(struct net_request *c)
{
    c->began = true;
    leave_list(c);
    join_list(c, &c->net->busy);
    set_deadline(c, c->net->config.request_ms);
}

static void open_request(struct net_request *c)
{
    c->phase = NET_OPEN;
    c->began_ns = bn_now_ns();
    if (!c->lost) event_del(c->timer);
    c->net->handler.request(c->net->handler.user, c);
}

static void tell_continue(struct net_request *c)
{
    static const char text[] = "HTTP/1.1 100 Continue\r\n\r\n";
    c->continued = true;
    if (bufferevent_write(c->bev, text, sizeof text - 1) != 0) net_conn_lost(c);
}

/* Takes what has come, up to the end of a request. */
static void read_request(struct net_request *c)
{
    struct evbuffer *in = bufferevent_get_input(c->bev);
    struct evbuffer_iovec piece;
    while (c->phase == NET_READING && evbuffer_get_length(in) > 0) {
        size_t used;
        if (!c->began) begin_request(c);
        evbuffer_peek(in, -1, NULL, &piece, 1);
        http_reader_feed(&c->reader, piece.iov_base, piece.iov_len, &used);
        evbuffer_drain(in, used);
        if (c->reader.state == HTTP_FAILED) report_broken(c, c->reader.status, c->reader.why);
        else if (!count_body(c)) refuse_body(c);
        else if (c->reader.state == HTTP_DONE) open_request(c);
        else if (c->reader.expects_continue && !c->continued) tell_continue(c);
    }
}

static void next_request(struct net_request *c)
{
    http_reader_next(&c->reader);
    count_body(c);
    bn_buf_clear(&c->headers);
    c->user = NULL;
    c->began = c->continued = c->no_room = false;
    c->phase = NET_READING;
    leave_list(c);
    join_list(c, &c->net->idle);
    set_deadline(c, c->net->config.idle_ms);
    watch(c, EV_READ);
    read_request(c);
    if (c->net->draining && c->in == &c->net->idle) net_conn_drain(c);
}

/* Closing with bytes unread would reset the connection; the client might never see the reply. */
static void begin_closing(struct net_request *c)
{
    struct evbuffer *in = bufferevent_get_input(c->bev);
    if (c->ended) {
        free_request(c);
        return;
    }
    c->phase = NET_CLOSING;
    net_tls_say_end(c->bev);
    shutdown(bufferevent_getfd(c->bev), SHUT_WR);
    evbuffer_drain(in, evbuffer_get_length(in));
    watch(c, EV_READ);
    set_deadline(c, bn_min_size(c->net->config.linger_ms, NET_LAST_READ_MS));
}

void net_conn_finish(struct net_request *c)
{
    c->phase = NET_WRITING;
    set_deadline(c, c->net->config.linger_ms);
    /* on_write comes by itself if there is something to write; and libevent writes by itself, but for
     * when it had no memory to begin */
    if (evbuffer_get_length(bufferevent_get_output(c->bev)) == 0)
        bufferevent_trigger(c->bev, EV_WRITE, BEV_TRIG_DEFER_CALLBACKS);
    else watch(c, EV_WRITE);
}

void net_conn_lost(struct net_request *c)
{
    c->lost = true;
    event_active(c->timer, EV_TIMEOUT, 0);
}

static bool bytes_wait(struct net_request *c)
{
    int n = 0;
    return evbuffer_get_length(bufferevent_get_input(c->bev)) > 0 ||
           (ioctl(bufferevent_getfd(c->bev), FIONREAD, &n) == 0 && n > 0);
}

void net_conn_drain(struct net_request *c)
{
    if (bytes_wait(c)) begin_request(c); /* it was sent in good faith, and will be answered */
    else free_request(c);
}

/* Each is looked at once: it is closed, or no longer idle. */
bool net_conn_make_room(struct net *n)
{
    uint32_t before = n->stats.n_connections;
    while (n->idle.first && n->stats.n_connections == before) net_conn_drain(n->idle.first);
    return n->stats.n_connections < before;
}

/* Bytes that are sent ahead of the reply wait, up to the size of a head; then reading pauses. (Not
 * by libevent's high watermark: above it this function would be called over and over.) */
static void on_read(struct bufferevent *bev, void *user)
{
    struct net_request *c = user;
    struct evbuffer *in = bufferevent_get_input(bev);
    size_t n = evbuffer_get_length(in);
    if (c->phase == NET_READING) read_request(c);
    else if (c->phase == NET_CLOSING) evbuffer_drain(in, n);
    else if (n >= c->net->config.limits.head_bytes) bufferevent_disable(bev, EV_READ);
}

/* Called when little or nothing is left to write. */
static void on_write(struct bufferevent *bev, void *user)
{
    struct net_request *c = user;
    if (c->lost) return; /* the timer's time has come */
    if (c->phase == NET_OPEN && c->no_room) {
        c->no_room = false;
        c->net->handler.room(c->net->handler.user, c);
    } else if (c->phase == NET_WRITING && evbuffer_get_length(bufferevent_get_output(bev)) == 0) {
        if (c->last) begin_closing(c);
        else next_request(c);
    }
}

static void on_event(struct bufferevent *bev, short what, void *user)
{
    (void)bev;
    struct net_request *c = user;
    if (what & BEV_EVENT_CONNECTED) return; /* the TLS handshake is done */
    bool only_end = (what & BEV_EVENT_EOF) && (what & BEV_EVENT_READING);
    if (c->phase == NET_WRITING && only_end) {
        c->last = c->ended = true; /* it may still read; TLS has stopped writing */
        watch(c, EV_WRITE);
        return;
    }
    if (c->phase == NET_READING && c->began)
        report_broken(c, 0, "the client disconnected before its request was complete");
    net_conn_close(c);
}

static void on_timer(evutil_socket_t fd, short what, void *user)
{
    (void)fd, (void)what;
    struct net_request *c = user;
    char why[HTTP_WHY_BYTES];
    if (c->phase != NET_READING || c->lost) {
        net_conn_close(c);
        return;
    }
    if (!c->began) {
        net_conn_drain(c);
        return;
    }
    snprintf(why, sizeof why, "the request was not complete after %u ms",
             c->net->config.request_ms);
    report_broken(c, 408, why);
}

static void refuse(struct net_request *c)
{
    char why[HTTP_WHY_BYTES];
    snprintf(why, sizeof why, "there are %u connections already, the limit",
             c->net->config.max_connections);
    c->net->handler.broken(c->net->handler.user, c->peer, 503, why);
    net_add_header(c, "Retry-After", "1");
    net_reply_error(c, 503, why);
}

static bool start_events(struct net_request *c)
{
    const struct net_config *f = &c->net->config;
    struct timeval write_time = from_ms(f->write_ms);
    bufferevent_setcb(c->bev, on_read, on_write, on_event, c);
    bufferevent_setwatermark(c->bev, EV_WRITE, f->stream_high_bytes / 2, 0);
    return evbuffer_add_cb(bufferevent_get_input(c->bev), count_bytes, c) &&
           evbuffer_add_cb(bufferevent_get_output(c->bev), count_bytes, c) &&
           bufferevent_set_timeouts(c->bev, NULL, &write_time) == 0 &&
           bufferevent_enable(c->bev, EV_READ | EV_WRITE) == 0;
}

void net_conn_open(struct net *n, int fd, const char *peer, bool refused)
{
    struct net_request *c = bn_calloc(1, sizeof *c);
    if (c) {
        c->timer = evtimer_new(n->base, on_timer, c);
        c->bev = n->tls ? net_tls_bufferevent(n->base, fd, n->tls)
                        : bufferevent_socket_new(n->base, fd, BEV_OPT_CLOSE_ON_FREE);
    }
    if (!c || !c->timer || !c->bev) {
        if (c && c->timer) event_free(c->timer);
        if (c && c->bev) bufferevent_free(c->bev);
        else close(fd);
        free(c);
        return;
    }
    c->net = n;
    c->refused = refused;
    memcpy(c->peer, peer, sizeof c->peer);
    http_reader_init(&c->reader, false, &n->config.limits);
    bn_buf_init(&c->headers, NET_MAX_HEADERS_BYTES);
    join_list(c, refused ? &n->busy : &n->idle);
    if (refused) n->n_refused++;
    else n->stats.n_connections++;
    if (!start_events(c)) free_request(c);
    else if (refused) refuse(c);
    else set_deadline(c, n->config.idle_ms);
}
