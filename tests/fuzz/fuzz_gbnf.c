/* SPDX-License-Identifier: Apache-2.0
 * Fuzz target: any bytes as a grammar in GBNF. tests/fuzz/meson.build says how to build and run it. */
#include "fuzz_grammar.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct bn_grammar *g = NULL;
    bitnet_error err = {0};
    bitnet_status st = bn_grammar_from_gbnf(&g, fuzz_tree(), (const char *)data, n, &err);
    fuzz_grammar(st, g, &err, data, n);
    return 0;
}
