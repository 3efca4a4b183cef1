/* SPDX-License-Identifier: Apache-2.0
 *
 * charts.h: the drawings of a profile's page. phase: a member of "phases" of the report.
 */
#ifndef BN_CLI_PROFILE_CHARTS_H
#define BN_CLI_PROFILE_CHARTS_H

#include "base/buf.h"
#include "json/json.h"

/* The class that has a kind's colour. */
const char *chart_kind_class(const char *kind);

/* A share of the most that there can be, as a bar that is full at 1. */
void chart_gauge(struct bn_buf *b, double share, const char *what);
/* Where the time of a token goes, as one bar with a legend. */
void chart_kinds(struct bn_buf *b, const struct bn_json *phase);
/* A column for every layer. */
void chart_layers(struct bn_buf *b, const struct bn_json *phase);
/* A bar for every worker. */
void chart_workers(struct bn_buf *b, const struct bn_json *phase);
/* Phase, groups of layers, kinds, operations: each below what it is part of. */
void chart_flame(struct bn_buf *b, const char *name, const struct bn_json *phase);
/* points: arrays of seconds since the first, ascending, and a value; at least two. */
void chart_line(struct bn_buf *b, const struct bn_json *points, const char *what);

#endif
