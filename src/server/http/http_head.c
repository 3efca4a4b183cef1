/* SPDX-License-Identifier: Apache-2.0
 *
 * The head of a message, taken apart in its place: the first line, the headers, and what they say
 * about the body and the connection. The bytes of lines and their ends have been checked before.
 */
#include "base/utf8.h"
#include "server/http/http_impl.h"

#include <stdlib.h>
#include <strings.h>

static bool is_token(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char c = s[i], lower = (char)(c | 0x20);
        bool alnum = (c >= '0' && c <= '9') || (lower >= 'a' && lower <= 'z');
        if (!alnum && !strchr("!#$%&'*+-.^_`|~", c)) return false;
    }
    return n > 0;
}

/* Cuts the next word off: up to a space, or to the end. */
static char *take_word(char **s)
{
    char *word = *s, *space = strchr(word, ' ');
    if (space) *space = 0;
    *s = space ? space + 1 : word + strlen(word);
    return word;
}

static bool read_version(struct http_reader *r, const char *s)
{
    bool shaped = strncmp(s, "HTTP/", 5) == 0 && s[5] >= '0' && s[5] <= '9' && s[6] == '.' &&
                  s[7] >= '0' && s[7] <= '9' && s[8] == 0;
    if (!shaped)
        return http_fail(r, 400, "the first line does not name a version such as HTTP/1.1");
    if (s[5] != '1') return http_fail(r, 505, "%s is not understood, HTTP/1.1 is", s);
    r->http_1_0 = s[7] == '0';
    return true;
}

static bool decode_path(struct http_reader *r, char *path)
{
    char *to = path;
    for (const char *p = path; *p; p++) {
        unsigned char c = (unsigned char)*p;
        if (c == '%') {
            int high = http_hex_digit((unsigned char)p[1]);
            int low = high < 0 ? -1 : http_hex_digit((unsigned char)p[2]);
            if (low < 0)
                return http_fail(r, 400, "the path has a '%%' without two hexadecimal digits");
            c = (unsigned char)(high * 16 + low);
            p += 2;
        }
        if (c < ' ' || c == 0x7f)
            return http_fail(r, 400, "the path has the byte 0x%02x, which is not text", c);
        *to++ = (char)c;
    }
    *to = 0;
    if (!bn_utf8_valid(path, (size_t)(to - path), NULL))
        return http_fail(r, 400, "the path is not UTF-8");
    r->path = path;
    return true;
}

/* "/path?query", "http://host/path?query" as for proxies, or "*". */
static bool read_target(struct http_reader *r, char *target)
{
    for (const char *p = target; *p; p++)
        if ((unsigned char)*p >= 0x80 || *p == '#' || *p == '\t')
            return http_fail(r, 400, "the path has the byte 0x%02x as it is, not written with '%%'",
                             (unsigned char)*p);
    size_t scheme = strncasecmp(target, "http://", 7) == 0    ? 7
                    : strncasecmp(target, "https://", 8) == 0 ? 8
                                                              : 0;
    if (scheme) target += scheme + strcspn(target + scheme, "/?");
    char *query = strchr(target, '?');
    if (query) *query++ = 0;
    r->query = query ? query : "";
    if (scheme && *target == 0) {
        r->path = "/";
        return true;
    }
    if (*target != '/' && strcmp(target, "*") != 0)
        return http_fail(r, 400, "the path does not begin with '/'");
    return decode_path(r, target);
}

static bool read_request_line(struct http_reader *r, char *line)
{
    char *method = take_word(&line), *target = take_word(&line);
    if (!is_token(method, strlen(method)) || *target == 0)
        return http_fail(r, 400, "the first line is not 'METHOD PATH HTTP/1.1'");
    r->method = method;
    return read_version(r, line) && read_target(r, target);
}

static bool read_status_line(struct http_reader *r, char *line)
{
    const char *version = take_word(&line), *code = take_word(&line);
    if (!read_version(r, version)) return false;
    if (strlen(code) != 3 || strspn(code, "0123456789") != 3 || *code == '0')
        return http_fail(r, 502, "the first line has no status of three digits");
    r->status = (int)strtol(code, NULL, 10);
    return true;
}

static bool read_header(struct http_reader *r, char *line)
{
    size_t n_name = strcspn(line, ":");
    if (line[n_name] == 0 || !is_token(line, n_name))
        return http_fail(r, 400, "header line %zu does not begin with a name and ':'",
                         r->n_headers + 1);
    if (r->n_headers == HTTP_MAX_HEADERS)
        return http_fail(r, 431, "there are more than %d headers, the limit", HTTP_MAX_HEADERS);
    for (size_t i = 0; i < n_name; i++)
        if (line[i] >= 'A' && line[i] <= 'Z') line[i] |= 0x20;
    line[n_name] = 0;
    char *value = line + n_name + 1;
    value += strspn(value, " \t");
    size_t n = strlen(value);
    while (n && (value[n - 1] == ' ' || value[n - 1] == '\t')) n--;
    value[n] = 0;
    r->headers[r->n_headers++] = (struct http_header){line, value};
    return true;
}

/* *value: NULL if there is none. Two of them are an error. */
static bool only_header(struct http_reader *r, const char *name, const char **value)
{
    *value = NULL;
    for (size_t i = 0; i < r->n_headers; i++) {
        if (strcmp(r->headers[i].name, name) != 0) continue;
        if (*value) return http_fail(r, 400, "there is more than one header '%s'", name);
        *value = r->headers[i].value;
    }
    return true;
}

/* Is the word in one of the lists "a, b" of the headers of this name? */
static bool lists_word(const struct http_reader *r, const char *name, const char *word)
{
    for (size_t i = 0; i < r->n_headers; i++) {
        if (strcmp(r->headers[i].name, name) != 0) continue;
        for (const char *s = r->headers[i].value; *s;) {
            s += strspn(s, ", \t");
            size_t n = strcspn(s, ", \t");
            if (n == strlen(word) && strncasecmp(s, word, n) == 0) return true;
            s += n;
        }
    }
    return false;
}

static bool read_length(struct http_reader *r, const char *digits)
{
    if (*digits == 0 || digits[strspn(digits, "0123456789")])
        return http_fail(r, 400, "Content-Length is not a number");
    for (; *digits; digits++)
        if (!bn_mul_u64(&r->length, r->length, 10) ||
            !bn_add_u64(&r->length, r->length, (uint64_t)(*digits - '0')))
            return http_fail(r, 413, "Content-Length has more than 64 bits");
    return http_length_allowed(r);
}

/* How the body's end is known. */
static bool read_framing(struct http_reader *r)
{
    const char *length, *coding;
    if (!only_header(r, "content-length", &length) || !only_header(r, "transfer-encoding", &coding))
        return false;
    if (length && coding)
        return http_fail(r, 400, "Content-Length and Transfer-Encoding are there at once");
    if (coding && r->http_1_0) return http_fail(r, 400, "HTTP/1.0 has no Transfer-Encoding");
    if (coding && strcasecmp(coding, "chunked") != 0)
        return http_fail(r, 501, "the only Transfer-Encoding understood is 'chunked'");
    bool bodiless = r->is_reply && (r->status < 200 || r->status == 204 || r->status == 304);
    if (length && !bodiless) return read_length(r, length);
    r->chunked = coding && !bodiless;
    r->until_close = r->is_reply && !bodiless && !coding;
    return true;
}

static bool read_expectation(struct http_reader *r)
{
    const char *expect = http_header(r, "expect");
    if (!expect || r->is_reply || r->http_1_0) return true;
    if (strcasecmp(expect, "100-continue") != 0)
        return http_fail(r, 417, "the only Expect understood is '100-continue'");
    r->expects_continue = r->chunked || r->length > 0;
    return true;
}

static bool require_host(struct http_reader *r)
{
    const char *host;
    if (r->is_reply) return true;
    return only_header(r, "host", &host) &&
           (host || r->http_1_0 || http_fail(r, 400, "the header Host is missing"));
}

/* Whoever checks keys in front of this server must not look at another one than it does. */
static bool require_one_key(struct http_reader *r)
{
    const char *shown;
    return r->is_reply || only_header(r, "authorization", &shown);
}

bool http_head_parse(struct http_reader *r)
{
    char *end;
    for (char *line = r->head.data; *line != '\r'; line = end + 2) {
        end = strchr(line, '\r');
        *end = 0;
        bool first = line == r->head.data;
        if (!(!first        ? read_header(r, line)
              : r->is_reply ? read_status_line(r, line)
                            : read_request_line(r, line)))
            return false;
    }
    if (!require_host(r) || !require_one_key(r) || !read_framing(r) || !read_expectation(r))
        return false;
    r->keep_alive = !r->until_close && !lists_word(r, "connection", "close") &&
                    (!r->http_1_0 || lists_word(r, "connection", "keep-alive"));
    return true;
}
