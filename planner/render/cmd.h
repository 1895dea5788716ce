// SPDX-License-Identifier: Apache-2.0
// The commands, one file each: cmd_<name>.c defines <name>_command; main.c lists them.
#pragma once

#include "render/cli.h"

extern const char *const model_cluster_help[]; // help of the positionals MODEL CLUSTER

extern const struct command plan_command;
extern const struct command simulate_command;
extern const struct command sweep_command;
extern const struct command fit_command;
extern const struct command accept_command;
extern const struct command advise_command;
extern const struct command catalog_command;
extern const struct command validate_command;
extern const struct command bench_command, confirm_command, rehearse_command, report_command;
extern const struct command check_command, emit_command, explain_command;
