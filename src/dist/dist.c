/* SPDX-License-Identifier: Apache-2.0
 * One exchange is one call of the caller's functions: rows that are not side by side in memory are
 * brought together first. */
#include "dist/dist.h"

#include "base/clock.h"
#include "base/os/mem.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    HEAD_BYTES = 1024,          /* a short message is one exchange */
    MAX_MESSAGE_BYTES = 1 << 20 /* of agreements */
};

struct bn_dist {
    bitnet_ranks ranks;
    double shares[BITNET_MAX_RANKS];
    float *room; /* [n_room] */
    size_t n_room;
    int failed; /* what the function that failed has returned; 0: none has */
    struct bn_dist_stats stats;
};

bitnet_status bn_dist_open(struct bn_dist **out, const bitnet_ranks *r, bitnet_error *err)
{
    *out = NULL;
    if (!r->n_ranks || r->n_ranks > BITNET_MAX_RANKS || r->rank >= r->n_ranks)
        return bn_fail(err, BITNET_E_ARG, "rank %u of %u; 1 to %d ranks are possible", r->rank,
                       r->n_ranks, BITNET_MAX_RANKS);
    if (!r->broadcast || !r->gather || !r->collect)
        return bn_fail(err, BITNET_E_ARG, "bitnet_ranks: a function is missing");
    if (r->outputs && strcmp(r->outputs, "auto") != 0 && strcmp(r->outputs, "split") != 0 &&
        strcmp(r->outputs, "whole") != 0)
        return bn_fail(err, BITNET_E_ARG, "outputs '%s' are unknown; auto, split and whole exist",
                       r->outputs);
    struct bn_dist *d = bn_calloc(1, sizeof *d);
    if (!d) return bn_fail_nomem(err, sizeof *d, "ranks");
    d->ranks = *r;
    double sum = 0;
    for (uint32_t i = 0; i < r->n_ranks; i++) {
        d->shares[i] = r->shares ? r->shares[i] : 1;
        if (!(d->shares[i] > 0) || !(d->shares[i] < 1e9)) {
            free(d);
            return bn_fail(err, BITNET_E_ARG, "the share of rank %u is %g; it must be above 0", i,
                           r->shares[i]);
        }
        sum += d->shares[i];
    }
    for (uint32_t i = 0; i < r->n_ranks; i++) d->shares[i] /= sum;
    *out = d;
    return BITNET_OK;
}

void bn_dist_close(struct bn_dist *d)
{
    if (!d) return;
    free(d->room);
    free(d);
}

uint32_t bn_dist_rank(const struct bn_dist *d) { return d ? d->ranks.rank : 0; }
uint32_t bn_dist_ranks(const struct bn_dist *d) { return d ? d->ranks.n_ranks : 1; }
const struct bn_dist_stats *bn_dist_stats(const struct bn_dist *d) { return &d->stats; }

void bn_dist_cut(const struct bn_dist *d, struct bn_cut *cut, size_t n, size_t grain)
{
    size_t grains = bn_div_up(n, grain);
    double before = 0;
    cut->at[0] = 0;
    for (uint32_t i = 0; i < d->ranks.n_ranks; i++) {
        before += d->shares[i];
        size_t end = (size_t)floor(before * (double)grains + 0.5) * grain;
        cut->at[i + 1] = i + 1 == d->ranks.n_ranks ? n : bn_min_size(end, n);
    }
}

bitnet_status bn_dist_reserve(struct bn_dist *d, size_t floats, bitnet_error *err)
{
    if (floats <= d->n_room) return BITNET_OK;
    float *room = bn_calloc(floats, sizeof *room);
    if (!room) return bn_fail_nomem(err, floats * sizeof *room, "exchanges between ranks");
    free(d->room);
    d->room = room;
    d->n_room = floats;
    return BITNET_OK;
}

/* ------------------------------------------------------------------ exchanges */

static uint64_t begin(const struct bn_dist *d) { return d->failed ? 0 : bn_now_ns(); }

static void end(struct bn_dist *d, uint64_t start_ns, size_t bytes, int result)
{
    d->failed = result;
    d->stats.exchanges++;
    d->stats.bytes += bytes;
    d->stats.ns += bn_now_ns() - start_ns;
}

/* Columns [from, to) of y[n][stride] to packed rows or, with back, from there. */
static void pack(float *packed, float *y, size_t n, size_t stride, size_t from, size_t to,
                 bool back)
{
    size_t wide = to - from;
    for (size_t t = 0; t < n; t++) {
        float *row = y + t * stride + from, *place = packed + t * wide;
        memcpy(back ? row : place, back ? place : row, wide * sizeof *y);
    }
}

void bn_dist_gather(struct bn_dist *d, float *y, size_t n, size_t stride, const struct bn_cut *cut)
{
    size_t at[BITNET_MAX_RANKS + 1];
    uint32_t ranks = d->ranks.n_ranks, me = d->ranks.rank;
    float *rows = n == 1 ? y : d->room;
    if (d->failed || ranks == 1) return;
    for (uint32_t i = 0; i <= ranks; i++) at[i] = n * cut->at[i] * sizeof *y;
    if (n > 1) pack(rows + n * cut->at[me], y, n, stride, cut->at[me], cut->at[me + 1], false);
    uint64_t start_ns = begin(d);
    end(d, start_ns, at[ranks] - (at[me + 1] - at[me]), d->ranks.gather(d->ranks.user, rows, at));
    for (uint32_t i = 0; n > 1 && i < ranks; i++)
        if (i != me) pack(rows + n * cut->at[i], y, n, stride, cut->at[i], cut->at[i + 1], true);
}

static void broadcast(struct bn_dist *d, void *data, size_t bytes)
{
    uint64_t start_ns = begin(d);
    if (d->failed || d->ranks.n_ranks == 1) return;
    end(d, start_ns, bytes, d->ranks.broadcast(d->ranks.user, data, bytes));
}

void bn_dist_send(struct bn_dist *d, struct bn_buf *message)
{
    struct {
        uint64_t n;
        char data[HEAD_BYTES - sizeof(uint64_t)];
    } head = {.n = message->len};
    bool mine = d->ranks.rank == 0;
    if (mine && message->failed) head.n = 0; /* it lacks something: nobody is to act on it */
    if (mine && head.n)
        memcpy(head.data, message->data, bn_min_size(message->len, sizeof head.data));
    broadcast(d, &head, sizeof head);
    if (mine && message->failed) d->failed = -1;
    if (d->failed || d->ranks.n_ranks == 1) return;
    size_t n = (size_t)head.n, more = n > sizeof head.data ? n - sizeof head.data : 0;
    if (!mine) {
        bn_buf_clear(message);
        bn_buf_append(message, head.data, n - more);
        for (size_t left = more; left && !message->failed;) { /* room for what comes */
            size_t some = bn_min_size(left, sizeof head.data);
            bn_buf_append(message, head.data, some);
            left -= some;
        }
        if (message->failed) {
            d->failed = -1;
            return;
        }
    }
    if (more) broadcast(d, message->data + n - more, more);
}

void bn_dist_collect(struct bn_dist *d, const void *data, size_t n, struct bn_buf *out,
                     size_t at[BITNET_MAX_RANKS + 1])
{
    uint64_t bytes[BITNET_MAX_RANKS] = {0}, mine = n;
    size_t places[BITNET_MAX_RANKS + 1];
    uint32_t ranks = d->ranks.n_ranks;
    for (uint32_t i = 0; i <= ranks; i++) places[i] = i * sizeof *bytes;
    uint64_t start_ns = begin(d);
    if (d->failed) return;
    end(d, start_ns, places[ranks],
        d->ranks.collect(d->ranks.user, &mine, sizeof mine, bytes, places));
    if (d->failed) return;
    if (d->ranks.rank) {
        end(d, bn_now_ns(), n, d->ranks.collect(d->ranks.user, data, n, NULL, NULL));
        return;
    }
    at[0] = 0;
    for (uint32_t i = 0; i < ranks; i++) at[i + 1] = at[i] + (size_t)bytes[i];
    bn_buf_clear(out);
    for (size_t left = at[ranks]; left && !out->failed;) { /* room for what comes */
        static const char zeros[4096];
        size_t some = bn_min_size(left, sizeof zeros);
        bn_buf_append(out, zeros, some);
        left -= some;
    }
    if (out->failed) {
        d->failed = -1;
        return;
    }
    end(d, bn_now_ns(), at[ranks], d->ranks.collect(d->ranks.user, data, n, out->data, at));
}

bool bn_dist_whole(const struct bn_dist *d, double extra_ns)
{
    const char *outputs = d->ranks.outputs;
    if (outputs && strcmp(outputs, "auto") != 0) return strcmp(outputs, "whole") == 0;
    return 2 * (double)d->ranks.exchange_ns > extra_ns;
}

uint64_t bn_dist_measure(struct bn_dist *d)
{
    enum { FLOATS = 32, WARM = 10, TIMED = 40 };
    float rows[BITNET_MAX_RANKS * FLOATS] = {0};
    struct bn_cut cut;
    uint64_t start_ns = 0, took_ns;
    for (uint32_t i = 0; i <= d->ranks.n_ranks; i++) cut.at[i] = (size_t)i * FLOATS;
    for (int i = 0; i < WARM + TIMED; i++) {
        if (i == WARM) start_ns = bn_now_ns();
        bn_dist_gather(d, rows, 1, cut.at[d->ranks.n_ranks], &cut);
    }
    took_ns = (bn_now_ns() - start_ns) / TIMED;
    broadcast(d, &took_ns, sizeof took_ns);
    return took_ns;
}

/* ------------------------------------------------------------------ agreement */

bitnet_status bn_dist_agree(struct bn_dist *d, bitnet_status mine, uint64_t same, const char *what,
                            bitnet_error *err)
{
    struct verdict {
        uint64_t same;
        bitnet_error error;
    } v = {.same = same}, *all;
    struct bn_buf buf, word;
    size_t at[BITNET_MAX_RANKS + 1];
    bitnet_error first = {0};
    if (mine != BITNET_OK && err) v.error = *err;
    v.error.status = mine;
    bn_buf_init(&buf, MAX_MESSAGE_BYTES);
    bn_buf_init(&word, MAX_MESSAGE_BYTES);
    bn_dist_collect(d, &v, sizeof v, &buf, at);
    all = (struct verdict *)(void *)buf.data;
    for (uint32_t i = 0; !d->failed && d->ranks.rank == 0 && i < d->ranks.n_ranks; i++) {
        if (first.status != BITNET_OK) break;
        if (all[i].error.status != BITNET_OK && i)
            bn_error_set(&first, all[i].error.status, "rank %u: %s", i, all[i].error.text);
        else if (all[i].error.status != BITNET_OK) first = all[i].error;
        else if (all[i].same != same)
            bn_error_set(
                &first, BITNET_E_FORMAT,
                "rank %u has another %s than rank 0: the same file must be on every machine", i,
                what);
    }
    bn_buf_append(&word, &first, sizeof first);
    bn_dist_send(d, &word);
    if (!d->failed && word.len == sizeof first) memcpy(&first, word.data, sizeof first);
    bn_buf_free(&buf);
    bn_buf_free(&word);
    if (d->failed) return bn_dist_check(d, err);
    if (first.status == BITNET_OK) return BITNET_OK;
    return bn_fail(err, first.status, "%s", first.text);
}

bitnet_status bn_dist_check(const struct bn_dist *d, bitnet_error *err)
{
    if (!d || !d->failed) return BITNET_OK;
    uint32_t rank = (uint32_t)d->failed - 1;
    if (d->failed > 0 && rank < d->ranks.n_ranks && d->ranks.names)
        return bn_fail(err, BITNET_E_IO, "rank %u, %s, does not answer any more", rank,
                       d->ranks.names[rank]);
    if (d->failed > 0 && rank < d->ranks.n_ranks)
        return bn_fail(err, BITNET_E_IO, "rank %u does not answer any more", rank);
    return bn_fail(err, BITNET_E_IO, "an exchange between ranks has failed");
}
