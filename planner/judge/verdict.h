// SPDX-License-Identifier: Apache-2.0
// A cluster passes or fails against what its topology should give, or against its own baseline.
// docs/method.md §acceptance.
#pragma once

#include "base/arena.h"
#include "base/err.h"
#include "describe/cluster.h"
#include "describe/measure.h"
#include "describe/topology.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum verdict_status {
    VERDICT_PASS,
    VERDICT_FAIL,
    VERDICT_WAIVED,
    VERDICT_NODATA,
    VERDICT_STATUS_COUNT
};
extern const char *const verdict_status_names[VERDICT_STATUS_COUNT];

struct verdict_check {
    const char *name; // "all_gather 1 GiB, 8 ranks"
    enum verdict_status status;
    double measured_bytes_per_s, limit_bytes_per_s; // NAN where there is none
    double baseline_bytes_per_s, model_bytes_per_s;
    const char *culprit; // "pair 1,3", "rank 2"; NULL = nobody in particular
    const char *reason, *next_step;
    bool required;
    bool near; // failed within a quarter of its limit: measuring again may settle it
};

struct verdict {
    struct verdict_check *checks;
    size_t count;
    size_t by_status[VERDICT_STATUS_COUNT];
    enum verdict_status overall;
    const char *reason;
};

struct verdict_request {
    const struct cluster *cluster;
    const struct measurement *measurements, *baselines;
    size_t measurement_count, baseline_count;
    const struct topology *topologies; // as tools report them
    size_t topology_count;
    uint64_t host_needed_bytes;         // of the plan that is to run; 0 = none
    bool needs_nvme, needs_collectives; // what that plan uses
};

#define VERDICT_RETRIES 3
// It failed, and only near limits: measure up to VERDICT_RETRIES times again, hand all the
// measurements in, and the median of the repeats decides.
bool verdict_wants_retry(const struct verdict *v);

// ERR_RESOURCE never: missing data is NODATA, and no data never passes.
bool verdict_judge(const struct verdict_request *q, struct arena *a, struct verdict *out,
                   struct err *e);
