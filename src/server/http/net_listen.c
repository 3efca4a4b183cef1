/* SPDX-License-Identifier: Apache-2.0
 * Sockets to listen on: all addresses of a name, or a local one; what is set on those accepted. */
#include "server/http/net_impl.h"

#include "base/os/mem.h"
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { KEEPALIVE_S = 30, KEEPALIVE_STEP_S = 10 };

static void set_option(int fd, int level, int name, int value)
{
    setsockopt(fd, level, name, &value, sizeof value); /* none of them is vital */
}

/* NULL: it is not "unix:PATH" */
static const char *unix_path(const char *host)
{
    return strncmp(host, "unix:", 5) == 0 ? host + 5 : NULL;
}

/* A socket file that nobody answers on was left by a killed process. Any other file stays. */
static bitnet_status remove_stale(const struct sockaddr_un *a, bitnet_error *err)
{
    struct stat st;
    if (lstat(a->sun_path, &st) != 0) return BITNET_OK;
    if (!S_ISSOCK(st.st_mode))
        return bn_fail(err, BITNET_E_IO, "'%s' exists and is not a socket", a->sun_path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return bn_fail(err, BITNET_E_IO, "cannot make a socket: %s", strerror(errno));
    bool stale = connect(fd, (const struct sockaddr *)a, sizeof *a) != 0 && errno == ECONNREFUSED;
    close(fd);
    if (!stale) return bn_fail(err, BITNET_E_IO, "another process listens on '%s'", a->sun_path);
    if (unlink(a->sun_path) != 0)
        return bn_fail(err, BITNET_E_IO, "cannot remove '%s': %s", a->sun_path, strerror(errno));
    return BITNET_OK;
}

static bitnet_status listen_unix(struct net_sockets *s, const char *path, bitnet_error *err)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    size_t n = strlen(path);
    if (n == 0 || n >= sizeof a.sun_path)
        return bn_fail(err, BITNET_E_ARG,
                       "the path of a local socket has %zu bytes; 1 to %zu are allowed", n,
                       sizeof a.sun_path - 1);
    memcpy(a.sun_path, path, n);
    BN_TRY(remove_stale(&a, err));
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    /* a socket nobody listens on looks as if its process had been killed */
    if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof a) != 0 || listen(fd, SOMAXCONN) != 0) {
        bitnet_status status =
            bn_fail(err, BITNET_E_IO, "cannot listen on '%s': %s", path, strerror(errno));
        if (fd >= 0) close(fd);
        return status;
    }
    s->fd[s->n++] = fd;
    return BITNET_OK;
}

static uint32_t port_of(int fd)
{
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } a = {.any.sa_family = AF_UNSPEC};
    socklen_t n = sizeof a;
    if (getsockname(fd, &a.any, &n) != 0) return 0;
    return ntohs(a.any.sa_family == AF_INET6 ? a.v6.sin6_port : a.v4.sin_port);
}

static void set_port(struct sockaddr *a, uint32_t port)
{
    if (a->sa_family == AF_INET6)
        ((struct sockaddr_in6 *)(void *)a)->sin6_port = htons((uint16_t)port);
    else ((struct sockaddr_in *)(void *)a)->sin_port = htons((uint16_t)port);
}

/* -1: see errno */
static int bind_address(const struct addrinfo *a, uint32_t port)
{
    int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return -1;
    set_option(fd, SOL_SOCKET, SO_REUSEADDR, 1);
    if (a->ai_family == AF_INET6) set_option(fd, IPPROTO_IPV6, IPV6_V6ONLY, 0); /* "::" is both */
    set_port(a->ai_addr, port);
    if (bind(fd, a->ai_addr, a->ai_addrlen) == 0) return fd;
    int e = errno;
    close(fd);
    errno = e;
    return -1;
}

/* A machine may know an address ("::1") and yet not have it. */
static bool not_here(int e) { return e == EAFNOSUPPORT || e == EADDRNOTAVAIL; }

bitnet_status net_fail_listen(const char *host, uint32_t port, int errno_then, bitnet_error *err)
{
    if (errno_then == EADDRINUSE)
        return bn_fail(err, BITNET_E_IO,
                       "cannot listen on '%s', port %u: another program does; --port N takes "
                       "another port, --port 0 any that is free",
                       host, port);
    return bn_fail(err, BITNET_E_IO, "cannot listen on '%s', port %u: %s", host, port,
                   strerror(errno_then));
}

static bitnet_status listen_tcp(struct net_sockets *s, const char *host, uint32_t port,
                                bitnet_error *err)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *list;
    if (port > UINT16_MAX)
        return bn_fail(err, BITNET_E_ARG, "port %u is above %u", port, UINT16_MAX);
    int e = getaddrinfo(host, NULL, &hints, &list);
    if (e) return bn_fail(err, BITNET_E_ARG, "'%s' is no address: %s", host, gai_strerror(e));
    bitnet_status status = BITNET_OK;
    int last = 0;
    for (struct addrinfo *a = list; a && !status && s->n < NET_MAX_LISTENERS; a = a->ai_next) {
        /* all addresses get the port that the first one got */
        int fd = bind_address(a, s->n ? s->port : port);
        if (fd >= 0) {
            s->fd[s->n++] = fd;
            s->port = port_of(fd);
        } else if (!not_here(last = errno)) {
            status = BITNET_E_IO;
        }
    }
    freeaddrinfo(list);
    if (s->n && !status) return BITNET_OK;
    while (s->n) close(s->fd[--s->n]);
    return net_fail_listen(host, port, last, err);
}

bitnet_status net_place_take(struct net_place **out, const char *host, uint32_t port,
                             bitnet_error *err)
{
    const char *path = unix_path(host);
    struct net_place *p = bn_calloc(1, sizeof *p);
    *out = NULL;
    if (!p || (path && !(p->unix_path = strdup(path)))) {
        free(p);
        return bn_fail_nomem(err, sizeof *p, "the server's sockets");
    }
    bitnet_status s =
        path ? listen_unix(&p->sockets, path, err) : listen_tcp(&p->sockets, host, port, err);
    if (s == BITNET_OK) *out = p;
    else net_place_leave(p);
    return s;
}

void net_place_leave(struct net_place *p)
{
    if (!p) return;
    if (p->sockets.n && p->unix_path) unlink(p->unix_path);
    while (p->sockets.n) close(p->sockets.fd[--p->sockets.n]);
    free(p->unix_path);
    free(p);
}

void net_peer_name(char out[NET_PEER_BYTES], const struct sockaddr *sa, int len)
{
    char host[NET_PEER_BYTES / 2 + 10], port[8];
    if (sa->sa_family == AF_UNIX ||
        getnameinfo(sa, (socklen_t)len, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
        snprintf(out, NET_PEER_BYTES, "unix");
        return;
    }
    const char *v4 = strncmp(host, "::ffff:", 7) == 0 && strchr(host, '.') ? host + 7 : host;
    snprintf(out, NET_PEER_BYTES, strchr(v4, ':') ? "[%s]:%s" : "%s:%s", v4, port);
}

void net_tune_socket(int fd, uint32_t write_ms)
{
    set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, KEEPALIVE_S);
    set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, KEEPALIVE_STEP_S);
    set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, (int)write_ms); /* also ends the above */
}
