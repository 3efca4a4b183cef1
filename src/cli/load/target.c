/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/load/target.h"

#include <ctype.h>
#include <errno.h>
#include <event2/bufferevent.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <unistd.h>
#if HAVE_TLS
#include <event2/bufferevent_ssl.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#endif

enum { CONNECT_MS = 5000 };

/* ------------------------------------------------------------------ the URL */

static bitnet_status wrong_url(const char *url, bitnet_error *err)
{
    return bn_fail(err, BITNET_E_ARG,
                   "--host expects http://HOST[:PORT] or https://HOST[:PORT], not '%.200s'", url);
}

/* host:port, [v6]:port, either without the port. */
static bool parse_authority(struct load_target *t, const char *text, size_t n)
{
    snprintf(t->authority, sizeof t->authority, "%.*s", (int)n, text);
    const char *name = t->authority, *end = name + strcspn(name, ":");
    if (*name == '[') {
        end = strchr(++name, ']');
        if (!end) return false;
    }
    snprintf(t->name, sizeof t->name, "%.*s", (int)(end - name), name);
    const char *rest = end + (*end == ']');
    snprintf(t->port, sizeof t->port, "%s", t->tls ? "443" : "80");
    uint64_t port;
    if (*rest) {
        if (*rest != ':' || !args_u64(&port, rest + 1, 65535) || !port) return false;
        snprintf(t->port, sizeof t->port, "%u", (unsigned)port);
    }
    return *t->name != 0;
}

bitnet_status load_target_parse(struct load_target *t, const char *url, bitnet_error *err)
{
    static const char http[] = "http://", https[] = "https://";
    const char *at = url;
    if (strncmp(url, http, sizeof http - 1) == 0) at += sizeof http - 1;
    else if (strncmp(url, https, sizeof https - 1) == 0) {
        at += sizeof https - 1;
        t->tls = true;
    } else if (strstr(url, "://")) return wrong_url(url, err);
    if (strlen(url) >= LOAD_MAX_URL_BYTES) return wrong_url(url, err);
    for (const char *p = url; *p; p++)
        if ((unsigned char)*p <= ' ' || *p == 0x7f || *p == '?' || *p == '#' || *p == '@')
            return wrong_url(url, err);
    size_t n = strcspn(at, "/");
    if (!parse_authority(t, at, n)) return wrong_url(url, err);
    snprintf(t->base, sizeof t->base, "%s", at + n);
    for (size_t len = strlen(t->base); len && t->base[len - 1] == '/';) t->base[--len] = 0;
    if (bn_ends_with(t->base, "/v1")) t->base[strlen(t->base) - 3] = 0;
    if (t->tls && !HAVE_TLS)
        return bn_fail(err, BITNET_E_UNSUPPORTED,
                       "this program was built without TLS: no https://");
    return BITNET_OK;
}

static bool is_token_char(char c)
{
    return isalnum((unsigned char)c) || (c && strchr("!#$%&'*+-.^_`|~", c));
}

static bool has_control(const char *s)
{
    for (; *s; s++)
        if (((unsigned char)*s < ' ' && *s != '\t') || *s == 0x7f) return true;
    return false;
}

bitnet_status load_target_headers(struct load_target *t, const char *key,
                                  const struct opt_list *headers, bitnet_error *err)
{
    bn_buf_init(&t->extra_headers, LOAD_MAX_HEADER_BYTES);
    if (key && *key) {
        if (has_control(key))
            return bn_fail(err, BITNET_E_ARG, "the API key has control characters in it");
        bn_buf_printf(&t->extra_headers, "Authorization: Bearer %s\r\n", key);
    }
    for (size_t i = 0; i < headers->n; i++) {
        const char *h = headers->items[i], *colon = h;
        while (is_token_char(*colon)) colon++;
        if (colon == h || *colon != ':' || has_control(colon))
            return bn_fail(err, BITNET_E_ARG, "--header expects 'Name: value', not '%.200s'", h);
        bn_buf_printf(&t->extra_headers, "%s\r\n", h);
    }
    if (t->extra_headers.failed)
        return bn_fail(err, BITNET_E_LIMIT, "the headers have more than %d bytes together",
                       LOAD_MAX_HEADER_BYTES);
    return BITNET_OK;
}

void load_target_head(const struct load_target *t, struct bn_buf *out, const char *method,
                      const char *path, size_t n_body)
{
    bn_buf_printf(out, "%s %s%s HTTP/1.1\r\nHost: %s\r\nUser-Agent: bitnet-loadtest\r\n", method,
                  t->base, path, t->authority);
    if (n_body)
        bn_buf_printf(out, "Content-Type: application/json\r\nContent-Length: %zu\r\n", n_body);
    if (t->extra_headers.len) bn_buf_puts(out, t->extra_headers.data);
    bn_buf_puts(out, "\r\n");
}

/* ------------------------------------------------------------------ the address */

/* 0, or errno of a connect that failed or took too long. */
static int try_connect(const struct addrinfo *a)
{
    int fd = socket(a->ai_family, a->ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, a->ai_protocol);
    if (fd < 0) return errno;
    int e = connect(fd, a->ai_addr, a->ai_addrlen) == 0 ? 0 : errno;
    if (e == EINPROGRESS) {
        struct pollfd p = {.fd = fd, .events = POLLOUT};
        socklen_t n = sizeof e;
        int ready = poll(&p, 1, CONNECT_MS);
        if (ready > 0) getsockopt(fd, SOL_SOCKET, SO_ERROR, &e, &n);
        else e = ready == 0 ? ETIMEDOUT : errno;
    }
    close(fd);
    return e;
}

static bitnet_status find_address(struct load_target *t, bitnet_error *err)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list = NULL;
    int bad = getaddrinfo(t->name, t->port, &hints, &list), e = 0;
    if (bad) return bn_fail(err, BITNET_E_IO, "cannot find '%s': %s", t->name, gai_strerror(bad));
    const struct addrinfo *a = list;
    while (a && (e = try_connect(a)) != 0) a = a->ai_next;
    if (a) {
        memcpy(&t->address, a->ai_addr, a->ai_addrlen);
        t->address_bytes = a->ai_addrlen;
    }
    freeaddrinfo(list);
    if (!t->address_bytes)
        return bn_fail(err, BITNET_E_IO, "cannot connect to %s port %s: %s", t->name, t->port,
                       strerror(e));
    return BITNET_OK;
}

/* ------------------------------------------------------------------ TLS */

#if HAVE_TLS
static bitnet_status open_tls(struct load_target *t, bitnet_error *err)
{
    SSL_CTX *c = SSL_CTX_new(TLS_client_method());
    t->tls_context = c;
    if (!c || SSL_CTX_set_default_verify_paths(c) != 1)
        return bn_fail(err, BITNET_E_IO, "cannot set up TLS: %s",
                       ERR_reason_error_string(ERR_get_error()));
    SSL_CTX_set_verify(c, t->insecure ? SSL_VERIFY_NONE : SSL_VERIFY_PEER, NULL);
    return BITNET_OK;
}

static struct bufferevent *new_tls(const struct load_target *t, struct event_base *base)
{
    SSL *ssl = SSL_new(t->tls_context);
    if (!ssl) return NULL;
    if (X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), t->name) != 1) { /* a name, then */
        SSL_set_tlsext_host_name(ssl, t->name);
        SSL_set1_host(ssl, t->name);
    }
    struct bufferevent *b = bufferevent_openssl_socket_new(
        base, -1, ssl, BUFFEREVENT_SSL_CONNECTING, BEV_OPT_CLOSE_ON_FREE);
    if (b) bufferevent_openssl_set_allow_dirty_shutdown(b, 1);
    else SSL_free(ssl);
    return b;
}

static void close_tls(struct load_target *t) { SSL_CTX_free(t->tls_context); }
#else
static bitnet_status open_tls(struct load_target *t, bitnet_error *err)
{
    return bn_fail(err, BITNET_E_UNSUPPORTED, "no TLS for '%s' in this program", t->name);
}
static struct bufferevent *new_tls(const struct load_target *t, struct event_base *base)
{
    (void)t;
    (void)base;
    return NULL;
}
static void close_tls(struct load_target *t) { (void)t; }
#endif

/* ------------------------------------------------------------------ both */

bitnet_status load_target_open(struct load_target *t, bitnet_error *err)
{
    BN_TRY(find_address(t, err));
    return t->tls ? open_tls(t, err) : BITNET_OK;
}

void load_target_close(struct load_target *t)
{
    if (t->tls_context) close_tls(t);
    t->tls_context = NULL;
    bn_buf_free(&t->extra_headers);
}

struct bufferevent *load_target_connect(const struct load_target *t, struct event_base *base)
{
    struct bufferevent *b =
        t->tls ? new_tls(t, base) : bufferevent_socket_new(base, -1, BEV_OPT_CLOSE_ON_FREE);
    if (!b) return NULL;
    if (bufferevent_socket_connect(b, (const struct sockaddr *)&t->address,
                                   (int)t->address_bytes) != 0) {
        bufferevent_free(b);
        return NULL;
    }
    int on = 1; /* a request is one write; nothing is gained by waiting for more of it */
    setsockopt(bufferevent_getfd(b), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return b;
}
