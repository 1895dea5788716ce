// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "bench/backend.h"

extern const struct backend backend_null;
