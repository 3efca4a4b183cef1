/* SPDX-License-Identifier: Apache-2.0
 * The assembler puts the files into read-only data as they are. pages_files.def is made at build
 * (tools/list_pages.py); it changes with the files, so that this is compiled again. */
#include "server/pages.h"

/* clang-format off */
#define PAGE(i, path, type, etag, bytes, file)                                                     \
    extern const unsigned char page_data_##i[] __attribute__((visibility("hidden")));              \
    __asm__(".section .rodata\n"                                                                   \
            ".hidden page_data_" #i "\n"                                                           \
            ".globl page_data_" #i "\n"                                                            \
            "page_data_" #i ":\n"                                                                  \
            ".incbin \"" file "\"\n"                                                               \
            ".previous\n");
#include "server/pages_files.def"
#undef PAGE

static const struct page pages[] = {
#define PAGE(i, path, type, etag, bytes, file) {path, type, page_data_##i, bytes, etag},
#include "server/pages_files.def"
#undef PAGE
};
/* clang-format on */

const struct page *page_find(const char *path)
{
    for (size_t i = 0; i < BN_ARRAY_LEN(pages); i++)
        if (strcmp(pages[i].path, path) == 0) return &pages[i];
    return NULL;
}
