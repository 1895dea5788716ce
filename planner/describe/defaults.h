// SPDX-License-Identifier: Apache-2.0
// models/defaults.json: what stands in for a figure nobody has published, always `assumed`, with
// its basis and an interval of at least 2x.
#pragma once

#include "describe/cluster.h"

bool defaults_fill_gpu(struct gpu *g, struct arena *a, struct err *e);
// Also fills the cluster's GPU.
bool defaults_fill_cluster(struct cluster *c, struct arena *a, struct err *e);
