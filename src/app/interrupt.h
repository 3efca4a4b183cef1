/* SPDX-License-Identifier: Apache-2.0
 *
 * interrupt.h: Ctrl-C, and requests to end from outside, as a flag that long work looks at. The
 * first one asks politely, so that no half-written file stays behind; a second one ends the program
 * at once.
 */
#ifndef BN_APP_INTERRUPT_H
#define BN_APP_INTERRUPT_H

#include <stdbool.h>

void interrupt_install(void);
bool interrupt_pending(void);
bool interrupt_by_user(void); /* pending, and it was Ctrl-C */
void interrupt_clear(void);   /* forget it and listen again */
/* Waits until fd can be read: true, also at its end. false: interrupted, also by a signal that came
 * just before the wait began, which a plain read() would sleep through. */
bool interrupt_wait_readable(int fd);
/* What a terminal is to look like when the second signal ends the program; NULL: as it is. Copied. */
struct termios;
void interrupt_keep_terminal(const struct termios *t);
int interrupt_exit_code(void); /* 130 for Ctrl-C; 128 + signal as shells count */

#endif
