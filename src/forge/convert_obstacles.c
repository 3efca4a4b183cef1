/* SPDX-License-Identifier: Apache-2.0
 * What stands in the way of a conversion. Whoever meets an obstacle notes it and goes on, so that all of
 * them are told at once: one sentence for each kind, about the first tensor, and the names of others. */
#include "forge/convert_impl.h"

#include <stdarg.h>
#include <stdio.h>

void bn_obstacle_add(struct bn_obstacles *o, enum bn_obstacle_kind kind, const char *tensor,
                     const char *format, ...)
{
    struct bn_obstacle *this = &o->of[kind];
    if (this->n && strcmp(this->last, tensor) == 0) return; /* another row of the same */
    this->last = tensor;
    this->n++;
    if (this->n > 1) {
        size_t room = sizeof this->others - this->others_len;
        int len = snprintf(this->others + this->others_len, room, "%s'%s'",
                           this->listed ? ", " : "", tensor);
        bool fits = len > 0 && (size_t)len < room && this->listed == this->n - 2;
        if (fits) this->others_len += (size_t)len, this->listed++;
        this->others[this->others_len] = 0;
        return;
    }
    va_list args;
    va_start(args, format);
    vsnprintf(this->text, sizeof this->text, format, args);
    va_end(args);
}

static void put(struct bn_buf *b, const struct bn_obstacle *this)
{
    uint32_t more = this->n - 1 - this->listed;
    bn_buf_puts(b, this->text);
    if (this->n == 1) return;
    bn_buf_printf(b, " (also %s", this->others);
    if (more) bn_buf_printf(b, "%s%u more", this->listed ? " and " : "", more);
    bn_buf_putc(b, ')');
}

bitnet_status bn_obstacles_end(const struct bn_obstacles *o, bitnet_error *err)
{
    struct bn_buf b;
    uint32_t n = 0;
    bn_buf_init(&b, 1 << 14);
    for (int kind = 0; kind < BN_N_OBSTACLES; kind++) {
        if (!o->of[kind].n) continue;
        if (n++) bn_buf_puts(&b, "; ");
        put(&b, &o->of[kind]);
    }
    bitnet_status s = BITNET_OK;
    if (b.failed) s = bn_fail_nomem(err, 1 << 14, "a message");
    else if (n == 1) s = bn_fail(err, BITNET_E_UNSUPPORTED, "%s", b.data);
    else if (n) s = bn_fail(err, BITNET_E_UNSUPPORTED, "%u things are in the way: %s", n, b.data);
    bn_buf_free(&b);
    return s;
}
