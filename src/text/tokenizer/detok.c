/* SPDX-License-Identifier: Apache-2.0
 * Tokens to text, one at a time. Bytes pass three gates: an incomplete character waits in `tail`;
 * bytes that can no longer become a character turn into U+FFFD; and what may be the beginning of a
 * stop string waits in `text`. All memory is taken at open. */
#include "text/tokenizer/tokenizer_impl.h"

#include "base/utf8.h"
#include <stdlib.h>

#define REPLACEMENT "\xef\xbf\xbd"
enum { REPLACEMENT_BYTES = 3, MAX_TAIL = 3 };

struct bn_detok {
    const struct bn_tokenizer *t;
    bool special, stopped, show_stop;
    size_t n_stops, stop; /* stop: that is complete, when stopped */
    char stops[BN_MAX_STOPS][BN_MAX_STOP_BYTES + 1];
    size_t stop_bytes[BN_MAX_STOPS];
    char *bytes;    /* room for tail and one token */
    size_t n_bytes; /* of them still to be decoded: the tail */
    char *text;     /* shown in the last call, then held back */
    size_t n_shown, n_text, text_room;
};

bitnet_status bn_detok_open(struct bn_detok **out, const struct bn_tokenizer *t, bool special,
                            const char *const *stops, size_t n_stops, bitnet_error *err)
{
    *out = NULL;
    if (n_stops > BN_MAX_STOPS)
        return bn_fail(err, BITNET_E_LIMIT, "%zu stop strings, the most is %d", n_stops,
                       BN_MAX_STOPS);
    for (size_t i = 0; i < n_stops; i++) {
        size_t n = stops[i] ? strlen(stops[i]) : 0;
        if (n == 0 || n > BN_MAX_STOP_BYTES)
            return bn_fail(err, BITNET_E_LIMIT,
                           "stop string %zu has %zu bytes, allowed are 1 to %d", i, n,
                           BN_MAX_STOP_BYTES);
        if (!bn_utf8_valid(stops[i], n, NULL))
            return bn_fail(err, BITNET_E_ARG, "stop string %zu is not valid UTF-8", i);
    }
    /* a byte of a token becomes at most one replacement character */
    size_t byte_room = MAX_TAIL + t->max_token_bytes;
    size_t text_room = BN_MAX_STOP_BYTES + byte_room * REPLACEMENT_BYTES;
    struct bn_detok *d = bn_calloc_now(1, sizeof *d + byte_room + text_room);
    if (!d) return bn_fail_nomem(err, sizeof *d + byte_room + text_room, "a detokenizer");
    d->t = t;
    d->special = special;
    d->n_stops = n_stops;
    d->bytes = (char *)(d + 1);
    d->text = d->bytes + byte_room;
    d->text_room = text_room;
    for (size_t i = 0; i < n_stops; i++) {
        d->stop_bytes[i] = strlen(stops[i]);
        memcpy(d->stops[i], stops[i], d->stop_bytes[i]);
    }
    *out = d;
    return BITNET_OK;
}

void bn_detok_close(struct bn_detok *d) { free(d); }

size_t bn_detok_room(const struct bn_detok *d) { return d->text_room; }

void bn_detok_show_stop(struct bn_detok *d) { d->show_stop = true; }

const char *bn_detok_stop(const struct bn_detok *d)
{
    return d->stopped ? d->stops[d->stop] : NULL;
}

void bn_detok_reset(struct bn_detok *d)
{
    d->n_bytes = d->n_shown = d->n_text = 0;
    d->stopped = false;
}

/* How many bytes from a bad one on belong together and make one replacement character: the longest
 * beginning of a valid character, as everybody else counts. n: bytes in hand. */
static size_t bad_length(const char *p, size_t n)
{
    size_t len = 1;
    while (len < n && len < MAX_TAIL && bn_utf8_tail(p, len + 1) == len + 1) len++;
    return len;
}

static void put(struct bn_detok *d, const char *p, size_t n)
{
    memcpy(d->text + d->n_text, p, n);
    d->n_text += n;
}

/* Moves what is decided from bytes to text; the tail stays. */
static void decode(struct bn_detok *d, bool last)
{
    size_t keep = last ? 0 : bn_utf8_tail(d->bytes, d->n_bytes);
    size_t end = d->n_bytes - keep;
    for (size_t i = 0; i < end;) {
        uint32_t cp;
        size_t len = bn_utf8_decode(d->bytes + i, end - i, &cp);
        if (len > 0) {
            put(d, d->bytes + i, len);
        } else {
            len = bad_length(d->bytes + i, end - i);
            put(d, REPLACEMENT, REPLACEMENT_BYTES);
        }
        i += len;
    }
    memmove(d->bytes, d->bytes + end, keep);
    d->n_bytes = keep;
}

/* The first place where a stop string is complete; the longest of those that end there. *start: where the
 * text ends for it. */
static bool find_stop(struct bn_detok *d, size_t *start)
{
    for (size_t end = 1; end <= d->n_text; end++) {
        size_t longest = 0;
        for (size_t k = 0; k < d->n_stops; k++) {
            size_t n = d->stop_bytes[k];
            if (n > longest && n <= end && memcmp(d->text + end - n, d->stops[k], n) == 0) {
                longest = n;
                d->stop = k;
            }
        }
        if (longest > 0) {
            *start = d->show_stop ? end : end - longest;
            return true;
        }
    }
    return false;
}

/* How many bytes at the end of text might be the beginning of a stop string. */
static size_t held_back(const struct bn_detok *d)
{
    size_t held = 0;
    for (size_t k = 0; k < d->n_stops; k++)
        for (size_t n = bn_min_size(d->stop_bytes[k] - 1, d->n_text); n > held; n--)
            if (memcmp(d->text + d->n_text - n, d->stops[k], n) == 0) held = n;
    return held;
}

static void drop_shown(struct bn_detok *d)
{
    memmove(d->text, d->text + d->n_shown, d->n_text - d->n_shown);
    d->n_text -= d->n_shown;
    d->n_shown = 0;
}

bool bn_detok_push(struct bn_detok *d, int32_t token, const char **text, size_t *n)
{
    *text = d->text;
    *n = 0;
    if (d->stopped) return true;
    drop_shown(d);
    size_t len, start;
    const char *p = bn_token_bytes(d->t, token, d->special, false, &len);
    if (len == 0) return false;
    memcpy(d->bytes + d->n_bytes, p, len);
    d->n_bytes += len;
    decode(d, false);
    if (find_stop(d, &start)) {
        d->stopped = true;
        d->n_shown = d->n_text = start;
    } else {
        d->n_shown = d->n_text - held_back(d);
    }
    *n = d->n_shown;
    return d->stopped;
}

void bn_detok_flush(struct bn_detok *d, const char **text, size_t *n)
{
    /* behind what the last push showed: the caller may still be looking at it */
    if (!d->stopped) decode(d, true);
    *text = d->text + d->n_shown;
    *n = d->n_text - d->n_shown;
    d->n_shown = d->n_text;
}
