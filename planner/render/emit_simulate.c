// SPDX-License-Identifier: Apache-2.0
#include "render/emit_simulate.h"

#include "base/units.h"
#include "render/emit_plan.h"
#include "render/emit_profile.h"

#include <math.h>
#include <string.h>

enum { GANTT_COLUMNS = 72 };

// ---- shared -------------------------------------------------------------------------------------

size_t emit_phases(const struct step_timeline *t, struct arena *a, struct emit_phase **out) {
    struct emit_phase *list = arena_array(a, t->task_count + 1, sizeof *list);
    size_t n = 0;
    for (size_t i = 0; i < t->task_count; i++) {
        const struct step_timeline_task *k = &t->tasks[i];
        if (strcmp(k->stream, "compute") != 0)
            continue;
        if (n == 0 || strcmp(list[n - 1].name, k->phase) != 0) {
            double start_s = n > 0 ? list[n - 1].end_s : 0;
            list[n++] = (struct emit_phase){k->phase, start_s, start_s};
        }
        list[n - 1].end_s = k->end_s;
    }
    for (size_t i = 0; i < t->task_count && n > 0; i++)
        list[n - 1].end_s = fmax(list[n - 1].end_s, t->tasks[i].end_s);
    *out = list;
    return n;
}

double emit_peak_bytes(const struct step_timeline *t) {
    double peak = 0;
    for (size_t i = 0; i < t->memory_count; i++)
        peak = fmax(peak, t->memory[i].allocated_bytes);
    return peak;
}

const char *emit_wait_text(const struct step_wait *w, struct arena *a) {
    return arena_printf(a, "%s waits %.1f %% of its time for %s", w->phase, w->fraction * 100,
                        w->on);
}

// ---- JSON ---------------------------------------------------------------------------------------

static void add_waits(cJSON *root, const struct emit_simulation *s, struct arena *a) {
    cJSON *list = json_add_array(root, "waits");
    for (size_t i = 0; i < s->time->wait_count; i++) {
        const struct step_wait *w = &s->time->waits[i];
        cJSON *o = json_append_object(list);
        json_add_string(o, "phase", w->phase);
        json_add_string(o, "on", w->on);
        json_add_double(o, "seconds_s", w->seconds);
        json_add_double(o, "fraction", w->fraction);
        json_add_string(o, "text", emit_wait_text(w, a));
    }
}

static void add_timeline(cJSON *root, const struct step_timeline *t, struct arena *a) {
    struct emit_phase *phases;
    size_t phase_count = emit_phases(t, a, &phases);
    json_add_u64(root, "timeline_micro_steps", t->micro_steps);
    cJSON *list = json_add_array(root, "phases");
    for (size_t i = 0; i < phase_count; i++) {
        cJSON *o = json_append_object(list);
        json_add_string(o, "name", phases[i].name);
        json_add_double(o, "start_s", phases[i].start_s);
        json_add_double(o, "end_s", phases[i].end_s);
    }
    list = json_add_array(root, "streams");
    for (size_t i = 0; i < t->stream_count; i++) {
        cJSON *o = json_append_object(list);
        json_add_string(o, "name", t->streams[i].name);
        json_add_double(o, "busy_s", t->streams[i].busy_s);
        json_add_double(o, "exposed_s", t->streams[i].exposed_s);
    }
    list = json_add_array(root, "tasks");
    for (size_t i = 0; i < t->task_count; i++) {
        cJSON *o = json_append_object(list);
        json_add_u64(o, "id", i);
        json_add_string(o, "name", t->tasks[i].name);
        json_add_string(o, "stream", t->tasks[i].stream);
        json_add_string(o, "phase", t->tasks[i].phase);
        json_add_double(o, "start_s", t->tasks[i].start_s);
        json_add_double(o, "end_s", t->tasks[i].end_s);
        json_add_bool(o, "exposed", t->tasks[i].exposed);
    }
    json_add_double(root, "peak_bytes", emit_peak_bytes(t));
    list = json_add_array(root, "memory_over_time");
    for (size_t i = 0; i < t->memory_count; i++) {
        cJSON *o = json_append_object(list);
        json_add_double(o, "time_s", t->memory[i].time_s);
        json_add_double(o, "allocated_bytes", t->memory[i].allocated_bytes);
    }
}

static void add_planned_memory(cJSON *root, const struct memory *m) {
    json_add_u64(root, "planned_allocated_peak_bytes", m->allocated_peak_bytes);
    json_add_u64(root, "planned_reserved_bytes", m->reserved_bytes);
}

static void add_jitter(cJSON *root, const struct emit_simulation *s) {
    if (s->jittered == NULL)
        return;
    cJSON *o = json_add_object(root, "jitter");
    json_add_u64(o, "ranks", s->jitter->ranks ? s->jitter->ranks : s->recipe->world);
    json_add_u64(o, "draws", s->jitter->draws);
    json_add_u64(o, "seed", s->jitter->seed);
    json_add_double(o, "relative_sd", s->jitter->relative_sd);
    json_add_double(o, "straggler_rate", s->jitter->straggler_rate);
    json_add_double(o, "straggler_slowdown", s->jitter->straggler_slowdown);
    json_add_double(o, "base_s", s->jittered->base_s);
    json_add_double(o, "mean_s", s->jittered->mean_s);
    json_add_double(o, "p50_s", s->jittered->p50_s);
    json_add_double(o, "p95_s", s->jittered->p95_s);
    json_add_double(o, "p99_s", s->jittered->p99_s);
    json_add_double(o, "straggler_share", s->jittered->straggler_share);
}

static void add_measured(cJSON *root, const struct emit_simulation *s) {
    if (s->profile) {
        cJSON *o = json_add_object(root, "profile");
        emit_profile_fill(o, s->profile);
        emit_comparison(o, s->profile_rows);
    }
    if (s->snapshot) {
        cJSON *o = json_add_object(root, "snapshot");
        emit_snapshot_fill(o, s->snapshot);
        emit_comparison(o, s->snapshot_rows);
    }
}

cJSON *emit_simulate_json(const struct emit_simulation *s, struct arena *a) {
    cJSON *root = cJSON_CreateObject();
    json_add_string(root, "schema", "shardplan.simulate/1");
    json_add_string(root, "command", s->command);
    emit_model_cluster(root, s->model, s->cluster, s->recipe);
    json_add_string(root, "strategy", strategy_names[s->recipe->strategy]);
    emit_recipe(root, "recipe", s->recipe);
    emit_time(root, "time", s->time);
    json_add_string(root, "bound_by", bound_names[s->time->bound_by]);
    add_waits(root, s, a);
    add_timeline(root, s->timeline, a);
    add_planned_memory(root, s->memory);
    add_jitter(root, s);
    add_measured(root, s);
    if (s->measured) {
        struct measured_key k = plan_measured_key(s->model, s->cluster, s->recipe);
        emit_nearest(root, s->measured, &k, a);
    }
    return root;
}

// ---- text ---------------------------------------------------------------------------------------

static void print_line(FILE *out, const char *label, double seconds, double step_s) {
    char text[32];
    fprintf(out, "  %-18s %12s  %5.1f %%\n", label,
            units_format_seconds(text, sizeof text, seconds), 100 * seconds / step_s);
}

static void print_times(const struct emit_simulation *s, FILE *out) {
    const struct step_time *t = s->time;
    char step[32], low[32], high[32];
    fprintf(out, "%s on %s, %s: one optimizer step of %llu GPU%s\n\n", s->model->name,
            s->cluster->name, strategy_names[s->recipe->strategy],
            (unsigned long long)s->cluster->gpus, s->cluster->gpus == 1 ? "" : "s");
    fprintf(out, "  step %s (%s to %s), %.0f tokens/s per GPU, MFU %.1f %%, bound by %s\n\n",
            units_format_seconds(step, sizeof step, t->step_s),
            units_format_seconds(low, sizeof low, t->step_low_s),
            units_format_seconds(high, sizeof high, t->step_high_s), t->tokens_per_s_per_gpu,
            100 * t->mfu, bound_names[t->bound_by]);
    print_line(out, "forward", t->forward_s, t->step_s);
    print_line(out, "backward", t->backward_s, t->step_s);
    print_line(out, "optimizer", t->optimizer_s, t->step_s);
    fputc('\n', out);
    print_line(out, "GPU kernels", t->compute_s, t->step_s);
    print_line(out, "exposed network", t->exposed_comm_s, t->step_s);
    print_line(out, "exposed offload", t->exposed_offload_s, t->step_s);
    print_line(out, "host issue", t->host_issue_s, t->step_s);
    if (t->bubble_s > 0)
        print_line(out, "pipeline bubble", t->bubble_s, t->step_s);
}

static void print_waits(const struct emit_simulation *s, struct arena *a, FILE *out) {
    if (s->time->wait_count == 0)
        return;
    fputs("\nWaits\n", out);
    for (size_t i = 0; i < s->time->wait_count; i++) {
        char text[32];
        fprintf(out, "  %s (%s)\n", emit_wait_text(&s->time->waits[i], a),
                units_format_seconds(text, sizeof text, s->time->waits[i].seconds));
    }
}

// Share of each column in which a stream is busy, and in which it holds compute up.
static void cover(const struct step_timeline *t, const char *stream, double step_s, double *busy,
                  double *exposed) {
    double column_s = step_s / GANTT_COLUMNS;
    for (size_t i = 0; i < t->task_count; i++) {
        const struct step_timeline_task *k = &t->tasks[i];
        if (strcmp(k->stream, stream) != 0)
            continue;
        int first = (int)(k->start_s / column_s), last = (int)(k->end_s / column_s);
        for (int c = first < 0 ? 0 : first; c <= last && c < GANTT_COLUMNS; c++) {
            double from = fmax(k->start_s, c * column_s), to = fmin(k->end_s, (c + 1) * column_s);
            busy[c] += fmax(to - from, 0) / column_s;
            exposed[c] += k->exposed ? fmax(to - from, 0) / column_s : 0;
        }
    }
}

static double end_of(const struct step_timeline *t) {
    double end_s = 0;
    for (size_t i = 0; i < t->task_count; i++)
        end_s = fmax(end_s, t->tasks[i].end_s);
    return end_s;
}

#define WORTH_SAYING 0.03 // of the peak

// The two count the same blocks to different moments.
static void print_planned(const struct emit_simulation *s, double peak, FILE *out) {
    char allocated[32], reserved[32];
    double planned = (double)s->memory->allocated_peak_bytes;
    if (fabs(peak - planned) <= WORTH_SAYING * planned)
        return;
    fprintf(out, "  plan: %s allocated, %s reserved; ",
            units_format_gib(allocated, sizeof allocated, planned),
            units_format_gib(reserved, sizeof reserved, (double)s->memory->reserved_bytes));
    fputs(s->recipe->pp > 1
              ? "the curve is of one micro-batch, of those that a pipeline has under way\n"
              : "the curve holds a block until the GPU is done with it, the allocator's count "
                "until the host lets go\n",
          out);
}

static void print_memory(const struct emit_simulation *s, double step_s, FILE *out) {
    const struct step_timeline *t = s->timeline;
    double peak = emit_peak_bytes(t), level = 0, highest[GANTT_COLUMNS] = {0};
    char row[GANTT_COLUMNS + 1] = {0}, text[32];
    size_t at = 0;
    for (int c = 0; c < GANTT_COLUMNS; c++) {
        highest[c] = level;
        for (; at < t->memory_count && t->memory[at].time_s <= (c + 1) * step_s / GANTT_COLUMNS;
             at++) {
            level = t->memory[at].allocated_bytes;
            highest[c] = fmax(highest[c], level);
        }
        row[c] = peak > 0 ? (char)('0' + (int)(9 * highest[c] / peak)) : '0';
    }
    fprintf(out, "  %-11s %s\n", "memory", row);
    fprintf(out, "  # busy, ! holds compute up, - partly busy; memory in ninths of its peak, %s\n",
            units_format_gib(text, sizeof text, peak));
    print_planned(s, peak, out);
}

static void print_gantt(const struct emit_simulation *s, struct arena *a, FILE *out) {
    const struct step_timeline *t = s->timeline;
    double step_s = end_of(t);
    struct emit_phase *phases;
    size_t n = emit_phases(t, a, &phases);
    char row[GANTT_COLUMNS + 1] = {0};
    for (int c = 0; c < GANTT_COLUMNS; c++) {
        double middle_s = (c + 0.5) * step_s / GANTT_COLUMNS;
        row[c] = ' ';
        for (size_t i = 0; i < n; i++)
            if (middle_s >= phases[i].start_s && middle_s < phases[i].end_s)
                row[c] = phases[i].name[0];
    }
    fprintf(out, "\n  %-11s %s\n", "phase", row);
    for (size_t i = 0; i < t->stream_count; i++) {
        double busy[GANTT_COLUMNS] = {0}, exposed[GANTT_COLUMNS] = {0};
        cover(t, t->streams[i].name, step_s, busy, exposed);
        for (int c = 0; c < GANTT_COLUMNS; c++)
            row[c] = exposed[c] > 0.25 ? '!' : busy[c] > 0.5 ? '#' : busy[c] > 0.02 ? '-' : ' ';
        fprintf(out, "  %-11s %s\n", t->streams[i].name, row);
    }
    print_memory(s, step_s, out);
}

static void print_jitter(const struct emit_simulation *s, FILE *out) {
    char mean[32], p95[32], p99[32];
    if (s->jittered == NULL)
        return;
    fprintf(
        out,
        "\nWith jitter of %.1f %% per kernel on each rank (%llu draws, seed %llu): mean %s, 95 %% "
        "below %s, 99 %% below %s\n",
        100 * s->jitter->relative_sd, (unsigned long long)s->jitter->draws,
        (unsigned long long)s->jitter->seed,
        units_format_seconds(mean, sizeof mean, s->jittered->mean_s),
        units_format_seconds(p95, sizeof p95, s->jittered->p95_s),
        units_format_seconds(p99, sizeof p99, s->jittered->p99_s));
}

void emit_simulate_table(const struct emit_simulation *s, struct arena *a, FILE *out) {
    print_times(s, out);
    print_waits(s, a, out);
    print_gantt(s, a, out);
    if (s->timeline->micro_steps < s->recipe->grad_accum)
        fprintf(out,
                "  shown: a step of %llu micro-steps; those in between of the %llu are alike\n",
                (unsigned long long)s->timeline->micro_steps,
                (unsigned long long)s->recipe->grad_accum);
    print_jitter(s, out);
    if (s->profile) {
        fprintf(out, "\nMeasured: %s\n", s->profile->name);
        emit_profile_table(s->profile, out);
        emit_comparison_table(s->profile_rows, out);
    }
    if (s->snapshot) {
        fprintf(out, "\nMeasured: %s\n", s->snapshot->name);
        emit_snapshot_table(s->snapshot, out);
        emit_comparison_table(s->snapshot_rows, out);
    }
}
