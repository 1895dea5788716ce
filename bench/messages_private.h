// SPDX-License-Identifier: Apache-2.0
// Between the files that make messages.
#pragma once

#include "bench/messages.h"

// Chooses the scale, and each message's backend and point.
void messages_place(struct messages *m, const struct messages_request *q);
