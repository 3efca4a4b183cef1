/* SPDX-License-Identifier: Apache-2.0
 *
 * retry.h: what fails because of the network is tried again, with growing pauses.
 */
#ifndef BN_HUB_NET_RETRY_H
#define BN_HUB_NET_RETRY_H

#include "hub/net/conn.h"

enum { HUB_RETRIES = 5 }; /* failures one after the other that end it */

/* The pause after the n-th failure, from 1; as long as the last reply asks for (Retry-After), up to a
 * minute. Cut short by cancelling. */
void hub_retry_pause(const struct hub_conn *c, int n);
/* Calls f until it returns something else than BITNET_E_IO. */
bitnet_status hub_retry(struct hub_conn *c,
                        bitnet_status (*f)(void *user, struct hub_conn *c, bitnet_error *err),
                        void *user, bitnet_error *err);

#endif
