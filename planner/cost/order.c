// SPDX-License-Identifier: Apache-2.0
#include "cost/order.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

int order_rank(const char *module) {
    bool norm = strstr(module, "norm") != NULL || strstr(module, "ln_") != NULL;
    bool nested = strchr(module, '.') != NULL;
    if (!norm || nested)
        return strstr(module, "attn") != NULL || strstr(module, "attention") != NULL ? 1 : 4;
    static const char *const first[] = {"input", "ln_1", "norm_1", "self_attn", "ln_attn"};
    for (size_t i = 0; i < sizeof first / sizeof *first; i++)
        if (strstr(module, first[i]) != NULL)
            return 0;
    if (strstr(module, "post_feedforward") != NULL)
        return 5;
    return strstr(module, "post_attention") != NULL ? 2 : 3;
}
