// SPDX-License-Identifier: Apache-2.0
// Private to plan/step*: the run of a step as tasks, streams and memory over time.
#pragma once

#include "plan/step_account.h"

void step_timeline_fill(struct step_builder *b, const struct sim_result *r,
                        const struct step_account *account, struct step_timeline *out);
