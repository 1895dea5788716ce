// SPDX-License-Identifier: Apache-2.0
// How soon a thread that wakes gets its core.
#pragma once

// Asks for short turns on the core instead of long ones: a thread that naps between looks at the
// network then runs when it wakes, also beside a thread that computes (Linux 6.12 and later; no
// effect before). Its share of the core stays the same. For the calling thread.
void slice_make_short(void);
