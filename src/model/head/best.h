/* SPDX-License-Identifier: Apache-2.0
 * The best few of many scores, kept in a heap with the worst on top. Ties go to the smaller id, so
 * what it holds in the end does not depend on the order of arrival. */
#ifndef BN_MODEL_HEAD_BEST_H
#define BN_MODEL_HEAD_BEST_H

#include "base/base.h"

struct bn_scored {
    float score;
    uint32_t id;
};

static inline bool bn_worse(struct bn_scored a, struct bn_scored b)
{
    return a.score < b.score || (a.score == b.score && a.id > b.id);
}

/* Takes x in if it belongs to the best `room`; heap[n], returns the new n. */
static inline uint32_t bn_best_push(struct bn_scored *heap, uint32_t n, uint32_t room,
                                    struct bn_scored x)
{
    uint32_t i = n;
    if (n < room) {
        for (; i > 0 && bn_worse(x, heap[(i - 1) / 2]); i = (i - 1) / 2)
            heap[i] = heap[(i - 1) / 2];
        heap[i] = x;
        return n + 1;
    }
    if (!bn_worse(heap[0], x)) return n;
    i = 0;
    for (uint32_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && bn_worse(heap[child + 1], heap[child])) child++;
        if (!bn_worse(heap[child], x)) break;
        heap[i] = heap[child];
    }
    heap[i] = x;
    return n;
}

#endif
