/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/net/socket.h"

#include "base/buf.h"
#include "base/clock.h"
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

enum { TICK_MS = 100, CONNECT_S = 10, PROXY_HEAD_BYTES = 8192 };

/* ------------------------------------------------------------------ waiting */

static uint64_t deadline_in(double seconds) { return bn_now_ns() + (uint64_t)(seconds * 1e9); }

/* Until the socket is ready, somebody cancels, or time is over. */
static bitnet_status wait_for(const struct hub_conn *c, short events, uint64_t deadline_ns,
                              const char *what, bitnet_error *err)
{
    for (;;) {
        struct pollfd p = {.fd = c->fd, .events = events};
        if (hub_cancelled(&c->net->cancel)) return bn_fail(err, BITNET_E_CANCELLED, "interrupted");
        int ready = poll(&p, 1, TICK_MS);
        if (ready > 0) return BITNET_OK;
        if (ready < 0 && errno != EINTR)
            return bn_fail(err, BITNET_E_IO, "%s: %s", c->at.host, strerror(errno));
        if (bn_now_ns() >= deadline_ns)
            return bn_fail(err, BITNET_E_IO, "%s %s for %.0f s", c->at.host, what, c->timeout_s);
    }
}

/* ------------------------------------------------------------------ TLS */

/* Where distributions keep the certificates they trust; a static program may run on any of them. */
static void trust_system(SSL_CTX *t)
{
    static const char *const files[] = {"/etc/ssl/certs/ca-certificates.crt",
                                        "/etc/pki/tls/certs/ca-bundle.crt",
                                        "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"};
    SSL_CTX_set_default_verify_paths(t);
    for (size_t i = 0; i < BN_ARRAY_LEN(files); i++)
        if (access(files[i], R_OK) == 0 && SSL_CTX_load_verify_locations(t, files[i], NULL) == 1)
            break;
    ERR_clear_error();
}

bitnet_status hub_tls_open(void **tls, const char *ca_file, bitnet_error *err)
{
    SSL_CTX *t = SSL_CTX_new(TLS_client_method());
    *tls = t;
    if (!t) return bn_fail(err, BITNET_E_NOMEM, "out of memory for TLS");
    SSL_CTX_set_min_proto_version(t, TLS1_2_VERSION);
    SSL_CTX_set_verify(t, SSL_VERIFY_PEER, NULL);
    SSL_CTX_set_mode(t, SSL_MODE_AUTO_RETRY);
    SSL_CTX_set_options(t, SSL_OP_IGNORE_UNEXPECTED_EOF); /* HTTP says where a message ends */
    if (!*ca_file) {
        trust_system(t);
        return BITNET_OK;
    }
    if (access(ca_file, R_OK) != 0)
        return bn_fail(err, BITNET_E_ARG, "cannot read the certificates in '%.300s': %s", ca_file,
                       strerror(errno));
    if (SSL_CTX_load_verify_locations(t, ca_file, NULL) != 1) {
        ERR_clear_error();
        return bn_fail(err, BITNET_E_ARG, "'%.300s' holds no certificates in PEM form", ca_file);
    }
    return BITNET_OK;
}

void hub_tls_close(void *tls) { SSL_CTX_free(tls); }

/* BITNET_OK: try again, now that the socket is ready. what: of the silence */
static bitnet_status wait_tls(struct hub_conn *c, int result, uint64_t deadline_ns,
                              const char *what, bitnet_error *err)
{
    int why = SSL_get_error(c->ssl, result), e = errno;
    if (why == SSL_ERROR_WANT_READ) return wait_for(c, POLLIN, deadline_ns, what, err);
    if (why == SSL_ERROR_WANT_WRITE) return wait_for(c, POLLOUT, deadline_ns, what, err);
    unsigned long code = ERR_get_error();
    const char *reason = code ? ERR_reason_error_string(code) : NULL;
    ERR_clear_error();
    if (!reason) reason = why == SSL_ERROR_SYSCALL && e ? strerror(e) : "it closed the connection";
    return bn_fail(err, BITNET_E_IO, "the connection to %s broke: %s", c->at.host, reason);
}

static bitnet_status shake_hands(struct hub_conn *c, bitnet_error *err)
{
    SSL *ssl = SSL_new(c->net->tls);
    c->ssl = ssl;
    if (!ssl || SSL_set_fd(ssl, c->fd) != 1)
        return bn_fail(err, BITNET_E_NOMEM, "out of memory for TLS");
    if (X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), c->at.host) != 1) { /* a name, then */
        SSL_set_tlsext_host_name(ssl, c->at.host);
        SSL_set1_host(ssl, c->at.host);
    }
    uint64_t deadline = deadline_in(c->timeout_s);
    int r;
    while ((r = SSL_connect(ssl)) != 1) {
        long bad = SSL_get_verify_result(ssl);
        if (bad != X509_V_OK) {
            ERR_clear_error();
            return bn_fail(err, BITNET_E_UNSUPPORTED,
                           "the certificate of %s is not trusted: %s; --ca-file FILE names "
                           "certificates that are",
                           c->at.host, X509_verify_cert_error_string(bad));
        }
        BN_TRY(wait_tls(c, r, deadline, "did not answer in TLS", err));
    }
    return BITNET_OK;
}

/* ------------------------------------------------------------------ connecting */

static bitnet_status try_address(struct hub_conn *c, const struct addrinfo *a, bitnet_error *err)
{
    c->fd = socket(a->ai_family, a->ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, a->ai_protocol);
    int e = c->fd < 0 || (connect(c->fd, a->ai_addr, a->ai_addrlen) != 0) ? errno : 0;
    if (e == EINPROGRESS) {
        socklen_t n = sizeof e;
        bitnet_status s =
            wait_for(c, POLLOUT, deadline_in(CONNECT_S), "could not be connected to", err);
        if (s != BITNET_OK) return s;
        getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &e, &n);
    }
    if (e) return bn_fail(err, BITNET_E_IO, "%s", strerror(e));
    int on = 1;
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return BITNET_OK;
}

static bitnet_status connect_to(struct hub_conn *c, const char *host, const char *port,
                                bitnet_error *err)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list = NULL;
    bitnet_error why = {0};
    int bad = getaddrinfo(host, port, &hints, &list);
    if (bad)
        return bn_fail(err, BITNET_E_IO, "cannot find the host '%s': %s", host, gai_strerror(bad));
    bitnet_status s = BITNET_E_IO;
    for (const struct addrinfo *a = list; a && s == BITNET_E_IO; a = a->ai_next) {
        hub_socket_close(c);
        s = try_address(c, a, &why);
    }
    freeaddrinfo(list);
    if (s == BITNET_E_IO)
        return bn_fail(err, BITNET_E_IO, "cannot connect to %s port %s: %s", host, port, why.text);
    if (s != BITNET_OK && err) *err = why;
    return s;
}

/* ------------------------------------------------------------------ proxies */

void hub_proxy_credentials(struct bn_buf *b, const char *user)
{
    if (!*user) return;
    unsigned char coded[4 * HUB_NAME_BYTES / 3 + 8];
    EVP_EncodeBlock(coded, (const unsigned char *)user, (int)strlen(user));
    bn_buf_printf(b, "Proxy-Authorization: Basic %s\r\n", (const char *)coded);
}

/* The reply to CONNECT: a head, and nothing behind it. */
static bitnet_status read_tunnel(struct hub_conn *c, const char *proxy, bitnet_error *err)
{
    char head[PROXY_HEAD_BYTES];
    size_t n = 0, got = 1;
    int status = 0;
    while (n + 1 < sizeof head && (n < 4 || memcmp(head + n - 4, "\r\n\r\n", 4) != 0)) {
        BN_TRY(hub_socket_read(c, head + n, 1, &got, err));
        if (!got) break;
        n += got;
    }
    head[n] = 0;
    if (sscanf(head, "HTTP/1.%*d %d", &status) == 1 && status == 200) return BITNET_OK;
    if (status == 407)
        return bn_fail(
            err, BITNET_E_UNSUPPORTED,
            "the proxy %s asks for a name and a password: http://NAME:PASSWORD@HOST:PORT", proxy);
    return bn_fail(err, BITNET_E_IO, "the proxy %s does not connect to %s: status %d", proxy,
                   c->at.host, status);
}

static bitnet_status open_proxy(struct hub_conn *c, const char *proxy, bitnet_error *err)
{
    struct hub_url p;
    char text[HUB_URL_BYTES + 8];
    snprintf(text, sizeof text, "%s%s", strstr(proxy, "://") ? "" : "http://", proxy);
    if (hub_url_parse(&p, text, NULL) != BITNET_OK || p.tls)
        return bn_fail(err, BITNET_E_ARG,
                       "the proxy of the environment is no http://HOST:PORT; others are not known");
    BN_TRY(connect_to(c, p.host, p.port, err));
    c->by_proxy = !c->at.tls;
    memcpy(c->proxy_user, p.user, sizeof c->proxy_user);
    if (c->by_proxy) return BITNET_OK;
    struct bn_buf ask;
    bn_buf_init(&ask, PROXY_HEAD_BYTES);
    bool v6 = strchr(c->at.host, ':');
    bn_buf_printf(&ask, "CONNECT %s%s%s:%s HTTP/1.1\r\nHost: %s%s%s:%s\r\n", v6 ? "[" : "",
                  c->at.host, v6 ? "]" : "", c->at.port, v6 ? "[" : "", c->at.host, v6 ? "]" : "",
                  c->at.port);
    hub_proxy_credentials(&ask, p.user);
    bn_buf_puts(&ask, "\r\n");
    bitnet_status s = ask.failed ? bn_fail_nomem(err, PROXY_HEAD_BYTES, "a request")
                                 : hub_socket_write(c, ask.data, ask.len, err);
    bn_buf_free(&ask);
    return s == BITNET_OK ? read_tunnel(c, p.authority, err) : s;
}

/* ------------------------------------------------------------------ the whole */

bitnet_status hub_socket_open(struct hub_conn *c, bitnet_error *err)
{
    const char *proxy;
    c->by_proxy = false;
    bitnet_status s = hub_url_proxy(&proxy, c->net->places, &c->at)
                          ? open_proxy(c, proxy, err)
                          : connect_to(c, c->at.host, c->at.port, err);
    if (s == BITNET_OK && c->at.tls) s = shake_hands(c, err);
    if (s != BITNET_OK) hub_socket_close(c);
    return s;
}

void hub_socket_close(struct hub_conn *c)
{
    SSL_free(c->ssl);
    if (c->fd >= 0) close(c->fd);
    c->ssl = NULL;
    c->fd = -1;
}

bitnet_status hub_socket_write(struct hub_conn *c, const char *p, size_t n, bitnet_error *err)
{
    uint64_t deadline = deadline_in(c->timeout_s);
    while (n) {
        ssize_t sent = c->ssl ? SSL_write(c->ssl, p, (int)n) : send(c->fd, p, n, MSG_NOSIGNAL);
        if (sent > 0) {
            p += sent;
            n -= (size_t)sent;
        } else if (c->ssl) {
            BN_TRY(wait_tls(c, (int)sent, deadline, "took nothing", err));
        } else if (errno == EAGAIN || errno == EINTR) {
            BN_TRY(wait_for(c, POLLOUT, deadline, "took nothing", err));
        } else {
            return bn_fail(err, BITNET_E_IO, "the connection to %s broke: %s", c->at.host,
                           strerror(errno));
        }
    }
    return BITNET_OK;
}

bitnet_status hub_socket_read(struct hub_conn *c, char *p, size_t room, size_t *n,
                              bitnet_error *err)
{
    uint64_t deadline = deadline_in(c->timeout_s);
    for (;;) {
        ssize_t got = c->ssl ? SSL_read(c->ssl, p, (int)room) : recv(c->fd, p, room, 0);
        *n = got > 0 ? (size_t)got : 0;
        if (got > 0 || (got == 0 && !c->ssl)) return BITNET_OK;
        if (c->ssl && SSL_get_error(c->ssl, (int)got) == SSL_ERROR_ZERO_RETURN) return BITNET_OK;
        if (c->ssl) BN_TRY(wait_tls(c, (int)got, deadline, "sent nothing", err));
        else if (errno == EAGAIN || errno == EINTR)
            BN_TRY(wait_for(c, POLLIN, deadline, "sent nothing", err));
        else
            return bn_fail(err, BITNET_E_IO, "the connection to %s broke: %s", c->at.host,
                           strerror(errno));
    }
}
