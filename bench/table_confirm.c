// SPDX-License-Identifier: Apache-2.0
#include <math.h>
#include <string.h>

#include "base/units.h"
#include "bench/table.h"

static const char *text(const cJSON *o, const char *key) {
    const char *s = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(o, key));
    return s != NULL ? s : "-";
}

// Exact adders write numbers as raw text.
static double number(const cJSON *o, const char *key) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(o, key);
    double value = NAN;
    if (cJSON_IsNumber(item))
        return item->valuedouble;
    if (cJSON_IsRaw(item) && sscanf(item->valuestring, "%lf", &value) != 1)
        return NAN;
    return value;
}

static const char *bytes(char *buf, double value) {
    return isfinite(value) ? units_format_bytes(buf, 32, value) : "-";
}

static const char *seconds(char *buf, double value) {
    return isfinite(value) ? units_format_seconds(buf, 32, value) : "-";
}

static const char *ratio(char *buf, double value) {
    if (!isfinite(value))
        return "-";
    snprintf(buf, 32, "%.3f", value);
    return buf;
}

static void print_line(FILE *out, const char *label, const cJSON *o, const char *planned_key) {
    char a[32], b[32], c[32], d[32], f[32], g[32], w[32];
    fprintf(out, "%-34s %12s %12s %7s %12s %11s %11s %7s\n", label,
            bytes(a, number(o, planned_key)), bytes(b, number(o, "measured_bytes")),
            ratio(c, number(o, "ratio_bytes")), bytes(w, number(o, "wire_bytes")),
            seconds(d, number(o, "planned_s")), seconds(f, number(o, "measured_s")),
            ratio(g, number(o, "ratio_s")));
}

void table_print_confirm(FILE *out, const cJSON *confirm) {
    const cJSON *item, *totals = cJSON_GetObjectItemCaseSensitive(confirm, "totals");
    char label[96];
    fprintf(out, "%s on %s, %s: %.0f ranks here, payloads times %.4g\n", text(confirm, "model"),
            text(confirm, "cluster"), text(confirm, "strategy"), number(confirm, "ranks"),
            number(confirm, "scale"));
    fprintf(out, "%-34s %12s %12s %7s %12s %11s %11s %7s\n", "transfer (one rank, one step)",
            "planned", "measured", "ratio", "on wires", "planned", "measured", "ratio");
    cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(confirm, "transfers")) {
        const char *what = text(item, "what");
        snprintf(label, sizeof(label), "%s %s %s", text(item, "phase"), text(item, "kind"),
                 strcmp(what, "-") == 0 ? "" : what);
        print_line(out, label, item, "run_planned_bytes");
        if (strcmp(text(item, "reason"), "-") != 0)
            fprintf(out, "    %s\n", text(item, "reason"));
    }
    print_line(out, "collectives, and all seconds", totals, "planned_bytes");
    double each = number(totals, "payload_bytes_per_parameter");
    if (isfinite(each))
        fprintf(out, "gathered and reduced bytes per parameter: %.4g\n", each);
}

static void print_pair(FILE *out, const char *label, double simulated_s, double measured_s) {
    char a[32], b[32], c[32];
    fprintf(out, "%-28s %12s %12s %7s\n", label, seconds(a, simulated_s), seconds(b, measured_s),
            ratio(c, measured_s / simulated_s));
}

void table_print_rehearse(FILE *out, const cJSON *rehearsal) {
    const cJSON *item, *step = cJSON_GetObjectItemCaseSensitive(rehearsal, "step");
    char label[64];
    fprintf(out, "%-28s %12s %12s %7s\n", "", "simulated", "measured", "ratio");
    print_pair(out, "step", number(step, "simulated_s"), number(step, "measured_s"));
    cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(rehearsal, "streams")) {
        if (!(number(item, "simulated_busy_s") > 0))
            continue;
        print_pair(out, text(item, "name"), number(item, "simulated_busy_s"),
                   number(item, "measured_busy_s"));
        print_pair(out, "  without a kernel beside it", number(item, "simulated_exposed_s"),
                   number(item, "measured_exposed_s"));
    }
    fprintf(out, "\nfurthest from the simulation\n");
    cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(rehearsal, "deviating")) {
        snprintf(label, sizeof(label), "%s %s %s", text(item, "phase"), text(item, "kind"),
                 text(item, "unit"));
        print_pair(out, label, number(item, "simulated_s"), number(item, "measured_s"));
    }
    fprintf(out, "%s\n", text(rehearsal, "note"));
}
