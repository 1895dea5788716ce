// SPDX-License-Identifier: Apache-2.0
// Results without a section of their own: what emit, catalog and catalog import write.
#include "chart.h"
#include "page.h"

#include "base/units.h"

#include <math.h>
#include <string.h>

static bool is_schema(struct view root, const char *name) {
    const char *schema = view_string(root, "schema");
    return schema && strcmp(schema, name) == 0;
}

static void say_emit(struct page *p, struct view root) {
    struct html *h = &p->html;
    html_raw(h, "<p class=headline>");
    html_user(h, view_string(root, "strategy"));
    html_raw(h, " for ");
    page_subject(p, root);
    html_raw(h, ", as a configuration of ");
    html_user(h, view_string(root, "kind"));
    html_raw(h, ".</p>\n");
    if (view_string(root, "file")) {
        html_raw(h, "<p>Written to <code>");
        html_user(h, view_string(root, "file"));
        html_raw(h, "</code>.</p>\n");
    }
}

static void say_catalog(struct page *p, struct view root) {
    static const char *const kinds[] = {"models", "gpus", "clusters"};
    static const char *const words[] = {"models", "GPUs", "clusters"};
    struct html *h = &p->html;
    size_t said = 0;
    html_raw(h, "<p class=headline>");
    for (size_t i = 0; i < 3; i++)
        if (view_is_array(view_find(root, kinds[i])))
            html_printf(h, "%s%zu %s", said++ ? ", " : "The catalog has ",
                        view_count(view_find(root, kinds[i])), words[i]);
    if (!said) {
        const char *name = view_string(root, "entry.name");
        html_raw(h, "One entry of the catalog: ");
        html_user(h, name ? name : view_string(root, "entry.id"));
    }
    html_raw(h, ".</p>\n");
}

static void say_topology(struct page *p, struct view root) {
    struct view devices = view_find(root, "devices");
    size_t gpus = 0;
    for (const cJSON *d = view_first(devices); d; d = d->next) {
        const char *kind = view_item_string(d, "kind");
        gpus += kind && strcmp(kind, "gpu") == 0;
    }
    html_printf(&p->html, "<p class=headline>%zu GPUs and %zu other devices.</p>\n", gpus,
                view_count(devices) - gpus);
    if (view_bool(root, "complete") == 0)
        html_raw(&p->html, "<p class=missing>The file was cut off: rows are missing.</p>\n");
}

static void say_profile(struct page *p, struct view root) {
    struct html *h = &p->html;
    html_raw(h, "<p class=headline>A step took ");
    show_value(h, root, "step_s");
    html_raw(h, " (median): ");
    show_value(h, root, "compute_s");
    html_raw(h, " with kernels running, ");
    show_value(h, root, "exposed_comm_s");
    html_raw(h, " of exposed communication, ");
    show_value(h, root, "exposed_copy_s");
    html_raw(h, " of exposed copies, ");
    show_value(h, root, "idle_s");
    html_raw(h, " idle.</p>\n");
}

static void say_snapshot(struct page *p, struct view root) {
    struct html *h = &p->html;
    html_raw(h, "<p class=headline>Allocated memory peaks at ");
    show_value(h, root, "allocated_peak_bytes");
    html_raw(h, ", reserved at ");
    show_value(h, root, "reserved_peak_bytes");
    html_raw(h, ".</p>\n");
    if (view_bool(root, "has_history") == 0)
        html_raw(h, "<p class=missing>The snapshot has no history: the peak is what is allocated "
                    "now.</p>\n");
}

void page_plain_answer(struct page *p, struct view root) {
    static const struct {
        const char *schema;
        page_writer *say;
    } known[] = {{"shardplan.emit/1", say_emit},
                 {"shardplan.catalog/1", say_catalog},
                 {"shardplan.topology/1", say_topology},
                 {"shardplan.profile/1", say_profile},
                 {"shardplan.snapshot/1", say_snapshot}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (is_schema(root, known[i].schema))
            known[i].say(p, root);
}

// ---- pictures -----------------------------------------------------------------------------------

// One bar: a step of a trace by what ran, and the rest.
static void profile_figure(struct page *p, struct view root) {
    enum { PARTS = 4 };
    static const char *const keys[PARTS] = {"compute_s", "exposed_comm_s", "exposed_copy_s",
                                            "idle_s"};
    static const char *const names[PARTS] = {"kernels", "exposed communication", "exposed copies",
                                             "idle"};
    static const enum plot_colour colours[PARTS] = {PLOT_BLUE, PLOT_VERMILLION, PLOT_ORANGE,
                                                    PLOT_LIGHT};
    static const char *const rows[] = {"step"};
    double values[PARTS], sum = 0;
    char text[SHOW_TEXT], part[SHOW_TEXT];
    const char *unit;
    for (size_t i = 0; i < PARTS; i++) {
        values[i] = view_number(root, keys[i]);
        sum += values[i] > 0 ? values[i] : 0;
    }
    if (!(sum > 0))
        return;
    double scale = axis_seconds(sum, &unit), kernels = values[0];
    for (size_t i = 0; i < PARTS; i++)
        values[i] /= scale;
    const char *ends[] = {arena_strdup(p->arena, show_format(text, "_s", sum))};
    struct plot *plot = plot_add(&p->plots, "profile", "Where the traced step's time goes");
    plot->alt = arena_printf(p->arena, "Kernels run for %s of a step of %s",
                             show_percent(part, kernels / sum), ends[0]);
    chart_bars(plot, &(struct chart_bars){
                         .x_label = arena_printf(p->arena, "time of a step, median (%s)", unit),
                         .segments = names,
                         .colours = colours,
                         .segment_count = PARTS,
                         .rows = rows,
                         .row_count = 1,
                         .per_row = 1,
                         .values = values,
                         .ends = ends});
    page_figure(p, plot);
}

// What was allocated at the peak, by class.
static void snapshot_figure(struct page *p, struct view classes) {
    enum { SHOWN = 16 };
    static const char *const names[] = {"at the peak"};
    static const enum plot_colour colours[] = {PLOT_BLUE};
    const char *rows[SHOWN], *ends[SHOWN], *largest = NULL;
    double values[SHOWN], most = 0;
    size_t n = 0;
    for (const cJSON *c = view_first(classes); c && n < SHOWN; c = c->next) {
        double bytes = view_item_number(c, "at_peak_bytes");
        const char *name = view_item_string(c, "class");
        char text[SHOW_TEXT];
        if (!(bytes > 0) || !name)
            continue;
        rows[n] = show_spaced(name, p->arena);
        ends[n] = arena_strdup(p->arena, show_format(text, "_bytes", bytes));
        if (bytes > most) {
            most = bytes;
            largest = arena_printf(p->arena, "%.40s with %s", rows[n], ends[n]);
        }
        values[n++] = bytes / (double)UNITS_GIB;
    }
    if (n == 0)
        return;
    struct plot *plot =
        plot_add(&p->plots, "snapshot", "What the memory holds at its peak, by class");
    plot->alt = arena_printf(p->arena, "Most of the peak is %s", largest);
    chart_bars(plot, &(struct chart_bars){.x_label = "allocated (GiB)",
                                          .segments = names,
                                          .colours = colours,
                                          .segment_count = 1,
                                          .rows = rows,
                                          .row_count = n,
                                          .per_row = 1,
                                          .values = values,
                                          .ends = ends});
    page_figure(p, plot);
}

// How each device reaches each other one, in nvidia-smi's words.
static void paths_table(struct page *p, struct view root) {
    struct html *h = &p->html;
    struct view devices = view_find(root, "devices"), paths = view_find(root, "paths");
    size_t i = 0;
    if (view_count(devices) == 0 || view_count(paths) == 0)
        return;
    show_table_open(h, "Paths between devices");
    html_raw(h, "<thead><tr><th scope=col>From");
    for (const cJSON *d = view_first(devices); d; d = d->next) {
        html_raw(h, "<th scope=col>");
        html_user(h, view_item_string(d, "name"));
    }
    html_raw(h, "</tr></thead><tbody>\n");
    for (const cJSON *row = view_first(paths); row; row = row->next, i++) {
        struct view cells = view_member(paths, row, i);
        const cJSON *device = cJSON_GetArrayItem(devices.item, (int)i);
        size_t k = 0;
        html_raw(h, "<tr><th scope=row>");
        html_user(h, device ? view_item_string(device, "name") : NULL);
        html_raw(h, "</th>");
        for (const cJSON *c = view_first(cells); c; c = c->next, k++) {
            html_raw(h, "<td>");
            if (i == k && cJSON_IsNull(c))
                html_raw(h, "<span class=none>itself</span>");
            else
                show_scalar(h, view_member(cells, c, k));
            html_raw(h, "</td>");
        }
        html_raw(h, "</tr>\n");
    }
    html_raw(h, "</tbody>");
    show_table_close(h);
}

// ---- figures with their origin ------------------------------------------------------------------

static void figure_row(struct page *p, struct view figure, const char *name) {
    static const char *const cells[] = {"value", "low", "high"};
    struct html *h = &p->html;
    html_raw(h, "<tr><th scope=row>");
    html_user(h, name);
    html_raw(h, "</th>");
    for (size_t i = 0; i < sizeof cells / sizeof *cells; i++) {
        html_raw(h, "<td>");
        show_value_as(h, figure, cells[i], name);
        html_raw(h, "</td>");
    }
    html_raw(h, "<td>");
    page_badge(p, view_string(figure, "provenance") ? view_string(figure, "provenance")
                                                    : "not stated");
    html_raw(h, "</td><td class=words>");
    show_value(h, figure, "source");
    if (view_string(figure, "note")) {
        html_raw(h, "; ");
        show_value(h, figure, "note");
    }
    html_raw(h, "</td></tr>\n");
}

// Every {"value", "provenance", …} below `v`, named by its path; `rows` counts them.
static void figure_rows(struct page *p, struct view v, const char *prefix, int depth,
                        size_t *rows) {
    enum { DEEPEST = 6, MOST = 500 };
    size_t i = 0;
    for (const cJSON *c = view_first(v); c && depth < DEEPEST && *rows < MOST; c = c->next, i++) {
        struct view m = view_member(v, c, i);
        const char *key = c->string ? c->string : "";
        const char *name = arena_printf(p->arena, "%.120s%s%.60s", prefix, *prefix ? "." : "", key);
        if (!view_is_object(m))
            continue;
        if (view_find(m, "value").item && view_find(m, "provenance").item) {
            if ((*rows)++ == 0) {
                show_table_open(&p->html, "Figures and their origin");
                html_raw(&p->html,
                         "<thead><tr><th scope=col>Figure<th scope=col>Value<th scope=col>at the "
                         "least<th scope=col>at the most<th scope=col>Known by<th scope=col>Source"
                         "</tr></thead><tbody>\n");
            }
            figure_row(p, m, name);
        } else {
            figure_rows(p, m, name, depth + 1, rows);
        }
    }
}

void page_figures(struct page *p, struct view entry) {
    size_t rows = 0;
    figure_rows(p, entry, "", 0, &rows);
    if (rows) {
        html_raw(&p->html, "</tbody>");
        show_table_close(&p->html);
    }
}

void page_plain_body(struct page *p, struct view root) {
    static const char *const handled[] = {"schema", "command", "text", "paths", NULL};
    if (view_string(root, "text")) {
        page_heading(p, "The file");
        html_raw(&p->html, "<pre class=command tabindex=0><code>");
        html_lines(&p->html, view_string(root, "text"));
        html_raw(&p->html, "</code></pre>\n");
    }
    if (is_schema(root, "shardplan.profile/1"))
        profile_figure(p, root);
    if (is_schema(root, "shardplan.snapshot/1"))
        snapshot_figure(p, view_find(root, "classes"));
    paths_table(p, root);
    page_figures(p, view_find(root, "entry"));
    if (view_string(root, "text") || view_is_object(view_find(root, "entry")))
        show_rest(&p->html, root, handled);
    else
        show_members(&p->html, root, handled);
}
