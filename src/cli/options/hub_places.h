/* SPDX-License-Identifier: Apache-2.0
 *
 * hub_places.h: where models lie and come from, as the environment says: the variables of the hub's own
 * clients (HF_HOME, HF_HUB_CACHE, HF_ENDPOINT, HF_TOKEN, HF_HUB_OFFLINE, ...), Ollama's OLLAMA_MODELS, and
 * the usual ones for proxies and certificates.
 */
#ifndef BN_CLI_OPTIONS_HUB_PLACES_H
#define BN_CLI_OPTIONS_HUB_PLACES_H

#include "hub/places.h"

/* *out: free(); NULL on failure, when the error line has been printed and the exit code is returned. */
int hub_places_new(struct hub_places **out);

#endif
