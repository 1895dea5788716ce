// SPDX-License-Identifier: Apache-2.0
// The recommended plan on 1, 2, 4, ... nodes of its kind with the same batch per GPU.
#pragma once

#include "judge/advise.h"

bool advise_scale(const struct advise_request *q, const struct advise_way *best, struct advice *v,
                  struct err *e);
