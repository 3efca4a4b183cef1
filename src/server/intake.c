/* SPDX-License-Identifier: Apache-2.0
 *
 * intake.c: what comes before a request is served that is about a model: its body is read, which says which
 * one, and how long that one is to be kept. A large body is read by an errand.
 */
#include "app/units.h"
#include "server/server_impl.h"
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

/* The value of ?model=, without its escapes. NULL: there is none. */
const char *intake_name_in_query(char out[INTAKE_NAME_BYTES], const char *query)
{
    const char *at = query;
    size_t n = 0;
    while (at && strncmp(at, "model=", 6) != 0) {
        at = strchr(at, '&');
        if (at) at++;
    }
    if (!at) return NULL;
    for (at += 6; *at && *at != '&' && n + 1 < INTAKE_NAME_BYTES; at++) {
        char two[3] = {0};
        if (*at == '%') snprintf(two, sizeof two, "%.2s", at + 1);
        char *end = two;
        unsigned long byte = strtoul(two, &end, 16);
        bool escaped = *at == '%' && end == two + 2;
        out[n++] = escaped ? (char)byte : *at == '+' ? ' ' : *at;
        if (escaped) at += 2;
    }
    out[n] = 0;
    return out;
}

/* Ollama's clients may also call it "name". false: the client was told that it is no name. */
static bool read_name(struct exchange *x, const char **name, char query[INTAKE_NAME_BYTES])
{
    const struct bn_json *v = bn_json_get(x->body, "model");
    if (!v && strncmp(x->route->path, "/api/", 5) == 0) v = bn_json_get(x->body, "name");
    *name = intake_name_in_query(query, net_http(x->request)->query);
    if (!v || bn_json_is_null(v)) return true;
    *name = bn_json_text(v);
    if (*name) return true;
    exchange_refuse(x, 400, NULL, "'model' is not a string");
    return false;
}

/* "5m", 300, -1, 0: in the words of Ollama; in others as usual. */
static bool read_keep(struct exchange *x, int64_t *keep_s)
{
    const struct bn_json *v = bn_json_get(x->body, "keep_alive");
    *keep_s = models_usual_keep(x->s);
    if (strncmp(x->route->path, "/api/", 5) != 0 || !v || bn_json_is_null(v)) return true;
    if (bn_json_is_number(v) && bn_json_number(v) < 1e9) {
        double s = bn_json_number(v);
        *keep_s = s < 0 ? -1 : (int64_t)s;
        return true;
    }
    if (bn_json_is_string(v) && units_seconds(keep_s, bn_json_text(v))) return true;
    exchange_refuse(x, 400, NULL,
                    "'keep_alive' is neither a number of seconds nor a time such as \"5m\"");
    return false;
}

/* The body is read; x is on the stack. */
static void choose(struct exchange *x)
{
    char query[INTAKE_NAME_BYTES];
    const char *name;
    struct served_model *m = NULL;
    int64_t keep_s;
    if (read_name(x, &name, query) && (m = models_choose(x, name)) && read_keep(x, &keep_s)) {
        if (x->s->c->on_demand) models_keep(m, keep_s);
        models_serve(x, m);
    } else {
        bn_json_free(x->body);
    }
}

/* ------------------------------------------------------------------ large bodies */

struct intake {
    struct exchange x; /* first */
    struct errand errand;
    struct net_body body;
    bitnet_status status;
    bitnet_error err;
};

static struct intake *of_errand(struct errand *e)
{
    return (struct intake *)((char *)e - offsetof(struct intake, errand));
}

static void read_large(struct errand *e)
{
    struct intake *i = of_errand(e);
    i->status = exchange_parse(&i->x.body, i->body.bytes.data, i->body.bytes.len, &i->err);
}

/* Who has gone meanwhile is not served; else it is as if the request had just come in. */
static void on_read(struct errand *e)
{
    struct intake *i = of_errand(e);
    struct server *s = i->x.s;
    net_body_free(s->net, &i->body);
    if (i->x.request) exchange_resume(&i->x);
    else exchange_close(&i->x);
    struct exchange x = i->x;
    if (!x.request) bn_json_free(x.body);
    else if (i->status != BITNET_OK) exchange_fail(&x, &i->err, NULL, NULL);
    else choose(&x);
    free(i);
}

static void serve_large(struct exchange *x)
{
    struct intake *i = exchange_copy(x, sizeof *i, NULL);
    if (!i) return;
    i->x.model = NULL;
    i->x.large = i->x.admitted = true;
    i->errand = (struct errand){.run = read_large, .done = on_read};
    net_take_body(x->request, &i->body);
    exchange_wait(&i->x, "the body was not read");
    errands_give(x->s->errands, &i->errand, false);
}

void intake_request(struct exchange *x)
{
    size_t n = net_http(x->request)->body.len;
    if (n >= LARGE_BODY_BYTES) {
        if (exchange_check_coding(x)) serve_large(x);
    } else if (n == 0 || exchange_read(x)) {
        choose(x);
    }
}
