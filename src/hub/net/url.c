/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"
#include "hub/net/url.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

static bitnet_status wrong(const char *text, const char *why, bitnet_error *err)
{
    return bn_fail(err, BITNET_E_ARG, "the URL '%.200s' %s", text, why);
}

static int hex(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* user:password, with its %XX */
static void decode_user(char out[HUB_NAME_BYTES], const char *s, size_t n)
{
    size_t k = 0;
    for (size_t i = 0; i < n && k + 1 < HUB_NAME_BYTES; i++) {
        bool coded = s[i] == '%' && i + 2 < n && hex(s[i + 1]) >= 0 && hex(s[i + 2]) >= 0;
        out[k++] = coded ? (char)(hex(s[i + 1]) * 16 + hex(s[i + 2])) : s[i];
        if (coded) i += 2;
    }
    out[k] = 0;
}

/* [user@]host[:port] */
static bool parse_authority(struct hub_url *out, const char *s, size_t n)
{
    const char *at = NULL;
    for (size_t i = 0; i < n; i++)
        if (s[i] == '@') at = s + i;
    if (at) {
        decode_user(out->user, s, (size_t)(at - s));
        n -= (size_t)(at + 1 - s);
        s = at + 1;
    }
    const char *host = s, *end = memchr(s, ':', n);
    if (n && *s == '[') {
        host = s + 1;
        end = memchr(s, ']', n);
        if (!end) return false;
    }
    size_t n_host = end ? (size_t)(end - host) : n;
    if (n_host == 0 || n_host >= sizeof out->host) return false;
    snprintf(out->host, sizeof out->host, "%.*s", (int)n_host, host);
    for (size_t i = 0; i < n_host; i++)
        if (!isalnum((unsigned char)host[i]) && !strchr(".-_:", host[i])) return false;
    const char *rest = end && *end == ']' ? end + 1 : end;
    const char *usual = out->tls ? "443" : "80";
    snprintf(out->port, sizeof out->port, "%s", usual);
    if (rest && rest < s + n) {
        size_t digits = (size_t)(s + n - rest) - 1;
        if (*rest != ':' || digits == 0 || digits > 5 || strspn(rest + 1, "0123456789") < digits)
            return false;
        snprintf(out->port, sizeof out->port, "%.*s", (int)digits, rest + 1);
        if (atoi(out->port) < 1 || atoi(out->port) > 65535) return false;
    }
    bool v6 = strchr(out->host, ':'), plain = strcmp(out->port, usual) == 0;
    snprintf(out->authority, sizeof out->authority, "%s%s%s%s%s", v6 ? "[" : "", out->host,
             v6 ? "]" : "", plain ? "" : ":", plain ? "" : out->port);
    return true;
}

bitnet_status hub_url_parse(struct hub_url *out, const char *text, bitnet_error *err)
{
    static const char http[] = "http://", https[] = "https://";
    memset(out, 0, sizeof *out);
    for (const char *p = text; *p; p++)
        if ((unsigned char)*p <= ' ' || *p == 0x7f)
            return wrong(text, "has a space or a control character in it", err);
    const char *at = text;
    if (strncasecmp(text, https, sizeof https - 1) == 0) {
        out->tls = true;
        at += sizeof https - 1;
    } else if (strncasecmp(text, http, sizeof http - 1) == 0) at += sizeof http - 1;
    else return wrong(text, "does not begin with http:// or https://", err);
    size_t n = strcspn(at, "/?#");
    if (!parse_authority(out, at, n))
        return wrong(text, "has no host and port that make sense", err);
    at += n;
    size_t n_target = strcspn(at, "#");
    if (n_target + 2 > sizeof out->target) return wrong(text, "is too long", err);
    snprintf(out->target, sizeof out->target, "%s%.*s", *at == '/' ? "" : "/", (int)n_target, at);
    return BITNET_OK;
}

bitnet_status hub_url_join(struct hub_url *out, const struct hub_url *base, const char *location,
                           bitnet_error *err)
{
    char text[HUB_TARGET_BYTES + HUB_HOST_BYTES + 16];
    size_t folder = strcspn(base->target, "?");
    while (folder && base->target[folder - 1] != '/') folder--;
    const char *scheme = base->tls ? "https" : "http";
    int n;
    if (strstr(location, "://") &&
        strcspn(location, "/?#") == (size_t)(strstr(location, "://") + 1 - location))
        n = snprintf(text, sizeof text, "%s", location);
    else if (location[0] == '/' && location[1] == '/')
        n = snprintf(text, sizeof text, "%s:%s", scheme, location);
    else if (location[0] == '/')
        n = snprintf(text, sizeof text, "%s://%s%s", scheme, base->authority, location);
    else
        n = snprintf(text, sizeof text, "%s://%s%.*s%s", scheme, base->authority, (int)folder,
                     base->target, location);
    if (n < 0 || (size_t)n >= sizeof text) return wrong(location, "is too long", err);
    return hub_url_parse(out, text, err);
}

bool hub_url_same_origin(const struct hub_url *a, const struct hub_url *b)
{
    return a->tls == b->tls && strcasecmp(a->host, b->host) == 0 && strcmp(a->port, b->port) == 0;
}

bool hub_url_is_loopback(const struct hub_url *u)
{
    return strcasecmp(u->host, "localhost") == 0 || strcmp(u->host, "::1") == 0 ||
           (strncmp(u->host, "127.", 4) == 0 && strspn(u->host, "0123456789.") == strlen(u->host));
}

void hub_url_escape(struct bn_buf *b, const char *text, bool keep_slashes)
{
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (isalnum(c) || strchr("-._~", c) || (c == '/' && keep_slashes)) bn_buf_putc(b, (char)c);
        else bn_buf_printf(b, "%%%02X", c);
    }
}

/* ------------------------------------------------------------------ proxies */

/* One word of NO_PROXY: a host, which stands for all below it, perhaps with a port; or '*'. */
static bool is_exempt(const struct hub_url *u, const char *word, size_t n)
{
    if (n == 1 && *word == '*') return true;
    const char *colon = memchr(word, ':', n);
    bool port = colon && !memchr(colon + 1, ':', n - (size_t)(colon + 1 - word));
    if (port) {
        size_t digits = n - (size_t)(colon + 1 - word);
        if (strlen(u->port) != digits || strncmp(u->port, colon + 1, digits) != 0) return false;
        n = (size_t)(colon - word);
    }
    while (n && *word == '.') {
        word++;
        n--;
    }
    size_t n_host = strlen(u->host);
    if (n == 0 || n > n_host || strncasecmp(u->host + n_host - n, word, n) != 0) return false;
    return n == n_host || u->host[n_host - n - 1] == '.';
}

bool hub_url_proxy(const char **proxy, const struct hub_places *p, const struct hub_url *u)
{
    *proxy = u->tls ? p->https_proxy : p->http_proxy;
    if (!**proxy) return false;
    for (const char *word = p->no_proxy; *word;) {
        word += strspn(word, ", ");
        size_t n = strcspn(word, ", ");
        if (n && is_exempt(u, word, n)) return false;
        word += n;
    }
    return true;
}
