// SPDX-License-Identifier: Apache-2.0
// Runs check on configurations given as text; for its tests. Include after cmocka.h.
#pragma once

#include "judge/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct row {
    const char *id; // expected finding; NULL: none at all
    enum severity severity;
    const char *model, *cluster, *text;
    const char *sets[4];     // --set
    const char *environment; // text of the launch script
    const char *gone;        // id that --fix must remove
};

#define DS3(more)                                                                                  \
    "{\"bf16\": {\"enabled\": true}, \"zero_optimization\": {\"stage\": 3, \"overlap_comm\": "     \
    "true" more "}}"
#define DS2(more)                                                                                  \
    "{\"bf16\": {\"enabled\": true}, \"zero_optimization\": {\"stage\": 2, \"overlap_comm\": "     \
    "true, \"reduce_bucket_size\": 2e8" more "}}"
#define DS1(more)                                                                                  \
    "{\"bf16\": {\"enabled\": true}, \"zero_optimization\": {\"stage\": 1, \"overlap_comm\": "     \
    "true, \"reduce_bucket_size\": 2e8}" more "}"
#define FSDP2(more)                                                                                \
    "distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 2\n"                                    \
    "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n  fsdp_cpu_ram_efficient_loading: true\n"    \
    "  fsdp_state_dict_type: SHARDED_STATE_DICT\n  fsdp_activation_checkpointing: true\n"          \
    "mixed_precision: bf16\n" more
#define FSDP1(more)                                                                                \
    "distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 1\n"                                    \
    "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n  fsdp_cpu_ram_efficient_loading: true\n"    \
    "  fsdp_sync_module_states: true\n  fsdp_backward_prefetch: BACKWARD_PRE\n"                    \
    "  fsdp_state_dict_type: SHARDED_STATE_DICT\n  fsdp_activation_checkpointing: true\n" more     \
    "mixed_precision: bf16\n"
#define ACC_DS3(more)                                                                              \
    "distributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: 3\n" more                       \
    "mixed_precision: bf16\n"
#define RECOMPUTE "recipe.recompute=full"
#define M8 "llama-3-8b"
#define H100 "dgx-h100"

struct run {
    struct arena *a;
    struct model model;
    struct cluster cluster;
    struct recipe_request options;
    char config[64], environment[64];
    struct check_request q;
    struct check_result r;
};

static inline void write_temporary(char *path, size_t size, const char *text) {
    snprintf(path, size, "/tmp/check_XXXXXX");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
}

// "2xdgx-h100": two nodes of a catalog cluster; other names go to the catalog as they are.
static inline void load_cluster(const char *name, struct arena *a, struct cluster *c) {
    struct err e = {0};
    unsigned nodes = 0;
    const char *rest = strchr(name, 'x');
    bool many = rest && strncmp(rest, "xdgx", 4) == 0 && sscanf(name, "%ux", &nodes) == 1;
    if (!cluster_load(many ? rest + 1 : name, a, c, &e) ||
        (many && !cluster_resize(c, nodes, 0, &e)))
        fail_msg("%s: %s", name, e.text);
}

static inline void start(struct run *x, const struct row *row) {
    struct err e = {0};
    memset(x, 0, sizeof *x);
    x->a = arena_create();
    if (!model_load(row->model, x->a, &x->model, &e))
        fail_msg("%s", e.text);
    load_cluster(row->cluster, x->a, &x->cluster);
    write_temporary(x->config, sizeof x->config, row->text);
    if (row->environment)
        write_temporary(x->environment, sizeof x->environment, row->environment);
    const char **sets = arena_array(x->a, 4, sizeof *sets);
    while (x->options.set.count < 4 && row->sets[x->options.set.count]) {
        sets[x->options.set.count] = row->sets[x->options.set.count];
        x->options.set.count++;
    }
    x->options.set.items = sets;
    x->q = (struct check_request){x->config, row->environment ? x->environment : NULL, &x->options,
                                  &x->model, &x->cluster};
    if (!check_config(&x->q, x->a, &x->r, &e))
        fail_msg("%s\n%s", row->text, e.text);
}

static inline void finish(struct run *x) {
    unlink(x->config);
    if (x->environment[0])
        unlink(x->environment);
    arena_destroy(x->a);
}

static inline const struct finding *find(const struct check_result *r, const char *id) {
    for (size_t i = 0; i < r->count; i++)
        if (strcmp(r->findings[i].id, id) == 0)
            return &r->findings[i];
    return NULL;
}

static inline void print(const struct check_result *r) {
    for (size_t i = 0; i < r->count; i++)
        print_message("  %s %s: %s: %s\n", severity_names[r->findings[i].severity],
                      r->findings[i].id, r->findings[i].path, r->findings[i].text);
}

static inline size_t test_row(const struct row *row) {
    struct run x;
    start(&x, row);
    const struct finding *f = find(&x.r, row->id);
    size_t bad = f == NULL || f->severity != row->severity || f->text == NULL;
    if (bad) {
        print_message("%s (%s on %s) %s\n%s\n", row->id, row->model, row->cluster,
                      f ? "has another severity" : "not found", row->text);
        print(&x.r);
    }
    finish(&x);
    return bad;
}

static inline size_t check_traps(const struct row *rows, size_t n) {
    size_t bad = 0;
    for (size_t i = 0; i < n; i++)
        bad += test_row(&rows[i]);
    return bad;
}

static inline size_t check_fixes(const struct row *rows, size_t n) {
    size_t fixed = 0;
    for (size_t i = 0; i < n; i++) {
        struct run x, after;
        struct err e = {0};
        struct row row = rows[i];
        const char *text = NULL;
        size_t applied = 0;
        if (row.gone == NULL)
            continue;
        start(&x, &row);
        if (!check_fix(&x.q, &x.r, x.a, &text, &applied, &e))
            fail_msg("%s", e.text);
        assert_true(applied >= 1);
        row.text = text;
        start(&after, &row);
        if (find(&after.r, row.gone) != NULL) {
            print(&after.r);
            fail_msg("%s is still there after the fix:\n%s", row.gone, text);
        }
        finish(&after);
        finish(&x);
        fixed++;
    }
    return fixed;
}
