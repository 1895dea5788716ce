// SPDX-License-Identifier: Apache-2.0
#include "bench/progress.h"

#include "base/units.h"

void progress_show(FILE *to, const struct measure_result *point, size_t done, size_t total) {
    char size[32];
    if (to == NULL)
        return;
    units_format_bytes(size, sizeof(size), (double)point->payload_bytes);
    fprintf(to, "\r\033[K[%zu/%zu] %s %s %s %s", done + 1, total, point->kind,
            point->direction ? point->direction : "", point->algorithm ? point->algorithm : "",
            point->payload_bytes ? size : "");
    fflush(to);
}

void progress_clear(FILE *to) {
    if (to == NULL)
        return;
    fprintf(to, "\r\033[K");
    fflush(to);
}
