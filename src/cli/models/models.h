/* SPDX-License-Identifier: Apache-2.0
 *
 * models.h: what the commands about downloaded models share.
 */
#ifndef BN_CLI_MODELS_MODELS_H
#define BN_CLI_MODELS_MODELS_H

#include "hub/local.h"
#include "json/json.h"

struct bn_json *models_local_json(const struct hub_local *l);

#endif
