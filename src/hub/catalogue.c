/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/catalogue.h"

#include "base/suggest.h"

static const struct hub_model models[] = {
#define MODEL(name, repo, pick, bytes, licence, what) {name, repo, pick, bytes, licence, what},
#include "hub/catalogue.def"
#undef MODEL
};

const struct hub_model *hub_catalogue_at(size_t i)
{
    return i < BN_ARRAY_LEN(models) ? &models[i] : NULL;
}

const struct hub_model *hub_catalogue_find(const char *name)
{
    for (size_t i = 0; i < BN_ARRAY_LEN(models); i++)
        if (strcasecmp(models[i].name, name) == 0) return &models[i];
    return NULL;
}

const struct hub_model *hub_catalogue_of(const char *repo)
{
    for (size_t i = 0; i < BN_ARRAY_LEN(models); i++)
        if (strcasecmp(models[i].repo, repo) == 0) return &models[i];
    return NULL;
}

const char *hub_catalogue_suggest(const char *typed)
{
    struct bn_suggest s;
    bn_suggest_start(&s, typed);
    for (size_t i = 0; i < BN_ARRAY_LEN(models); i++) bn_suggest_offer(&s, models[i].name);
    return s.best;
}

uint64_t hub_memory_need(uint64_t file_bytes)
{
    return file_bytes + file_bytes / 10 + (uint64_t)300 * 1000 * 1000;
}
