/* SPDX-License-Identifier: Apache-2.0
 *
 * backend.h: which kernels a command uses, and whether this CPU runs them.
 */
#ifndef BN_CLI_OPTIONS_BACKEND_H
#define BN_CLI_OPTIONS_BACKEND_H

/* A mistyped backend is a usage error with the names there are, whose exit code is returned; whether
 * this CPU has it, the library says. */
int backend_check(const char *name, const char *command);

/* A virtual machine may promise instructions that it does not run. The kernels of this backend are
 * tried in a process of their own; where that ends with an illegal instruction, the lesser ones are,
 * and *name becomes the first backend that runs, with a note. Returns the one that does not, NULL if
 * nothing was changed. To be called once, before a model is opened and while there is one thread. */
const char *backend_probe(const char **name);

#endif
