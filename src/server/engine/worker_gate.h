/* SPDX-License-Identifier: Apache-2.0
 *
 * worker_gate.h: the cores that several engines share. A step needs as many as its engine has threads; steps
 * that do not fit beside those that run wait, and have their turn in the order in which they came. So two
 * engines that use all cores alternate, step by step, instead of getting into each other's way.
 */
#ifndef BN_SERVER_ENGINE_WORKER_GATE_H
#define BN_SERVER_ENGINE_WORKER_GATE_H

#include "base/status.h"

struct worker_gate;

/* NULL: out of memory. */
struct worker_gate *worker_gate_open(uint32_t cores);
void worker_gate_close(struct worker_gate *g); /* nobody is inside; may be NULL */
/* More cores than there are count as all of them. g may be NULL: then nobody waits. */
void worker_gate_enter(struct worker_gate *g, uint32_t cores);
void worker_gate_leave(struct worker_gate *g, uint32_t cores);

#endif
