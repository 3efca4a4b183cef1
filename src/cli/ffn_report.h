/* SPDX-License-Identifier: Apache-2.0
 *
 * ffn_report.h: what an engine counted in its feed-forward layers, for the reports of several
 * commands. */
#ifndef BN_CLI_FFN_REPORT_H
#define BN_CLI_FFN_REPORT_H

#include "json/json.h"
#include <bitnet/bitnet.h>

/* mode, tokens, matrices taken in part, bytes; and layer by layer the shares of open gates and of
 * inputs that are not zero, null where they were not looked at. NULL: out of memory. */
struct bn_json *ffn_report(const bitnet_engine *e);

#endif
