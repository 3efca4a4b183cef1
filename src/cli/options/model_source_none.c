/* SPDX-License-Identifier: Apache-2.0
 *
 * The minimal program opens files; it knows no names.
 */
#include "cli/options/model_source.h"

#include "base/os/file.h"
#include "app/term.h"

bool model_source_is_name(const char *word)
{
    (void)word;
    return false;
}

void model_source_hint(char *out, size_t n, const char *word)
{
    snprintf(out, n,
             "'%s' is no file or folder here, so it is read as the beginning of the prompt; this "
             "minimal build knows models by their files only",
             word);
}

int model_find(const char **typed, struct model_source *from, const char *command)
{
    static const char *const starts[] = {"hf:", "hf.co/", "ollama:", "https://"};
    (void)from;
    (void)command;
    for (size_t i = 0; *typed && i < BN_ARRAY_LEN(starts); i++)
        if (strncmp(*typed, starts[i], strlen(starts[i])) == 0 && !bn_exists(*typed))
            return term_fail_text("'%s' would be downloaded, which this minimal build cannot do",
                                  *typed);
    return EXIT_DONE;
}
