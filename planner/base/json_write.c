// SPDX-License-Identifier: Apache-2.0
#include "base/json.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void json_add_u64(cJSON *o, const char *key, uint64_t v) {
    if (v < UINT64_C(1) << 53) {
        cJSON_AddNumberToObject(o, key, (double)v);
        return;
    }
    char digits[24];
    snprintf(digits, sizeof digits, "%" PRIu64, v);
    cJSON_AddRawToObject(o, key, digits);
}

void json_add_double(cJSON *o, const char *key, double v) {
    if (isfinite(v))
        cJSON_AddNumberToObject(o, key, v);
    else
        cJSON_AddNullToObject(o, key);
}

void json_add_string(cJSON *o, const char *key, const char *v) {
    if (v)
        cJSON_AddStringToObject(o, key, v);
    else
        cJSON_AddNullToObject(o, key);
}

void json_add_bool(cJSON *o, const char *key, bool v) {
    cJSON_AddBoolToObject(o, key, v);
}

void json_add_null(cJSON *o, const char *key) {
    cJSON_AddNullToObject(o, key);
}

void json_add_figure(cJSON *o, const char *key, struct figure f) {
    cJSON *n = cJSON_AddObjectToObject(o, key);
    json_add_double(n, "value", f.value);
    if (!figure_is_known(f))
        return;
    json_add_string(n, "provenance", provenance_name(f.provenance));
    json_add_string(n, "source", f.source);
    if (f.low != f.value || f.high != f.value) {
        json_add_double(n, "low", f.low);
        json_add_double(n, "high", f.high);
    }
}

cJSON *json_add_object(cJSON *o, const char *key) {
    return cJSON_AddObjectToObject(o, key);
}

cJSON *json_add_array(cJSON *o, const char *key) {
    return cJSON_AddArrayToObject(o, key);
}

cJSON *json_append_object(cJSON *array) {
    cJSON *n = cJSON_CreateObject();
    cJSON_AddItemToArray(array, n);
    return n;
}

// One thread owns the stream: no lock per character.
static void put(FILE *out, const char *text, size_t bytes) {
    fwrite_unlocked(text, 1, bytes, out);
}

static void put_text(FILE *out, const char *text) {
    put(out, text, strlen(text));
}

// A new line at this depth.
static void put_line(FILE *out, int depth) {
    putc_unlocked('\n', out);
    for (int i = 0; i < depth; i++)
        put(out, "  ", 2);
}

static void print_string(FILE *out, const char *s) {
    putc_unlocked('"', out);
    while (*s) {
        size_t plain = 0;
        while ((unsigned char)s[plain] >= 0x20 && s[plain] != '"' && s[plain] != '\\')
            plain++;
        put(out, s, plain);
        s += plain;
        if (!*s)
            break;
        const char *known = strchr("\"\\\b\f\n\r\t", *s);
        if (known)
            fprintf(out, "\\%c", "\"\\bfnrt"[known - "\"\\\b\f\n\r\t"]);
        else
            fprintf(out, "\\u%04x", (unsigned char)*s);
        s++;
    }
    putc_unlocked('"', out);
}

static void print_whole(FILE *out, int64_t v) {
    char digits[24];
    size_t at = sizeof digits;
    uint64_t left = v < 0 ? -(uint64_t)v : (uint64_t)v;
    do
        digits[--at] = (char)('0' + left % 10);
    while (left /= 10);
    if (v < 0)
        digits[--at] = '-';
    put(out, digits + at, sizeof digits - at);
}

// Whole numbers in full, everything else to 9 significant digits: more would be noise in a diff.
static void print_number(FILE *out, double v) {
    if (!isfinite(v))
        put_text(out, "null");
    else if (v == floor(v) && fabs(v) < 0x1p53)
        print_whole(out, (int64_t)v);
    else
        fprintf(out, "%.9g", v);
}

static void print_scalar(FILE *out, const cJSON *item) {
    if (cJSON_IsString(item))
        print_string(out, item->valuestring);
    else if (cJSON_IsNumber(item))
        print_number(out, item->valuedouble);
    else if (cJSON_IsRaw(item))
        put_text(out, item->valuestring);
    else
        put_text(out, cJSON_IsTrue(item) ? "true" : cJSON_IsFalse(item) ? "false" : "null");
}

static bool all_numbers(const cJSON *item) {
    for (const cJSON *c = item->child; c; c = c->next)
        if (!cJSON_IsNumber(c) && !cJSON_IsNull(c))
            return false;
    return true;
}

static void print_value(FILE *out, const cJSON *item, int depth) {
    const bool object = cJSON_IsObject(item);
    if (!object && !cJSON_IsArray(item)) {
        print_scalar(out, item);
        return;
    }
    if (!item->child) {
        put(out, object ? "{}" : "[]", 2);
        return;
    }
    const bool one_line = !object && all_numbers(item); // samples
    putc_unlocked(object ? '{' : '[', out);
    for (const cJSON *c = item->child; c; c = c->next) {
        if (!one_line)
            put_line(out, depth + 1);
        if (object) {
            print_string(out, c->string);
            put(out, ": ", 2);
        }
        print_value(out, c, depth + 1);
        if (c->next)
            put(out, ", ", one_line ? 2 : 1);
    }
    if (!one_line)
        put_line(out, depth);
    putc_unlocked(object ? '}' : ']', out);
}

char *json_to_text(const cJSON *root) {
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    if (!out)
        return NULL;
    print_value(out, root, 0);
    fputc('\n', out);
    bool failed = ferror(out);
    if (fclose(out) != 0 || failed) {
        free(text);
        return NULL;
    }
    return text;
}

bool json_write_file(const char *path, const cJSON *root, struct err *e) {
    char *text = json_to_text(root);
    if (!text)
        return err_set(e, ERR_RESOURCE, "%s: out of memory", path);
    bool ok = json_write_text_file(path, text, strlen(text), e);
    free(text);
    return ok;
}

static bool write_all(int fd, const char *text, size_t bytes) {
    while (bytes > 0) {
        ssize_t n = write(fd, text, bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        text += n;
        bytes -= (size_t)n;
    }
    return true;
}

static bool fail_errno(const char *path, struct err *e) {
    return err_set(e, ERR_RESOURCE, "%s: %s", path, strerror(errno));
}

// A device or pipe has no final name to protect.
static bool write_in_place(const char *path, const char *text, size_t bytes, struct err *e) {
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return fail_errno(path, e);
    bool ok = write_all(fd, text, bytes) || fail_errno(path, e);
    if (close(fd) != 0 && ok)
        ok = fail_errno(path, e);
    return ok;
}

static bool write_beside(const char *path, const char *text, size_t bytes, struct err *e) {
    char temporary[PATH_MAX];
    int length = snprintf(temporary, sizeof temporary, "%s.%ld.tmp", path, (long)getpid());
    if (length < 0 || (size_t)length >= sizeof temporary)
        return err_set(e, ERR_INPUT, "%.200s...: the path is too long", path);
    unlink(temporary); // of a killed process that had our number
    int fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0)
        return fail_errno(path, e);
    if (!write_all(fd, text, bytes) || fsync(fd) != 0) {
        fail_errno(path, e);
        close(fd);
        goto fail;
    }
    if (close(fd) != 0 || rename(temporary, path) != 0) {
        fail_errno(path, e);
        goto fail;
    }
    return true;
fail:
    unlink(temporary);
    return false;
}

bool json_write_text_file(const char *path, const char *text, size_t bytes, struct err *e) {
    if (strcmp(path, "-") == 0) {
        fflush(stdout);
        return write_all(STDOUT_FILENO, text, bytes) || fail_errno("standard output", e);
    }
    struct stat st;
    if (stat(path, &st) != 0)
        return write_beside(path, text, bytes, e);
    if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
        return write_in_place(path, text, bytes, e);
    // Replace what a symbolic link points to, not the link.
    char *target = realpath(path, NULL);
    bool ok = target ? write_beside(target, text, bytes, e) : fail_errno(path, e);
    free(target);
    return ok;
}
