// SPDX-License-Identifier: Apache-2.0
#include "show.h"

#include "base/units.h"

#include <math.h>
#include <string.h>

#define SHOW_ROWS 200 // rows of a table nobody asked for by name
#define SHOW_DEPTH 6
#define SHOW_WHOLE 9007199254740992.0 // 2^53: whole numbers up to here are exact

static bool ends_with(const char *s, const char *suffix) {
    size_t n = strlen(s), m = strlen(suffix);
    return n >= m && strcmp(s + n - m, suffix) == 0;
}

static const char *last_part(const char *dotted) {
    const char *dot = strrchr(dotted, '.');
    return dot ? dot + 1 : dotted;
}

static bool is_fraction(const char *key) {
    static const char *const suffixes[] = {
        "mfu", "hfu",        "mape",       "ape",      "fraction", "bias",          "coverage",
        "_cv", "half_width", "efficiency", "relative", "_rel",     "of_10_percent", "error"};
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++)
        if (ends_with(key, suffixes[i]))
            return true;
    return strcmp(key, "cv") == 0;
}

// 1234567 as 1,234,567.
static void grouped(char *text, size_t size, double v) {
    char digits[32];
    int n = snprintf(digits, sizeof digits, "%.0f", fabs(v));
    size_t used = 0;
    if (v < 0)
        used = (size_t)snprintf(text, size, "\xe2\x88\x92");
    for (int i = 0; i < n && used + 2 < size; i++) {
        if (i > 0 && (n - i) % 3 == 0)
            text[used++] = ',';
        text[used++] = digits[i];
    }
    text[used] = '\0';
}

static void plain(char *text, size_t size, double v) {
    bool whole = v == floor(v) && fabs(v) < SHOW_WHOLE;
    if (whole || (fabs(v) >= UNITS_KILO && fabs(v) < SHOW_WHOLE))
        grouped(text, size, v);
    else
        snprintf(text, size, "%.4g", v);
}

static void bytes_text(char *text, size_t size, double v) {
    double a = fabs(v);
    if (a >= (double)UNITS_GIB && a < 10.0 * (double)UNITS_TIB)
        units_format_gib(text, size, a);
    else
        units_format_bytes(text, size, a);
}

static void seconds_text(char *text, size_t size, double v) {
    units_format_seconds(text, size, v);
    char *unit = strstr(text, " us");
    if (unit && unit[3] == '\0' && (size_t)(unit - text) + 5 < size)
        memcpy(unit, " \xc2\xb5s", 5);
}

const char *show_percent(char text[SHOW_TEXT], double fraction) {
    double percent = 100 * fraction;
    if (isnan(fraction))
        snprintf(text, SHOW_TEXT, "\xe2\x80\x93");
    else if (!isfinite(percent))
        snprintf(text, SHOW_TEXT, "%.4g", fraction);
    else
        snprintf(text, SHOW_TEXT, fabs(percent) < 100 ? "%.3g %%" : "%.0f %%", percent);
    return text;
}

// The text of |v| in the unit its key names; false when the key names none.
static bool unit_text(char *text, size_t size, const char *key, double v) {
    if (strstr(key, "ratio"))
        return false;
    if (strstr(key, "flop_per_s"))
        snprintf(text, size, "%.4g TFLOP/s", v / UNITS_TERA);
    else if (ends_with(key, "flop"))
        snprintf(text, size, "%.4g TFLOP", v / UNITS_TERA);
    else if (strstr(key, "bytes_per_s"))
        units_format_rate(text, size, v);
    else if (strstr(key, "bytes"))
        bytes_text(text, size, v);
    else if (ends_with(key, "_s") && !strstr(key, "_per_s"))
        seconds_text(text, size, v);
    else
        return false;
    return true;
}

const char *show_format(char text[SHOW_TEXT], const char *key, double v) {
    char body[SHOW_TEXT - 4];
    if (isnan(v)) {
        snprintf(text, SHOW_TEXT, "\xe2\x80\x93");
        return text;
    }
    if (v == 0x1p63 && key && strstr(key, "_elements")) { // DeepSpeed's sys.maxsize
        snprintf(text, SHOW_TEXT, "no limit");
        return text;
    }
    if (is_fraction(key))
        return show_percent(text, v);
    if (unit_text(body, sizeof body, key, fabs(v))) {
        snprintf(text, SHOW_TEXT, "%s%s", v < 0 ? "\xe2\x88\x92" : "", body);
        return text;
    }
    plain(text, SHOW_TEXT, v);
    return text;
}

size_t show_told(struct view rows, const struct show_column *all, size_t count,
                 struct show_column *out) {
    size_t n = 0;
    for (size_t i = 0; i < count; i++) {
        bool told = i == 0;
        for (const cJSON *r = view_first(rows); r && !told; r = r->next) {
            const cJSON *c = cJSON_GetObjectItemCaseSensitive(r, all[i].key);
            told = c && !cJSON_IsNull(c) && !cJSON_IsFalse(c);
        }
        if (told)
            out[n++] = all[i];
    }
    return n;
}

static void show_number(struct html *h, struct view v, const char *key) {
    char text[SHOW_TEXT];
    double d = v.item->valuedouble;
    html_printf(h, "<data class=num data-file=\"%d\" data-path=\"", h->file);
    html_text(h, v.path);
    if (isfinite(d))
        html_printf(
            h, d == floor(d) && fabs(d) < SHOW_WHOLE ? "\" value=\"%.0f\">" : "\" value=\"%.17g\">",
            d);
    else
        html_raw(h, "\" value=\"null\">");
    html_text(h, show_format(text, key, isfinite(d) ? d : NAN));
    html_raw(h, "</data>");
}

const char *show_word(const char *word) {
    static const char *const known[][2] = {
        {"inter_node", "inter-node network"},
        {"intra_node", "links inside the node"},
        {"network_latency", "network latency"},
        {"host_issue", "kernel launches"},
        {"host_memory", "host memory"},
        {"pcie", "PCIe"},
        {"nvme", "NVMe"},
        {"cpu", "CPU"},
        {"pipeline_bubble", "pipeline bubble"},
        {"step_first", "first step"},
        {"all_gather", "all-gather"},
        {"reduce_scatter", "reduce-scatter"},
        {"all_reduce", "all-reduce"},
        {"send_recv", "send and receive"},
        {"h2d", "host to GPU"},
        {"d2h", "GPU to host"},
        {"d2d", "within the GPU"},
        {"p2p", "GPU to GPU"},
        {"h2h", "within the host"},
        {"swap_pipelined", "pipelined swap"},
        {"step_time", "step time"},
        {"data_parallel", "data parallel"},
        {"nvme_read", "NVMe read"},
        {"nvme_write", "NVMe write"},
        {"already_enough", "enough already"},
        {"not_used", "not used by this plan"},
        {"latency_bound", "latency holds it: no rate is enough"}};
    for (size_t i = 0; word && i < sizeof known / sizeof *known; i++)
        if (strcmp(word, known[i][0]) == 0)
            return known[i][1];
    return word;
}

// Keys whose words are this program's own; a recipe's words stay as they are typed.
static bool is_worded(const char *key) {
    static const char *const keys[] = {"bound_by", "link", "reason",    "phase", "peak_phase",
                                       "kind",     "path", "direction", "metric"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (strcmp(key, keys[i]) == 0)
            return true;
    return false;
}

static void show_scalar_as(struct html *h, struct view v, const char *key) {
    if (view_is_missing(v))
        html_raw(h, "<span class=none title=\"not stated\">\xe2\x80\x93</span>");
    else if (cJSON_IsNumber(v.item))
        show_number(h, v, key);
    else if (cJSON_IsBool(v.item))
        html_raw(h, cJSON_IsTrue(v.item) ? "yes" : "no");
    else if (cJSON_IsString(v.item))
        html_user(h, is_worded(key) ? show_word(v.item->valuestring) : v.item->valuestring);
    else
        html_printf(h, "%zu entries", view_count(v));
}

void show_scalar(struct html *h, struct view v) {
    show_scalar_as(h, v, v.item && v.item->string ? v.item->string : "");
}

void show_value_as(struct html *h, struct view parent, const char *dotted, const char *key) {
    show_scalar_as(h, view_find(parent, dotted), key);
}

void show_value(struct html *h, struct view parent, const char *dotted) {
    show_scalar_as(h, view_find(parent, dotted), last_part(dotted));
}

void show_label(struct html *h, const char *key) {
    static const char *const units[] = {"_bytes_per_s", "_flop_per_s", "_bytes", "_s"};
    char label[128];
    size_t length = html_clean(label, sizeof label, last_part(key), 80);
    (void)length;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (ends_with(label, units[i]) && strlen(label) > strlen(units[i]) &&
            (i < 2 || !ends_with(label, "per_s"))) {
            label[strlen(label) - strlen(units[i])] = '\0';
            break;
        }
    for (char *c = label; *c; c++)
        if (*c == '_')
            *c = ' ';
    html_user(h, label);
}

void show_table_open(struct html *h, const char *caption) {
    html_raw(h, "<div class=scroll tabindex=0 role=region aria-label=\"");
    html_text(h, caption);
    html_raw(h, "\"><table><caption>");
    html_text(h, caption);
    html_raw(h, "</caption>\n");
}

void show_table_close(struct html *h) {
    html_raw(h, "</table></div>\n");
}

static void row_cells(struct html *h, struct view row, const struct show_table *t, bool marked) {
    html_raw(h, marked ? "<tr class=marked>" : "<tr>");
    for (size_t i = 0; i < t->column_count; i++) {
        html_raw(h, i == 0 ? "<th scope=row>" : "<td>");
        show_value(h, row, t->columns[i].key);
        html_raw(h, i == 0 ? "</th>" : "</td>");
    }
    html_raw(h, "</tr>\n");
}

void show_rows(struct html *h, struct view array, const struct show_table *t) {
    size_t shown = 0, count = view_count(array), limit = t->row_limit ? t->row_limit : count;
    show_table_open(h, t->caption);
    html_raw(h, "<thead><tr>");
    for (size_t i = 0; i < t->column_count; i++) {
        html_raw(h, "<th scope=col>");
        html_text(h, t->columns[i].heading);
        html_raw(h, "</th>");
    }
    html_raw(h, "</tr></thead><tbody>\n");
    for (const cJSON *c = view_first(array); c && shown < limit; c = c->next, shown++)
        row_cells(h, view_member(array, c, shown), t, shown + 1 == t->marked);
    html_raw(h, "</tbody>");
    show_table_close(h);
    if (shown < count)
        html_printf(h, "<p class=note>%zu of %zu rows shown; the rest is in the JSON.</p>\n", shown,
                    count);
}

void show_pair(struct html *h, const char *heading, struct view parent, const char *dotted) {
    html_raw(h, "<tr><th scope=row>");
    html_text(h, heading);
    html_raw(h, "</th><td>");
    show_value(h, parent, dotted);
    html_raw(h, "</td></tr>\n");
}

static bool is_list_of_scalars(struct view v) {
    if (!view_is_array(v))
        return false;
    for (const cJSON *c = view_first(v); c; c = c->next)
        if (cJSON_IsObject(c) || cJSON_IsArray(c))
            return false;
    return true;
}

static void scalar_list(struct html *h, struct view v, const char *key) {
    size_t i = 0, count = view_count(v);
    if (count == 0)
        html_raw(h, "<span class=none>none</span>");
    for (const cJSON *c = view_first(v); c && i < 16; c = c->next, i++) {
        html_raw(h, i ? ", " : "");
        show_scalar_as(h, view_member(v, c, i), key);
    }
    if (i < count)
        html_printf(h, ", and %zu more", count - i);
}

// A cell that may hold a scalar, a short list or a small object.
static void any_cell(struct html *h, struct view v) {
    const char *key = v.item && v.item->string ? v.item->string : "";
    size_t i = 0;
    if (is_list_of_scalars(v)) {
        scalar_list(h, v, key);
        return;
    }
    if (!view_is_object(v)) {
        show_scalar_as(h, v, key);
        return;
    }
    for (const cJSON *c = view_first(v); c; c = c->next, i++) {
        struct view m = view_member(v, c, i);
        if (view_is_missing(m))
            continue;
        html_raw(h, i ? "; " : "");
        show_label(h, c->string);
        html_raw(h, " ");
        if (view_is_scalar(m))
            show_scalar(h, m);
        else
            html_printf(h, "(%zu)", view_count(m));
    }
}

#define SHOW_COLUMNS 24

// The union of the rows' keys in order of first appearance.
static size_t columns_of(struct view array, const char *keys[SHOW_COLUMNS]) {
    size_t n = 0, rows = 0;
    for (const cJSON *r = view_first(array); r && rows < SHOW_ROWS; r = r->next, rows++)
        for (const cJSON *c = cJSON_IsObject(r) ? r->child : NULL; c; c = c->next) {
            size_t i = 0;
            while (i < n && strcmp(keys[i], c->string) != 0)
                i++;
            if (i == n && n < SHOW_COLUMNS)
                keys[n++] = c->string;
        }
    return n;
}

static const cJSON *member_named(const cJSON *object, const char *key) {
    for (const cJSON *c = cJSON_IsObject(object) ? object->child : NULL; c; c = c->next)
        if (strcmp(c->string, key) == 0)
            return c;
    return NULL;
}

static void any_table(struct html *h, struct view array, const char *caption) {
    const char *keys[SHOW_COLUMNS];
    size_t n = columns_of(array, keys), shown = 0;
    show_table_open(h, caption);
    html_raw(h, "<thead><tr>");
    for (size_t i = 0; i < n; i++) {
        html_raw(h, "<th scope=col>");
        show_label(h, keys[i]);
        html_raw(h, "</th>");
    }
    html_raw(h, "</tr></thead><tbody>\n");
    for (const cJSON *r = view_first(array); r && shown < SHOW_ROWS; r = r->next, shown++) {
        struct view row = view_member(array, r, shown);
        html_raw(h, "<tr>");
        for (size_t i = 0; i < n; i++) {
            const cJSON *c = member_named(r, keys[i]);
            html_raw(h, "<td>");
            any_cell(h, c ? view_member(row, c, 0) : (struct view){.arena = row.arena});
            html_raw(h, "</td>");
        }
        html_raw(h, "</tr>\n");
    }
    html_raw(h, "</tbody>");
    show_table_close(h);
    if (shown < view_count(array))
        html_printf(h, "<p class=note>%zu of %zu rows shown; the rest is in the JSON.</p>\n", shown,
                    view_count(array));
}

static void scalar_members(struct html *h, struct view v, const char *caption) {
    size_t i = 0, open = 0;
    for (const cJSON *c = view_first(v); c; c = c->next, i++) {
        struct view m = view_member(v, c, i);
        if (!view_is_scalar(m) && !is_list_of_scalars(m))
            continue;
        if (!open++)
            show_table_open(h, caption);
        html_raw(h, "<tr><th scope=row>");
        show_label(h, c->string);
        html_raw(h, "</th><td>");
        any_cell(h, m);
        html_raw(h, "</td></tr>\n");
    }
    if (open)
        show_table_close(h);
}

static void any_at(struct html *h, struct view v, const char *caption, int depth) {
    size_t i = 0;
    if (view_is_array(v) && !is_list_of_scalars(v)) {
        any_table(h, v, caption);
        return;
    }
    if (!view_is_object(v)) {
        html_raw(h, "<p>");
        html_text(h, caption);
        html_raw(h, ": ");
        any_cell(h, v);
        html_raw(h, "</p>\n");
        return;
    }
    scalar_members(h, v, caption);
    for (const cJSON *c = view_first(v); c; c = c->next, i++) {
        struct view m = view_member(v, c, i);
        if (view_is_scalar(m) || is_list_of_scalars(m))
            continue;
        char label[256];
        snprintf(label, sizeof label, "%.100s: %.100s", caption, show_spaced(c->string, v.arena));
        if (depth < SHOW_DEPTH)
            any_at(h, m, label, depth + 1);
    }
}

void show_any(struct html *h, struct view v, const char *caption) {
    if (!view_is_missing(v))
        any_at(h, v, caption, 0);
}

static bool is_handled(const char *key, const char *const *handled) {
    while (*handled && strcmp(*handled, key) != 0)
        handled++;
    return *handled != NULL;
}

static size_t members(struct html *h, struct view root, const char *const *handled,
                      const char *before) {
    size_t i = 0, shown = 0;
    for (const cJSON *c = view_first(root); c; c = c->next, i++) {
        struct view m = view_member(root, c, i);
        if (is_handled(c->string, handled) || view_is_missing(m))
            continue;
        html_raw(h, shown++ ? "" : before);
        show_any(h, m, show_spaced(c->string, root.arena));
    }
    return shown;
}

void show_members(struct html *h, struct view root, const char *const *handled) {
    members(h, root, handled, "");
}

void show_rest(struct html *h, struct view root, const char *const *handled) {
    if (members(h, root, handled, "<details><summary>Everything else in this file</summary>\n"))
        html_raw(h, "</details>\n");
}

const char *show_spaced(const char *word, struct arena *a) {
    char *text = arena_strdup(a, word);
    for (char *c = text; *c; c++)
        if (*c == '_')
            *c = ' ';
    return text;
}
