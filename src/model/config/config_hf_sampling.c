/* SPDX-License-Identifier: Apache-2.0
 * What a checkpoint's generation_config.json recommends for sampling. */
#include "base/os/file.h"
#include "json/json.h"
#include "model/config/config_sampling.h"

enum { MAX_BYTES = 1 << 20 };

static bitnet_status read(struct bn_config *c, const struct bn_json *j, const char *path,
                          struct bn_buf *note, bitnet_error *err)
{
    bool sample = true;
    if (!bn_json_is_object(j)) return bn_fail(err, BITNET_E_FORMAT, "%s: not a JSON object", path);
    BN_TRY(bn_json_read_bool(&sample, j, "do_sample", path, err));
    for (size_t i = 0; i < BN_N_SAMPLING_MEMBERS; i++) {
        const struct bn_sampling_member *m = &bn_sampling_members[i];
        const struct bn_json *v = m->hf ? bn_json_get(j, m->hf) : NULL;
        bool temperature = m->bit == BITNET_SAMPLING_TEMPERATURE;
        if (!sample && temperature) bn_config_recommend(c, m, 0, note); /* greedy */
        else if (bn_json_is_number(v)) bn_config_recommend(c, m, bn_json_number(v), note);
    }
    return BITNET_OK;
}

bitnet_status bn_config_sampling_from_hf(struct bn_config *c, const char *folder,
                                         struct bn_buf *note, bitnet_error *err)
{
    struct bn_buf path;
    struct bn_json *j = NULL;
    bn_buf_init(&path, 1 << 16);
    bn_buf_printf(&path, "%s/generation_config.json", folder);
    bitnet_status s = BITNET_OK;
    if (path.failed) s = bn_fail_nomem(err, strlen(folder), "a path");
    else if (bn_exists(path.data)) s = bn_json_read_file(&j, path.data, MAX_BYTES, err);
    if (s == BITNET_OK && j) s = read(c, j, path.data, note, err);
    bn_json_free(j);
    bn_buf_free(&path);
    return s;
}
