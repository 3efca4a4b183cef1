/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/tree.h"

#include <dirent.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

enum { MAX_DEPTH = 12 };

bool hub_path(char out[HUB_PATH_BYTES], const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(out, HUB_PATH_BYTES, fmt, ap);
    va_end(ap);
    return n > 0 && n < HUB_PATH_BYTES;
}

static int is_entry(const struct dirent *e)
{
    return strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
}

bool hub_each_name(const char *folder, bool (*visit)(void *user, const char *name), void *user)
{
    struct dirent **names = NULL;
    bool more = true;
    int n = scandir(folder, &names, is_entry, alphasort);
    for (int i = 0; i < n; i++) {
        if (more) more = visit(user, names[i]->d_name);
        free(names[i]);
    }
    free(names);
    return more;
}

struct walk {
    bool (*visit)(void *user, const char *path, const char *full);
    void *user;
    size_t n_root; /* bytes of the folder's name and a slash */
    const char *folder;
    int depth;
};

static bool visit_entry(void *user, const char *name)
{
    const struct walk *w = user;
    char full[HUB_PATH_BYTES];
    struct stat st;
    if (!hub_path(full, "%s/%s", w->folder, name) || lstat(full, &st) != 0) return true;
    if (!S_ISDIR(st.st_mode)) return w->visit(w->user, full + w->n_root, full);
    struct walk below = *w;
    below.folder = full;
    below.depth++;
    return below.depth > MAX_DEPTH || hub_each_name(full, visit_entry, &below);
}

bool hub_each_file(const char *folder,
                   bool (*visit)(void *user, const char *path, const char *full), void *user)
{
    struct walk w = {visit, user, strlen(folder) + 1, folder, 0};
    return hub_each_name(folder, visit_entry, &w);
}
