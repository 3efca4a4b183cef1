/* SPDX-License-Identifier: Apache-2.0
 * TLS by OpenSSL, where the build has it. */
#include "server/http/net_impl.h"

#if HAVE_TLS

#include <event2/bufferevent_ssl.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

/* OpenSSL would ask at the terminal. */
static int no_password(char *buf, int size, int rwflag, void *user)
{
    (void)buf, (void)size, (void)rwflag, (void)user;
    return 0;
}

static bitnet_status fail_file(bitnet_error *err, const char *what, const char *path)
{
    const char *why = ERR_reason_error_string(ERR_peek_last_error());
    bitnet_status s = bn_fail(err, BITNET_E_IO, "cannot use '%s' as %s for TLS: %s", path, what,
                              why ? why : "no reason given");
    ERR_clear_error();
    return s;
}

bitnet_status net_tls_open(struct ssl_ctx_st **out, const char *cert, const char *key,
                           bitnet_error *err)
{
    if (!cert || !key)
        return bn_fail(err, BITNET_E_ARG, "TLS needs a certificate and a key; the %s is missing",
                       cert ? "key" : "certificate");
    SSL_CTX *tls = SSL_CTX_new(TLS_server_method());
    if (!tls) return bn_fail_nomem(err, 1, "TLS");
    SSL_CTX_set_min_proto_version(tls, TLS1_2_VERSION);
    SSL_CTX_set_options(tls, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
    SSL_CTX_set_mode(tls, SSL_MODE_RELEASE_BUFFERS); /* an idle connection needs none */
    SSL_CTX_set_default_passwd_cb(tls, no_password);
    bitnet_status s = BITNET_OK;
    if (SSL_CTX_use_certificate_chain_file(tls, cert) != 1) s = fail_file(err, "certificate", cert);
    else if (SSL_CTX_use_PrivateKey_file(tls, key, SSL_FILETYPE_PEM) != 1 ||
             SSL_CTX_check_private_key(tls) != 1)
        s = fail_file(err, "key", key);
    if (s) {
        SSL_CTX_free(tls);
        return s;
    }
    *out = tls;
    return BITNET_OK;
}

void net_tls_close(struct ssl_ctx_st *tls) { SSL_CTX_free(tls); }

struct bufferevent *net_tls_bufferevent(struct event_base *base, int fd, struct ssl_ctx_st *tls)
{
    SSL *ssl = SSL_new(tls);
    if (!ssl) return NULL;
    struct bufferevent *bev = bufferevent_openssl_socket_new(
        base, fd, ssl, BUFFEREVENT_SSL_ACCEPTING, BEV_OPT_CLOSE_ON_FREE); /* owns ssl in any case */
    if (bev) bufferevent_openssl_set_allow_dirty_shutdown(bev, 1);
    return bev;
}

void net_tls_say_end(struct bufferevent *bev)
{
    SSL *ssl = bufferevent_openssl_get_ssl(bev);
    if (ssl) SSL_shutdown(ssl); /* what becomes of it does not matter: all has been written */
    ERR_clear_error();
}

#else

bitnet_status net_tls_open(struct ssl_ctx_st **out, const char *cert, const char *key,
                           bitnet_error *err)
{
    (void)out, (void)cert, (void)key;
    return bn_fail(err, BITNET_E_UNSUPPORTED, "this program was built without TLS (OpenSSL)");
}

/* never called: there is no context */
void net_tls_close(struct ssl_ctx_st *tls) { (void)tls; }
struct bufferevent *net_tls_bufferevent(struct event_base *base, int fd, struct ssl_ctx_st *tls)
{
    (void)base, (void)fd, (void)tls;
    return NULL;
}
void net_tls_say_end(struct bufferevent *bev) { (void)bev; }

#endif
