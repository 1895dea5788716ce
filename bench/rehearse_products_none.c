// SPDX-License-Identifier: Apache-2.0
// Of a build without cuBLASLt.
#include "bench/rehearse_products.h"

bool products_open(const struct products_setup *s, struct products **out, struct err *e) {
    (void)s, (void)e;
    *out = NULL;
    return true;
}

void products_close(struct products *p) {
    (void)p;
}

bool products_queue(struct products *p, const struct graph_task *t, double *left, struct err *e) {
    (void)p, (void)t, (void)e;
    *left = 1;
    return true;
}
