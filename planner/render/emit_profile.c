// SPDX-License-Identifier: Apache-2.0
#include "render/emit_profile.h"

#include "base/units.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

// ---- JSON ---------------------------------------------------------------------------------------

static void fill_classes(cJSON *o, const struct profile *p) {
    cJSON *list = json_add_array(o, "classes");
    for (int i = 0; i < PROFILE_CLASS_COUNT; i++) {
        const struct profile_class_total *c = &p->classes[i];
        if (c->count == 0)
            continue;
        cJSON *x = json_append_object(list);
        json_add_string(x, "class", profile_class_names[i]);
        json_add_double(x, "kernels", c->count);
        json_add_double(x, "busy_s", c->busy_s);
        json_add_double(x, "payload_bytes",
                        profile_is_comm((enum profile_class)i) ? c->payload_bytes : NAN);
    }
}

void emit_profile_fill(cJSON *o, const struct profile *p) {
    json_add_string(o, "file", p->name);
    json_add_string(o, "gpu", p->gpu);
    if (p->rank >= 0)
        json_add_u64(o, "rank", (uint64_t)p->rank);
    else
        json_add_null(o, "rank");
    json_add_u64(o, "world", p->world);
    json_add_u64(o, "events", p->events);
    json_add_u64(o, "kernels", p->kernels);
    json_add_u64(o, "kernels_outside_steps", p->outside);
    json_add_string(o, "steps_from", profile_steps_names[p->from]);
    cJSON *list = json_add_array(o, "steps");
    for (size_t i = 0; i < p->step_count; i++) {
        cJSON *x = json_append_object(list);
        json_add_u64(x, "number", p->steps[i].number);
        json_add_double(x, "start_s", p->steps[i].start_s);
        json_add_double(x, "step_s", p->steps[i].step_s);
    }
    json_add_double(o, "step_s", p->step_s);
    json_add_double(o, "compute_s", p->compute_s);
    json_add_double(o, "comm_s", p->comm_s);
    json_add_double(o, "copy_s", p->copy_s);
    json_add_double(o, "exposed_comm_s", p->exposed_comm_s);
    json_add_double(o, "exposed_copy_s", p->exposed_copy_s);
    json_add_double(o, "idle_s", p->idle_s);
    fill_classes(o, p);
    list = json_add_array(o, "streams");
    for (size_t i = 0; i < p->stream_count; i++) {
        cJSON *x = json_append_object(list);
        json_add_u64(x, "stream", p->streams[i].number);
        json_add_double(x, "busy_s", p->streams[i].busy_s);
        json_add_string(x, "mostly", profile_class_names[p->streams[i].largest]);
    }
}

void emit_snapshot_fill(cJSON *o, const struct snapshot *s) {
    json_add_string(o, "file", s->name);
    json_add_u64(o, "device", s->device);
    json_add_u64(o, "devices", s->devices);
    json_add_u64(o, "events", s->events);
    json_add_u64(o, "allocations", s->allocations);
    json_add_u64(o, "out_of_memory_events", s->ooms);
    json_add_bool(o, "has_history", s->has_history);
    json_add_u64(o, "allocated_peak_bytes", s->allocated_peak_bytes);
    json_add_u64(o, "allocated_start_bytes", s->allocated_start_bytes);
    json_add_u64(o, "allocated_end_bytes", s->allocated_end_bytes);
    json_add_u64(o, "reserved_peak_bytes", s->reserved_peak_bytes);
    json_add_u64(o, "reserved_end_bytes", s->reserved_end_bytes);
    json_add_double(o, "peak_at_s", s->peak_at_s);
    json_add_u64(o, "peak_attributed_bytes", s->peak_framed_bytes);
    cJSON *list = json_add_array(o, "classes");
    for (int i = 0; i < SNAPSHOT_CLASS_COUNT; i++) {
        cJSON *x = json_append_object(list);
        json_add_string(x, "class", snapshot_class_names[i]);
        json_add_u64(x, "at_peak_bytes", s->peak_bytes[i]);
        json_add_u64(x, "own_peak_bytes", s->own_peak_bytes[i]);
    }
}

void emit_comparison(cJSON *o, const struct comparison *c) {
    cJSON *list = json_add_array(o, "comparison");
    for (size_t i = 0; i < c->count; i++) {
        const struct compare_row *r = &c->rows[i];
        cJSON *x = json_append_object(list);
        json_add_string(x, "name", r->name);
        json_add_string(x, "unit", r->unit);
        json_add_double(x, "predicted", r->predicted);
        json_add_double(x, "measured", r->measured);
        json_add_double(x, "ratio", r->ratio);
    }
}

// ---- tables -------------------------------------------------------------------------------------

static const char *seconds(double s, char *buf, size_t size) {
    return units_format_seconds(buf, size, s);
}

void emit_profile_table(const struct profile *p, FILE *out) {
    char a[32], b[32];
    fprintf(out, "  %s, %zu step%s (%s), %" PRIu64 " kernels; per step:\n",
            p->gpu ? p->gpu : "unknown GPU", p->step_count, p->step_count == 1 ? "" : "s",
            profile_steps_names[p->from], p->kernels);
    fprintf(out, "  step %s, GPU kernels %s", seconds(p->step_s, a, sizeof a),
            seconds(p->compute_s, b, sizeof b));
    fprintf(out, ", exposed network %s", seconds(p->exposed_comm_s, a, sizeof a));
    fprintf(out, ", exposed copies %s", seconds(p->exposed_copy_s, a, sizeof a));
    fprintf(out, ", idle %s\n\n", seconds(p->idle_s, a, sizeof a));
    fprintf(out, "  %-16s %9s %12s %12s\n", "class", "kernels", "time", "payload");
    for (int i = 0; i < PROFILE_CLASS_COUNT; i++) {
        const struct profile_class_total *c = &p->classes[i];
        if (c->count == 0)
            continue;
        bool payload = profile_is_comm((enum profile_class)i) && isfinite(c->payload_bytes);
        fprintf(out, "  %-16s %9.0f %12s %12s\n", profile_class_names[i], c->count,
                seconds(c->busy_s, a, sizeof a),
                payload ? units_format_bytes(b, sizeof b, c->payload_bytes) : "-");
    }
    fputc('\n', out);
    for (size_t i = 0; i < p->stream_count; i++)
        fprintf(out, "  stream %-9" PRIu64 " %9s %12s  mostly %s\n", p->streams[i].number, "",
                seconds(p->streams[i].busy_s, a, sizeof a),
                profile_class_names[p->streams[i].largest]);
}

void emit_snapshot_table(const struct snapshot *s, FILE *out) {
    char a[32], b[32];
    fprintf(out, "  device %" PRIu64 ": allocated peak %s", s->device,
            units_format_bytes(a, sizeof a, (double)s->allocated_peak_bytes));
    fprintf(out, ", reserved peak %s, %" PRIu64 " allocations",
            units_format_bytes(a, sizeof a, (double)s->reserved_peak_bytes), s->allocations);
    fprintf(out, "; stacks tell %.0f %% of the peak\n\n",
            s->allocated_peak_bytes
                ? 100 * (double)s->peak_framed_bytes / (double)s->allocated_peak_bytes
                : 0);
    fprintf(out, "  %-16s %12s %12s\n", "class", "at the peak", "own peak");
    for (int i = 0; i < SNAPSHOT_CLASS_COUNT; i++)
        if (s->own_peak_bytes[i] > 0)
            fprintf(out, "  %-16s %12s %12s\n", snapshot_class_names[i],
                    units_format_bytes(a, sizeof a, (double)s->peak_bytes[i]),
                    units_format_bytes(b, sizeof b, (double)s->own_peak_bytes[i]));
}

static const char *value(double v, const char *unit, char *buf, size_t size) {
    if (!isfinite(v))
        return "-";
    if (strcmp(unit, "s") == 0)
        return units_format_seconds(buf, size, v);
    if (strcmp(unit, "bytes") == 0)
        return units_format_bytes(buf, size, v);
    snprintf(buf, size, "%.0f", v);
    return buf;
}

void emit_comparison_table(const struct comparison *c, FILE *out) {
    char a[32], b[32];
    fprintf(out, "\n  %-26s %12s %12s %9s\n", "", "predicted", "measured", "ratio");
    for (size_t i = 0; i < c->count; i++) {
        const struct compare_row *r = &c->rows[i];
        fprintf(out, "  %-26s %12s %12s ", r->name, value(r->predicted, r->unit, a, sizeof a),
                value(r->measured, r->unit, b, sizeof b));
        if (isfinite(r->ratio))
            fprintf(out, "%9.2f\n", r->ratio);
        else
            fprintf(out, "%9s\n", "-");
    }
}
