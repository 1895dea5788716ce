// SPDX-License-Identifier: Apache-2.0
// The text side of a JSON document: strict syntax, and where in the text an item stands.
#pragma once

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>

enum { JSON_DEPTH_MAX = 64 };

// NULL when `text` is one JSON value of RFC 8259 in UTF-8 without trailing text, at most
// JSON_DEPTH_MAX deep; else what is wrong, with *at set to the offset of the fault.
const char *json_scan_check(const char *text, size_t bytes, size_t *at);

// Offset of `target` (its value, not its key) in the checked text that `root` was parsed from.
// False if it is not there.
bool json_scan_find(const char *text, const cJSON *root, const cJSON *target, size_t *at);

int json_scan_line(const char *text, size_t at); // 1-based
// Bytes of the UTF-8 sequence at p, 0 when it is not one.
size_t json_scan_utf8(const unsigned char *p, size_t left);
