/* SPDX-License-Identifier: Apache-2.0
 * Fuzz target: any bytes as a chat template, parsed and rendered. It must end with a text or a
 * sentence. tests/fuzz/meson.build says how to build and run it. */
#include "text/template/chat.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const bitnet_message msgs[] = {{"system", " Be brief.\n"},
                                          {"user", "H\xc3\xa9llo <|eot_id|>"},
                                          {"assistant", "\xff\xfe bad bytes"},
                                          {"user", ""}};
    const struct bn_chat_vars vars = {.msgs = msgs,
                                      .n_msgs = 4,
                                      .add_generation_prompt = true,
                                      .bos_token = "<s>",
                                      .eos_token = "</s>",
                                      .now_s = 1700000000};
    struct bn_jinja *j;
    bitnet_error err = {0};
    if (bn_jinja_parse(&j, (const char *)data, n, &err) != BITNET_OK) {
        if (!err.text[0]) abort();
        return 0;
    }
    struct bn_buf out;
    bn_buf_init(&out, BN_JINJA_MAX_OUTPUT);
    bitnet_status st = bn_jinja_render(j, &vars, &out, &err);
    if (st != BITNET_OK && (!err.text[0] || err.status != st || out.len)) abort();
    bn_buf_free(&out);
    bn_jinja_free(j);
    return 0;
}
