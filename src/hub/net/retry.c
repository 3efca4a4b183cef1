/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/net/retry.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { FIRST_MS = 200, MOST_MS = 5000, TICK_MS = 50, WAIT_MAX_S = 60 };

static int asked_for_ms(const struct hub_conn *c)
{
    int status = c->reader.status;
    const char *wait =
        status == 429 || status == 503 ? http_header(&c->reader, "retry-after") : NULL;
    long s = wait ? strtol(wait, NULL, 10) : 0;
    return s <= 0 ? 0 : s > WAIT_MAX_S ? WAIT_MAX_S * 1000 : (int)s * 1000;
}

void hub_retry_pause(const struct hub_conn *c, int n)
{
    const struct hub_net *net = c->net;
    int ms = FIRST_MS, asked = asked_for_ms(c);
    while (--n > 0 && ms < MOST_MS) ms *= 2;
    if (asked) ms = asked;
    const struct timespec tick = {.tv_nsec = TICK_MS * 1000000};
    for (; ms > 0 && !hub_cancelled(&net->cancel); ms -= TICK_MS) nanosleep(&tick, NULL);
}

bitnet_status hub_retry(struct hub_conn *c,
                        bitnet_status (*f)(void *user, struct hub_conn *c, bitnet_error *err),
                        void *user, bitnet_error *err)
{
    for (int n = 1;; n++) {
        bitnet_status s = f(user, c, err);
        if (s != BITNET_OK) hub_conn_close(c);
        if (s != BITNET_E_IO || n == HUB_RETRIES) return s;
        hub_retry_pause(c, n);
    }
}
