/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/load/load.h"
#include <event2/event.h>
#include <stdlib.h>

struct get {
    struct event_base *base;
    int status;
    bool ended;
    char *body;
    char why[LOAD_MAX_WHY_BYTES];
};

static void on_arrived(void *user, struct http_reader *r, uint64_t now_ns)
{
    (void)user;
    (void)r;
    (void)now_ns;
}

static void on_ended(void *user, const struct http_reader *r, enum load_end end, const char *why,
                     uint64_t now_ns)
{
    struct get *g = user;
    (void)now_ns;
    g->ended = true;
    if (end == LOAD_END_WHOLE) {
        g->status = r->status;
        if (r->status == 200) g->body = strndup(r->body.len ? r->body.data : "", r->body.len);
    } else snprintf(g->why, sizeof g->why, "%s", why);
    event_base_loopbreak(g->base);
}

bitnet_status load_get(const struct load_target *t, const char *path, double timeout_s, int *status,
                       char **body, bitnet_error *err)
{
    struct get g = {.base = event_base_new(), .why = "no connection"};
    const struct load_conn_handler handler = {&g, on_arrived, on_ended};
    struct timeval limit = {(time_t)timeout_s, 0};
    struct load_conn conn;
    if (!g.base) return bn_fail(err, BITNET_E_NOMEM, "out of memory for a connection");
    load_conn_init(&conn, t, g.base, &handler);
    load_target_head(t, &conn.request, "GET", path, 0);
    if (load_conn_send(&conn)) {
        event_base_loopexit(g.base, &limit);
        event_base_dispatch(g.base);
        if (!g.ended) snprintf(g.why, sizeof g.why, "no reply within %.0f s", timeout_s);
    }
    load_conn_free(&conn);
    event_base_free(g.base);
    *status = g.status;
    *body = g.body;
    if (!g.status)
        return bn_fail(err, BITNET_E_IO, "no answer to GET %s from %s: %s", path, t->authority,
                       g.why);
    return BITNET_OK;
}
