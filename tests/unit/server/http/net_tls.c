/* SPDX-License-Identifier: Apache-2.0
 * Connections over TLS, with certificates made here. */
#include "net_common.h"

#if HAVE_TLS
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <sys/stat.h>

static char folder[] = "/tmp/bitnet-tls-XXXXXX";
static char cert_path[64], key_path[64];

/* A key and a certificate signed with it, for a day. */
static void write_certificate(long serial)
{
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *x = X509_new();
    assert_non_null(key);
    assert_non_null(x);
    ASN1_INTEGER_set(X509_get_serialNumber(x), serial);
    X509_gmtime_adj(X509_getm_notBefore(x), -60);
    X509_gmtime_adj(X509_getm_notAfter(x), 86400);
    X509_set_pubkey(x, key);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(x), "CN", MBSTRING_ASC,
                               (const unsigned char *)"localhost", -1, -1, 0);
    X509_set_issuer_name(x, X509_get_subject_name(x));
    assert_true(X509_sign(x, key, EVP_sha256()) > 0);
    FILE *f = fopen(cert_path, "w");
    assert_non_null(f);
    assert_int_equal(PEM_write_X509(f, x), 1);
    fclose(f);
    f = fopen(key_path, "w");
    assert_non_null(f);
    assert_int_equal(PEM_write_PrivateKey(f, key, NULL, NULL, 0, NULL, NULL), 1);
    fclose(f);
    X509_free(x);
    EVP_PKEY_free(key);
}

static int make_folder(void **state)
{
    (void)state;
    if (!mkdtemp(folder)) return 1;
    snprintf(cert_path, sizeof cert_path, "%s/cert.pem", folder);
    snprintf(key_path, sizeof key_path, "%s/key.pem", folder);
    write_certificate(1);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    unlink(cert_path), unlink(key_path);
    return rmdir(folder);
}

struct tls_client {
    SSL_CTX *context;
    SSL *ssl;
    int fd;
    struct bn_buf got;
    bool ended;
};

static void tls_connect(struct tls_client *c, int max_version)
{
    *c = (struct tls_client){.context = SSL_CTX_new(TLS_client_method()),
                             .fd = connect_to(net_port(net))};
    bn_buf_init(&c->got, 16 << 20);
    SSL_CTX_set_security_level(c->context, 0);
    SSL_CTX_set_min_proto_version(c->context, 0);
    SSL_CTX_set_max_proto_version(c->context, max_version);
    c->ssl = SSL_new(c->context);
    assert_non_null(c->ssl);
    evutil_make_socket_nonblocking(c->fd);
    SSL_set_fd(c->ssl, c->fd);
}

/* true: it has worked */
static bool tls_shake_hands(struct tls_client *c)
{
    int done = 0;
    UNTIL((done = SSL_connect(c->ssl)) == 1 || SSL_get_error(c->ssl, done) != SSL_ERROR_WANT_READ);
    return done == 1;
}

static const char *tls_read(struct tls_client *c)
{
    char piece[4096];
    for (;;) {
        int k = SSL_read(c->ssl, piece, sizeof piece);
        if (k > 0) bn_buf_append(&c->got, piece, (size_t)k);
        else if (SSL_get_error(c->ssl, k) != SSL_ERROR_WANT_READ) c->ended = true;
        if (k <= 0) return c->got.len ? c->got.data : "";
    }
}

static void tls_send(struct tls_client *c, const char *text)
{
    assert_int_equal(SSL_write(c->ssl, text, (int)strlen(text)), (int)strlen(text));
}

static void tls_close(struct tls_client *c)
{
    SSL_free(c->ssl);
    SSL_CTX_free(c->context);
    close(c->fd);
    bn_buf_free(&c->got);
}

static long serial_of(struct tls_client *c)
{
    X509 *x = SSL_get1_peer_certificate(c->ssl);
    assert_non_null(x);
    long serial = ASN1_INTEGER_get(X509_get_serialNumber(x));
    X509_free(x);
    return serial;
}

static struct net_config with_tls(void)
{
    struct net_config f = defaults();
    f.tls_cert = cert_path;
    f.tls_key = key_path;
    return f;
}

static void test_requests(void **state)
{
    (void)state;
    static char large[1 << 20];
    struct net_config f = with_tls();
    struct tls_client c;
    open_server(&f);
    tls_connect(&c, 0);
    assert_true(tls_shake_hands(&c));
    tls_send(&c, "GET /1 HTTP/1.1\r\n" H "\r\nGET /2 HTTP/1.1\r\n" H "\r\n");
    UNTIL(strstr(tls_read(&c), "X-Path: /2"));
    assert_non_null(strstr(c.got.data, "X-Path: /1"));
    tls_send(&c, "GET /later HTTP/1.1\r\n" H "Connection: close\r\n\r\n");
    UNTIL(seen.held);
    memset(large, 'x', sizeof large);
    net_reply(seen.held, 200, "text/plain", large, sizeof large);
    UNTIL((tls_read(&c), c.ended));
    assert_true(c.got.len > sizeof large);
    assert_true(SSL_get_shutdown(c.ssl) & SSL_RECEIVED_SHUTDOWN); /* told, not cut off */
    tls_close(&c);
    close_server();
}

static void test_disconnects(void **state)
{
    (void)state;
    struct net_config f = with_tls();
    struct tls_client c;
    open_server(&f);
    for (int i = 0; i < 2; i++) {
        tls_connect(&c, 0);
        assert_true(tls_shake_hands(&c));
        tls_send(&c, "GET /stream HTTP/1.1\r\n" H "\r\n");
        UNTIL(seen.held);
        if (i) SSL_shutdown(c.ssl);
        tls_close(&c);
        UNTIL(seen.n_disconnected == i + 1);
    }
    UNTIL(stats().n_connections == 0);
    close_server();
}

/* Neither TLS nor anything else: no handshake, no service, and no place taken for long. */
static void test_no_handshake(void **state)
{
    (void)state;
    struct net_config f = with_tls();
    struct client plain, silent;
    struct tls_client old;
    f.idle_ms = 60;
    open_server(&f);
    client_open(&plain);
    client_send(&plain, "GET / HTTP/1.1\r\n" H "\r\n");
    expect_end(&plain);
    client_open(&silent);
    expect_end(&silent);
    tls_connect(&old, TLS1_1_VERSION);
    assert_false(tls_shake_hands(&old));
    tls_close(&old);
    UNTIL(stats().n_connections == 0);
    assert_int_equal(seen.n_requests, 0);
    close_server();
}

static void test_refused(void **state)
{
    (void)state;
    struct net_config f = with_tls();
    struct tls_client first, second;
    f.max_connections = 1;
    open_server(&f);
    tls_connect(&first, 0);
    assert_true(tls_shake_hands(&first));
    tls_send(&first, "GET / HTTP/1.1\r\n");
    UNTIL(stats().n_bytes_in > 0);
    tls_connect(&second, 0);
    assert_true(tls_shake_hands(&second));
    UNTIL((tls_read(&second), second.ended));
    assert_non_null(strstr(tls_read(&second), "503 Service Unavailable"));
    tls_close(&first);
    tls_close(&second);
    close_server();
}

static void test_reload(void **state)
{
    (void)state;
    struct net_config f = with_tls();
    struct tls_client before, after;
    write_certificate(7);
    open_server(&f);
    tls_connect(&before, 0);
    assert_true(tls_shake_hands(&before));
    assert_int_equal(serial_of(&before), 7);
    write_certificate(8);
    assert_int_equal(net_reload_tls(net, &err), BITNET_OK);
    unlink(key_path);
    assert_int_equal(net_reload_tls(net, &err), BITNET_E_IO);
    assert_non_null(strstr(err.text, key_path));
    tls_connect(&after, 0);
    assert_true(tls_shake_hands(&after));
    assert_int_equal(serial_of(&after), 8);
    tls_send(&before, "GET /before HTTP/1.1\r\n" H "\r\n");
    UNTIL(strstr(tls_read(&before), "X-Path: /before"));
    tls_close(&before);
    tls_close(&after);
    close_server();
    write_certificate(1);
}

static void test_wrong_files(void **state)
{
    (void)state;
    struct net_config f = with_tls();
    struct net *n = NULL;
    base = net_loop_new();
    f.tls_cert = "/nowhere/cert.pem";
    assert_int_equal(net_open(&n, base, &f, &handler, &err), BITNET_E_IO);
    assert_non_null(strstr(err.text, "/nowhere/cert.pem"));
    f.tls_cert = NULL;
    assert_int_equal(net_open(&n, base, &f, &handler, &err), BITNET_E_ARG);
    assert_non_null(strstr(err.text, "the certificate is missing"));
    f.tls_cert = f.tls_key = cert_path;
    assert_int_equal(net_open(&n, base, &f, &handler, &err), BITNET_E_IO);
    assert_non_null(strstr(err.text, "as key"));
    assert_null(n);
    event_base_free(base);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_requests),     cmocka_unit_test(test_disconnects),
        cmocka_unit_test(test_no_handshake), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_reload),       cmocka_unit_test(test_wrong_files),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

#else

static void test_without_tls(void **state)
{
    (void)state;
    struct net_config f = defaults();
    struct net *n = NULL;
    f.tls_cert = f.tls_key = "some.pem";
    base = net_loop_new();
    assert_int_equal(net_open(&n, base, &f, &handler, &err), BITNET_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "without TLS"));
    event_base_free(base);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_without_tls)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#endif
