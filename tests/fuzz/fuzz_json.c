// SPDX-License-Identifier: Apache-2.0
// The JSON reader on arbitrary bytes: what it accepts is written and read back unchanged.
#include "base/json.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static cJSON *copy_of(struct json_node n) {
    cJSON *copy;
    uint64_t whole;
    double real;
    if (json_is_object(n) || json_is_array(n)) {
        copy = json_is_object(n) ? cJSON_CreateObject() : cJSON_CreateArray();
        for (size_t i = 0; i < json_size(n); i++) {
            struct json_node child = json_at(n, i);
            if (json_line(child) < 1)
                abort();
            if (json_is_object(n))
                cJSON_AddItemToObject(copy, json_key(child), copy_of(child));
            else
                cJSON_AddItemToArray(copy, copy_of(child));
        }
        return copy;
    }
    if (json_as_u64(n, &whole, NULL) && whole >= UINT64_C(1) << 53) {
        char digits[24];
        snprintf(digits, sizeof digits, "%llu", (unsigned long long)whole);
        return cJSON_CreateRaw(digits);
    }
    if (json_as_double(n, &real, NULL))
        return cJSON_CreateNumber(real);
    return json_is_string(n) ? cJSON_CreateString(n.item->valuestring) : cJSON_CreateNull();
}

// NULL when the reader refuses.
static char *rewritten(const char *text, size_t size) {
    struct err e = {0};
    struct json_doc *d = json_read_text(text, size, "fuzz", &e);
    if (!d) {
        if (e.kind == ERR_NONE || e.text[0] == '\0')
            abort(); // a refusal has a reason
        return NULL;
    }
    cJSON *copy = copy_of(json_root(d));
    char *out = json_to_text(copy);
    cJSON_Delete(copy);
    json_destroy(d);
    return out;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *first = rewritten((const char *)data, size);
    if (!first)
        return 0;
    // Numbers are rounded by the first writing and may change their form by the second.
    char *second = rewritten(first, strlen(first));
    char *third = second ? rewritten(second, strlen(second)) : NULL;
    if (!third || strcmp(second, third) != 0)
        abort();
    free(first);
    free(second);
    free(third);
    return 0;
}
