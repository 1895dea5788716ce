// SPDX-License-Identifier: Apache-2.0
// The JSON form of a GPU (docs/formats.md §gpu), shared by GPU files and clusters that hold one
// inline.
#pragma once

#include "base/json.h"
#include "describe/cluster.h"

void gpu_init(struct gpu *g); // every figure unknown

// Read an object over `g`: members that are absent or null leave what is there. "base" names a
// catalog GPU to start from.
bool gpu_read_node(struct json_node n, struct arena *a, struct gpu *g, struct err *e);
void gpu_write_node(cJSON *o, const struct gpu *g);

// An integer member below `max`; absent or null leaves *out.
bool gpu_read_u64(struct json_node o, const char *key, uint64_t max, uint64_t *out, struct err *e);
