/* SPDX-License-Identifier: Apache-2.0
 *
 * access_log.h: one JSON object a line for every request that was answered, or was not. Never holds
 * prompts, generated text or keys.
 */
#ifndef BN_SERVER_METRICS_ACCESS_LOG_H
#define BN_SERVER_METRICS_ACCESS_LOG_H

#include "base/status.h"
#include <stdio.h>

struct access_log {
    FILE *to; /* NULL: off */
    const char *path;
};

struct access_line {
    const char *request_id, *peer, *method, *path;
    int status; /* 0: the client disconnected before there was a reply */
    bool stream;
    uint64_t total_ns, first_ns, queue_ns;
    uint32_t n_prompt, n_cached, n_generated;
    const char *model;  /* NULL: it was about none */
    const char *finish; /* NULL: no choice of the model */
    const char *error;  /* NULL: none */
};

/* path: "-" for standard error, NULL for none. */
bitnet_status access_log_open(struct access_log *l, const char *path, bitnet_error *err);
/* After the file was moved away; called at SIGHUP. */
bitnet_status access_log_reopen(struct access_log *l, bitnet_error *err);
void access_log_write(struct access_log *l, const struct access_line *line);
void access_log_close(struct access_log *l);

#endif
