/* SPDX-License-Identifier: Apache-2.0
 * The assembler puts the file into read-only data as it is; no generated source, no copy in
 * memory. */
#include "model/files/embedded.h"

#ifdef BN_EMBED_FILE
extern const char bn_embedded_begin[] __attribute__((visibility("hidden")));
extern const char bn_embedded_end[] __attribute__((visibility("hidden")));

__asm__(".section .rodata\n"
        ".balign 64\n"
        ".hidden bn_embedded_begin\n"
        ".globl bn_embedded_begin\n"
        "bn_embedded_begin:\n"
        ".incbin \"" BN_EMBED_FILE "\"\n"
        ".hidden bn_embedded_end\n"
        ".globl bn_embedded_end\n"
        "bn_embedded_end:\n"
        ".byte 0\n"
        ".previous\n");

const void *bn_embedded_model(size_t *bytes)
{
    *bytes = (size_t)(bn_embedded_end - bn_embedded_begin);
    return bn_embedded_begin;
}
#else
const void *bn_embedded_model(size_t *bytes)
{
    *bytes = 0;
    return NULL;
}
#endif
