/* SPDX-License-Identifier: Apache-2.0
 * What the tests of pruning share: the model, a text of it, and a folder for what is written. */
#ifndef PRUNE_COMMON_H
#define PRUNE_COMMON_H

#include "engine_common.h"

#include <unistd.h>

enum { TOKENS = 150, WINDOW = 64, LAYERS = 10 };

static int32_t text[TOKENS];
static char folder[] = "/tmp/bitnet-prune-XXXXXX", out_path[64], again_path[64];

static int set_up(void **state)
{
    static const char story[] =
        "Once upon a time, there was a little girl named Lily. She loved to play outside with her "
        "red ball. One day, the ball rolled under a big bush, and a small bird sat on it. The bird "
        "said, \"Hello! Is this your ball?\" Lily smiled and said, \"Yes, it is. Do you want to "
        "play with me?\" They played all day and were very happy. When the sun went down, Lily's "
        "mom called her home for dinner. \"Thank you, bird,\" said Lily. \"I will come back "
        "tomorrow.\" The bird sang a song, and Lily ran home as fast as she could. The next day "
        "she came back with some bread for her new friend, and they shared it under the bush.";
    bitnet_error err = {0};
    int32_t ids[4 * TOKENS];
    size_t n = 4 * TOKENS;
    if (open_model(state) || !mkdtemp(folder)) return -1;
    snprintf(out_path, sizeof out_path, "%s/out.gguf", folder);
    snprintf(again_path, sizeof again_path, "%s/again.gguf", folder);
    if (bitnet_encode(model, story, sizeof story - 1, 0, ids, &n, &err) || n < TOKENS) return -1;
    memcpy(text, ids, sizeof text);
    return 0;
}

#endif
