/* SPDX-License-Identifier: Apache-2.0
 *
 * catalogue.h: the short names, compiled in: models that people ask for and this engine runs. Sizes
 * are for the list; a download goes by what the hub says.
 */
#ifndef BN_HUB_CATALOGUE_H
#define BN_HUB_CATALOGUE_H

#include "base/base.h"

struct hub_model {
    const char *name, *repo, *pick; /* pick: a file, :TYPE, or "": to be chosen */
    uint64_t bytes;                 /* 0: not known */
    const char *licence, *what;     /* licence "": not known */
};

const struct hub_model *hub_catalogue_at(size_t i); /* NULL behind the last */
const struct hub_model *hub_catalogue_find(const char *name);
const struct hub_model *hub_catalogue_of(const char *repo); /* by its repository; NULL: none */
/* The nearest short name; NULL: none is near. */
const char *hub_catalogue_suggest(const char *typed);

/* Memory that a model of this size takes with a context of a few thousand tokens, roughly: the file,
 * a tenth for what is packed and computed, and 300 MB. */
uint64_t hub_memory_need(uint64_t file_bytes);

#endif
