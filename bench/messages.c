// SPDX-License-Identifier: Apache-2.0
#include "bench/messages.h"

#include <math.h>
#include <string.h>

#include "base/json.h"
#include "base/units.h"
#include "bench/backend_nvme.h"
#include "bench/messages_private.h"

#define GRAIN_BYTES 4

static bool read_message(struct json_node o, struct arena *a, struct message *m, struct err *e) {
    struct {
        const char *key;
        bool required;
        const char **to;
    } texts[] = {{"phase", false, &m->phase}, {"kind", true, &m->kind},
                 {"what", false, &m->what},   {"dtype", true, &m->dtype},
                 {"group", false, &m->group}, {"link", false, &m->link}};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        if (!json_get_string(o, texts[i].key, texts[i].required, texts[i].to, e))
            return false;
        *texts[i].to = arena_strdup(a, *texts[i].to);
    }
    m->planned_s = NAN;
    if (!json_get_u64(o, "group_size", false, &m->group_size, e) ||
        !json_get_u64(o, "count", true, &m->count, e) ||
        !json_get_double(o, "payload_bytes", true, &m->payload_bytes, e) ||
        !json_get_double(o, "sent_bytes", true, &m->sent_bytes, e) ||
        !json_get_double(o, "planned_s", false, &m->planned_s, e))
        return false;
    m->call_bytes = m->payload_bytes / (double)m->count;
    if (m->count == 0 || !(m->payload_bytes >= 0))
        return json_fail(o, e, "a transfer needs a count above 0 and bytes");
    return true;
}

static bool find_plan(struct json_node root, uint64_t index, struct json_node *plan,
                      struct err *e) {
    struct json_node plans;
    const char *schema = NULL;
    if (!json_get_string(root, "schema", true, &schema, e))
        return false;
    if (strncmp(schema, "shardplan.plan/", 15) != 0)
        return json_fail(root, e, "schema is \"%s\", expected \"shardplan.plan/1\"", schema);
    if (!json_find(root, "plans", &plans) || !json_is_array(plans))
        return json_fail(root, e, "\"plans\" is missing");
    if (index >= json_size(plans))
        return json_fail(plans, e, "there are %zu plans, none has index %llu", json_size(plans),
                         (unsigned long long)index);
    *plan = json_at(plans, index);
    return true;
}

// The recommended plan unless the caller chose one.
static bool choose_index(struct json_node root, uint64_t asked, uint64_t *index, struct err *e) {
    struct json_node r;
    *index = asked;
    if (asked != UINT64_MAX)
        return true;
    *index = 0;
    return !json_find(root, "recommendation", &r) || !json_is_object(r) ||
           json_get_u64(r, "plan_index", false, index, e);
}

static bool read_names(struct json_node root, struct json_node plan, struct arena *a,
                       struct messages *m, struct err *e) {
    struct json_node model, cluster;
    if (json_find(root, "model", &model) && json_is_object(model) &&
        (!json_get_string(model, "name", false, &m->model, e) ||
         !json_get_double(model, "parameters", false, &m->parameters, e)))
        return false;
    if (json_find(root, "cluster", &cluster) && json_is_object(cluster) &&
        !json_get_string(cluster, "name", false, &m->cluster, e))
        return false;
    if (!json_get_string(plan, "strategy", false, &m->strategy, e))
        return false;
    m->model = arena_strdup(a, m->model);
    m->cluster = arena_strdup(a, m->cluster);
    m->strategy = arena_strdup(a, m->strategy);
    return true;
}

static uint64_t scaled(const struct message *m, double scale, uint64_t grain) {
    double bytes = m->call_bytes * scale;
    uint64_t whole = (uint64_t)(bytes / (double)grain + 0.5) * grain;
    return whole > 0 ? whole : grain;
}

// Elements of 8 bits or fewer travel as int8: the bytes are the same.
static enum dtype carrier(enum dtype d) {
    return d == DTYPE_TF32 ? DTYPE_FP32 : d > DTYPE_FP16 ? DTYPE_INT8 : d;
}

static void place_collective(struct message *m, enum collective c, const struct messages_request *q,
                             double scale) {
    enum dtype d = DTYPE_INT8;
    uint64_t ranks = q->ranks;
    bool ring = !q->nccl && c <= COLLECTIVE_ALL_REDUCE;
    bool replica = m->group != NULL && strcmp(m->group, "replica") == 0;
    uint64_t n = m->group_size == 0 || m->group_size > ranks ? ranks : m->group_size;
    dtype_find(m->dtype, &d);
    if (m->group_size > ranks)
        m->reason = "fewer ranks here than planned";
    m->backend = q->nccl ? "nccl" : "mpi";
    m->point = (struct bench_point){
        .kind = collective_name(c),
        .collective = c,
        .algorithm = ring ? "ring" : "library",
        .dtype = carrier(d),
        .payload_bytes = scaled(m, scale, GRAIN_BYTES * n),
        .group_size = n < ranks ? n : 0,
        .group_stride = replica && n < ranks ? ranks / n : 0,
    };
    m->run_planned_bytes =
        collective_sent_bytes(c, (double)m->point.payload_bytes, n) * (double)m->count;
}

// GPU 0's own time, under the same load from all the others as in training.
static void place_gpu_copy(struct message *m, const struct messages_request *q, double scale) {
    m->backend = "cuda";
    m->point = (struct bench_point){
        .kind = "copy",
        .direction = m->kind,
        .algorithm = "pinned",
        .payload_bytes = scaled(m, scale, 1),
        .first = q->gpus > 1 ? 0 : q->gpu,
        .concurrent = q->gpus > 1,
        .timed = q->gpus > 1 ? 1 : 0,
    };
    m->run_planned_bytes = (double)m->point.payload_bytes * (double)m->count;
}

static void place_copy(struct message *m, const struct messages_request *q, double scale) {
    if (q->gpus > 0) {
        place_gpu_copy(m, q, scale);
        return;
    }
    m->backend = "host";
    m->reason = "a copy in host memory stands in for PCIe";
    m->point = (struct bench_point){
        .kind = "copy", .direction = "h2h", .payload_bytes = scaled(m, scale, 1), .threads = 1};
    m->run_planned_bytes = (double)m->point.payload_bytes * (double)m->count;
}

static void place_nvme(struct message *m, bool write, double scale) {
    const uint64_t block = UNITS_MIB, depth = 8;
    m->backend = "nvme";
    m->point = (struct bench_point){
        .kind = "nvme",
        .direction = write ? "write" : "read",
        .block_bytes = block,
        .queue_depth = depth,
        .jobs = 1,
        .payload_bytes = scaled(m, scale, block),
    };
    m->run_planned_bytes = (double)m->point.payload_bytes * (double)m->count;
}

static void place_product(struct message *m, const struct messages_request *q) {
    struct bench_point *p = &m->point;
    double flop = 2.0 * (double)p->m * (double)p->n * (double)p->k;
    bool gpu = q->gemm;
    if (!gpu && flop > q->limit_flop) {
        m->reason = "too large for the host";
        return;
    }
    m->backend = gpu ? "gemm" : "host";
    if (!gpu) {
        p->dtype = DTYPE_FP32;
        m->reason = "an fp32 product on the host stands in";
    }
}

static void place_adam(struct message *m, double scale) {
    m->backend = "adam";
    m->point.n = scaled(m, scale, 1) / 28;
    m->point.payload_bytes = m->point.n * 28;
    m->run_planned_bytes = (double)m->point.payload_bytes * (double)m->count;
}

static void place(struct message *m, const struct messages_request *q, double scale) {
    enum collective c;
    if (collective_find(m->kind, &c))
        place_collective(m, c, q, scale);
    else if (strcmp(m->kind, "h2d") == 0 || strcmp(m->kind, "d2h") == 0)
        place_copy(m, q, scale);
    else if (strcmp(m->kind, "nvme_read") == 0 || strcmp(m->kind, "nvme_write") == 0)
        place_nvme(m, strcmp(m->kind, "nvme_write") == 0, scale);
    else if (strcmp(m->kind, "gemm") == 0)
        place_product(m, q);
    else if (strcmp(m->kind, "adam") == 0)
        place_adam(m, scale);
    else
        m->reason = "no backend for this kind";
}

void messages_place(struct messages *m, const struct messages_request *q) {
    double largest = 0;
    for (size_t i = 0; i < m->count; i++)
        largest = fmax(largest, m->items[i].call_bytes);
    m->scale = largest > (double)q->limit_bytes ? (double)q->limit_bytes / largest : 1;
    for (size_t i = 0; i < m->count; i++)
        place(&m->items[i], q, m->scale);
}

bool messages_read(const struct messages_request *q, struct arena *a, struct messages *out,
                   struct err *e) {
    struct messages m = {.parameters = NAN};
    struct json_node root, plan, volume, list;
    struct json_doc *d = json_read_file(q->path, e);
    if (d == NULL)
        return false;
    root = json_root(d);
    if (!choose_index(root, q->plan_index, &m.plan_index, e) ||
        !find_plan(root, m.plan_index, &plan, e) || !read_names(root, plan, a, &m, e))
        goto fail;
    if (!json_find(plan, "volume", &volume) || !json_is_object(volume) ||
        !json_find(volume, "transfers", &list) || !json_is_array(list)) {
        json_fail(plan, e, "\"volume.transfers\" is missing: this plan moves nothing");
        goto fail;
    }
    m.count = json_size(list);
    m.items = arena_array(a, m.count, sizeof(*m.items));
    for (size_t i = 0; i < m.count; i++)
        if (!read_message(json_at(list, i), a, &m.items[i], e))
            goto fail;
    messages_place(&m, q);
    json_destroy(d);
    *out = m;
    return true;
fail:
    json_destroy(d);
    return false;
}
