/* SPDX-License-Identifier: Apache-2.0
 * A plain main for a fuzz target: gives it every file of the folders named, once, from memory that
 * ends where the file ends. Without libFuzzer, so that every build replays the corpora. */
#include "base/buf.h"
#include "base/os/file.h"
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_BYTES = 16 << 20 };

static bool replay(const char *path)
{
    char *text;
    size_t n;
    bitnet_error err;
    if (bn_read_file(&text, &n, path, MAX_BYTES, &err) != BITNET_OK) {
        fprintf(stderr, "%s\n", err.text);
        return false;
    }
    uint8_t *exact = malloc(n ? n : 1);
    if (exact && n) memcpy(exact, text, n);
    free(text);
    if (!exact) return false;
    fprintf(stderr, "%s\n", path); /* the last line names the input that ended the program */
    LLVMFuzzerTestOneInput(exact, n);
    free(exact);
    return true;
}

int main(int argc, char **argv)
{
    size_t n = 0;
    for (int i = 1; i < argc; i++) {
        DIR *dir = opendir(argv[i]);
        if (!dir) {
            fprintf(stderr, "cannot open the folder '%s'\n", argv[i]);
            return 1;
        }
        for (struct dirent *e; (e = readdir(dir));) {
            struct bn_buf path;
            if (e->d_name[0] == '.') continue;
            bn_buf_init(&path, 1 << 16);
            bool ok = bn_buf_printf(&path, "%s/%s", argv[i], e->d_name) && replay(path.data);
            bn_buf_free(&path);
            if (!ok) return closedir(dir), 1;
            n++;
        }
        closedir(dir);
    }
    if (n == 0) fprintf(stderr, "no inputs\n");
    else printf("%zu inputs\n", n);
    return n == 0;
}
