// SPDX-License-Identifier: Apache-2.0
// Between the files that judge a cluster.
#pragma once

#include "judge/verdict.h"

struct verdict_point {
    const struct measure_result *result;
    const char *key; // two results of one point have the same
};

struct judge {
    const struct verdict_request *q;
    struct arena *a;
    struct verdict *out;
    size_t capacity;
    const struct verdict_point *measured, *baseline;
    size_t measured_count, baseline_count;
    double usual_cv; // over the baseline's points; no point counts as steadier
};

// A new check, NODATA and required until somebody decides.
struct verdict_check *verdict_add(struct judge *j, const char *name);
// Passes or fails by its measured value and limit; without a limit there is nothing to say.
void verdict_decide(struct judge *j, struct verdict_check *c, const char *next_step);
void verdict_fail(struct verdict_check *c, const char *culprit, const char *reason,
                  const char *next_step);
const char *verdict_size_text(struct judge *j, uint64_t bytes);

// Pairs of ranks or devices and all-but-one collectives: who is slow, a link or its end.
void verdict_links(struct judge *j);
bool verdict_is_link(const struct measure_result *r); // judged there, not as a collective
// Whether pairs over this kind of link were measured, with a topology that says which they are.
bool verdict_measured_over(const struct judge *j, enum topology_path path);
// What tools say about slots, peers and sockets.
void verdict_topology(struct judge *j);
