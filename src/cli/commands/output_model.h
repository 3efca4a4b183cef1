/* SPDX-License-Identifier: Apache-2.0
 *
 * output_model.h: model files that convert and synth write: may the file be written, and what is in it.
 */
#ifndef BN_CLI_COMMANDS_OUTPUT_MODEL_H
#define BN_CLI_COMMANDS_OUTPUT_MODEL_H

#include <stdbool.h>
#include <stdint.h>

/* Before the work: an existing file is only replaced with --force. The library refuses as well, but
 * does not know the option. Returns the exit code. */
int output_model_check(const char *path, bool force);

/* Reads the file's directory back and prints how many tensors of which type it holds. Returns
 * the exit code. */
int output_model_report(const char *path, uint64_t ns, bool json);

#endif
