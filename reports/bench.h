// SPDX-License-Identifier: Apache-2.0
// What the two halves of the measurements' section share.
#pragma once

#include "page.h"

bool bench_is_collective(const cJSON *result);
bool bench_is_pair(const cJSON *result); // between two named ends
double bench_rate(const cJSON *result);  // bus rate, else algorithm rate; bytes per second
void bench_local(struct page *p, struct view results);    // bars of what is not a collective
void bench_left_out(struct page *p, struct view results); // leave-one-out, when there is one
