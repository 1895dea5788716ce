// SPDX-License-Identifier: Apache-2.0
#include "render/emit_plan.h"

#include "base/units.h"
#include "plan/recommend.h"

#include <math.h>
#include <string.h>

static const char *dash(double v, const char *format, struct arena *a) {
    if (!isfinite(v))
        return "-";
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    return arena_printf(a, format, v);
#pragma GCC diagnostic pop
}

static double gib(uint64_t bytes) {
    return (double)bytes / (double)UNITS_GIB;
}

static void print_heading(const struct plan_set *s, struct arena *a, FILE *out) {
    const struct cluster *c = s->cluster;
    const struct recipe *r = &s->plans[s->recommendation.plan_index].recipe;
    char count[32];
    fprintf(out, "%s (%s parameters) on %s: %llu node%s, %llu x %s\n", s->model->name,
            units_format_count(count, sizeof count, (double)s->model->parameters), c->name,
            (unsigned long long)c->nodes, c->nodes == 1 ? "" : "s", (unsigned long long)c->gpus,
            c->gpu.name);
    fprintf(out,
            "sequence %llu, micro-batch %llu x %llu accumulation, %s, %s, recompute %s, %s "
            "attention, %s loss%s\n",
            (unsigned long long)r->seq, (unsigned long long)r->micro_batch,
            (unsigned long long)r->grad_accum, precision_names[r->precision],
            optimizer_names[r->optimizer], recompute_names[r->recompute],
            attention_names[r->attention], loss_names[r->loss],
            r->lora_rank ? arena_printf(a, ", LoRA rank %llu", (unsigned long long)r->lora_rank)
                         : "");
    if (c->assumed_host)
        fprintf(out, "The host is assumed to be that of the %s's reference server.\n", c->gpu.name);
}

static int title_width(const struct plan_set *s, struct arena *a) {
    int width = 4;
    for (size_t i = 0; i < s->plan_count; i++) {
        int n = (int)strlen(plan_title(&s->plans[i], a));
        width = n > width ? n : width;
    }
    return width;
}

static void print_memory_row(const struct plan *p, int width, struct arena *a, FILE *out) {
    const struct memory *m = &p->memory;
    const uint64_t *b = m->classes_bytes;
    fprintf(out, "%-*s ", width, plan_title(p, a));
    if (p->reason) {
        fprintf(out, "cannot run: %s\n", p->reason);
        return;
    }
    fprintf(out, "%7.2f %7.2f %8.2f %7.2f %7.2f %7.2f %8.2f %8.2f %8.2f %8.2f  %-5s",
            gib(b[MEMORY_PARAMS]), gib(b[MEMORY_GRADS]),
            gib(b[MEMORY_OPTIMIZER] + b[MEMORY_MASTER]), gib(b[MEMORY_GATHER]),
            gib(b[MEMORY_BUCKET]), gib(b[MEMORY_ACTIVATIONS]), gib(b[MEMORY_LOGITS]),
            gib(m->allocated_peak_bytes), gib(m->reserved_bytes),
            (double)m->headroom_bytes / (double)UNITS_GIB, fits_state_names[m->fits_state]);
    fprintf(out, " %8s",
            p->min_gpus ? arena_printf(a, "%llu", (unsigned long long)p->min_gpus) : "none");
    const char *host = m->host_known ? (m->host_fits ? "" : " short") : " ?";
    fprintf(out, " %9.1f%s", gib(m->host_bytes), host);
    if (m->nvme_bytes)
        fprintf(out, " (+%.0f NVMe%s)", gib(m->nvme_bytes),
                m->nvme_known && !m->nvme_fits ? " short" : "");
    fputc('\n', out);
}

static void print_memory(const struct plan_set *s, int width, struct arena *a, FILE *out) {
    char capacity[32] = "unknown";
    for (size_t i = 0; i < s->plan_count; i++)
        if (!s->plans[i].reason) {
            units_format_gib(capacity, sizeof capacity, (double)s->plans[i].memory.capacity_bytes);
            break;
        }
    fprintf(out,
            "\nMemory of one GPU (each class's own maximum) against %s usable; host of one node\n",
            capacity);
    fprintf(out, "%-*s %7s %7s %8s %7s %7s %7s %8s %8s %8s %8s  %-5s %8s %9s\n", width, "plan",
            "params", "grads", "optimizer", "gather", "bucket", "activ.", "logits", "peak",
            "reserved", "free", "fits", "min GPUs", "host");
    fprintf(out, "%-*s %7s %7s %8s %7s %7s %7s %8s %8s %8s %8s  %-5s %8s %9s\n", width, "", "GiB",
            "GiB", "GiB", "GiB", "GiB", "GiB", "GiB", "GiB", "GiB", "GiB", "", "", "GiB");
    for (size_t i = 0; i < s->plan_count; i++)
        print_memory_row(&s->plans[i], width, a, out);
    for (size_t i = 0; i < s->plan_count; i++) {
        const char *notes[PLAN_NOTES_MAX];
        size_t count = plan_notes(&s->plans[i], a, notes);
        for (size_t k = 0; k < count; k++)
            fprintf(out, "  %s: %s\n", plan_title(&s->plans[i], a), notes[k]);
    }
}

static void print_step_row(const struct plan *p, int width, struct arena *a, FILE *out) {
    const struct volume *v = &p->volume;
    const struct step_time *t = &p->time;
    if (p->reason)
        return;
    char step[32] = "-";
    if (isfinite(t->step_s))
        units_format_seconds(step, sizeof step, t->step_s);
    fprintf(out, "%-*s %5.2f %8.2f %8.2f %8.2f %8.2f %8.2f %8s", width, plan_title(p, a),
            v->textbook_multiple, v->textbook_bytes / UNITS_GIGA,
            v->sent_bytes_per_gpu / UNITS_GIGA, v->inter_node_bytes_per_gpu / UNITS_GIGA,
            (v->h2d_bytes + v->d2h_bytes) / UNITS_GIGA,
            (v->nvme_read_bytes + v->nvme_write_bytes) / UNITS_GIGA, step);
    if (!isfinite(t->step_s)) {
        fprintf(out, "  %s\n", t->reason ? t->reason : "");
        return;
    }
    fprintf(out, " %s-%s %8s %5s  %s\n", dash(t->step_low_s / t->step_s, "%4.2f", a),
            dash(t->step_high_s / t->step_s, "%4.2f", a), dash(t->tokens_per_s_per_gpu, "%.0f", a),
            dash(100 * t->mfu, "%.1f", a), bound_names[t->bound_by]);
}

static void print_step(const struct plan_set *s, int width, struct arena *a, FILE *out) {
    fprintf(out, "\nOne optimizer step, per GPU: bytes sent (textbook beside what the framework "
                 "sends) and time\n");
    fprintf(out, "%-*s %5s %8s %8s %8s %8s %8s %8s %9s %8s %5s  %s\n", width, "plan", "x Psi",
            "textbook", "sent", "of: net", "PCIe", "NVMe", "step", "range", "tokens/s", "MFU",
            "bound by");
    fprintf(out, "%-*s %5s %8s %8s %8s %8s %8s %8s %9s %8s %5s\n", width, "", "", "GB", "GB", "GB",
            "GB", "GB", "", "x step", "per GPU", "%");
    for (size_t i = 0; i < s->plan_count; i++)
        print_step_row(&s->plans[i], width, a, out);
}

static void print_recommendation(const struct plan_set *s, FILE *out) {
    const struct recommendation *r = &s->recommendation;
    fprintf(out, "\nRecommendation (%s): %s\n", choice_names[r->choice], r->reason);
    for (size_t i = 0; i < r->action_count; i++)
        fprintf(out, "  - %s\n", r->actions[i]);
    if (s->assumption_count == 0)
        return;
    fprintf(out, "\nThis answer stands on assumed figures. Measure these first:\n");
    for (size_t i = 0; i < s->assumption_count && i < 3; i++)
        fprintf(out, "  - %s: %s%s%s\n", s->assumptions[i].path, s->assumptions[i].effect,
                s->assumptions[i].measure_with ? "; " : "",
                s->assumptions[i].measure_with ? s->assumptions[i].measure_with : "");
}

void emit_plan_table(const struct plan_set *s, struct arena *a, FILE *out) {
    int width = title_width(s, a);
    print_heading(s, a, out);
    print_memory(s, width, a, out);
    print_step(s, width, a, out);
    print_recommendation(s, out);
}
