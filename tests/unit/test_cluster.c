// SPDX-License-Identifier: Apache-2.0
// Clusters as users write them: names, shorthand, files over a base, resizing, and what is refused.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "base/units.h"
#include "describe/cluster.h"

static struct cluster load(const char *spec, struct arena *a) {
    struct err e = {0};
    struct cluster c;
    if (!cluster_load(spec, a, &c, &e))
        fail_msg("%s: %s", spec, e.text);
    return c;
}

static char *write_temporary(const char *text, struct arena *a) {
    char name[] = "/tmp/shardplan-cluster-XXXXXX";
    int fd = mkstemp(name);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
    return arena_strdup(a, name);
}

static void catalog_cluster(void **state) {
    (void)state;
    struct arena *a = arena_create();
    struct cluster c = load("P4D.24xlarge", a);
    assert_string_equal(c.gpu.id, "a100-sxm4-40gb");
    assert_int_equal(c.gpus, 8);
    assert_int_equal(c.nics_per_node, 4);
    assert_float_equal(c.nic_bytes_per_s.value, 100 * UNITS_GIGA / 8, 1);
    assert_int_equal(c.gpus_per_pcie_switch, 2);
    assert_true(c.nic_shares_pcie_switch);
    assert_int_equal(c.inter_fabric, FABRIC_EFA);
    assert_int_equal(c.host_memory_bytes.provenance, PROVENANCE_SPEC);
    // Nobody published its DRAM rate: assumed, with a basis and a wide interval.
    assert_int_equal(c.host_dram_bytes_per_s.provenance, PROVENANCE_ASSUMED);
    assert_true(c.host_dram_bytes_per_s.high >= 2 * c.host_dram_bytes_per_s.low);
    assert_true(figure_is_known(c.gpu.peak_flop_per_s[DTYPE_BF16]));
    assert_false(figure_is_known(c.gpu.peak_flop_per_s[DTYPE_FP8]));
    assert_float_equal(gpu_visible_bytes(&c.gpu).value, 42405855232.0, 1);
    arena_destroy(a);
}

static void shorthand(void **state) {
    (void)state;
    struct arena *a = arena_create();
    struct cluster c = load("8xA100-80GB", a);
    assert_true(c.assumed_host);
    assert_string_equal(c.gpu.id, "a100-sxm4-80gb");
    assert_int_equal(c.intra_fabric, FABRIC_NVSWITCH);
    assert_int_equal(c.nics_per_node, 8);
    assert_int_equal(c.host_memory_bytes.provenance, PROVENANCE_ASSUMED);
    assert_float_equal(c.host_memory_bytes.value, 2 * UNITS_TERA, 1);
    c = load("4xH100", a);
    assert_int_equal(c.gpus, 4);
    assert_int_equal(c.nics_per_node, 4);
    c = load("2x8xH100", a);
    assert_int_equal(c.nodes, 2);
    assert_int_equal(c.gpus, 16);
    c = load("3xL40S", a); // no host is known for it
    assert_int_equal(c.intra_fabric, FABRIC_PCIE);
    assert_int_equal(c.gpus, 3);
    assert_int_equal(c.nics_per_node, 1);
    c = load("72xGB200", a); // its host's own number
    assert_int_equal(c.nodes, 1);
    assert_int_equal(c.gpus_per_node, 72);
    c = load("8xMI300X", a); // a catalog cluster of that very name
    assert_false(c.assumed_host);
    arena_destroy(a);
}

static void resize(void **state) {
    (void)state;
    struct arena *a = arena_create();
    struct err e = {0};
    struct cluster c = load("dgx-h100", a);
    assert_true(cluster_resize(&c, 4, 0, &e));
    assert_int_equal(c.gpus, 32);
    assert_true(cluster_resize(&c, 0, 16, &e));
    assert_int_equal(c.nodes, 2);
    assert_true(cluster_resize(&c, 0, 4, &e));
    assert_int_equal(c.nodes, 1);
    assert_int_equal(c.gpus, 4);
    assert_true(cluster_resize(&c, 4, 16, &e));
    assert_int_equal(c.gpus, 16);
    assert_false(cluster_resize(&c, 2, 17, &e));
    assert_int_equal(e.kind, ERR_USAGE);
    assert_string_equal(e.text, "17 GPUs do not spread evenly over 2 nodes of 8 GPUs");
    assert_int_equal(c.gpus, 16);
    arena_destroy(a);
}

static void file_over_a_base(void **state) {
    (void)state;
    struct arena *a = arena_create();
    char *path = write_temporary(
        "{\"base\": \"dgx-h100\", \"name\": \"ours\", \"nodes\": 3,\n"
        " \"host_memory_bytes\": {\"value\": 1e12, \"provenance\": \"measured\", \"source\": "
        "\"free\"},\n"
        " \"gpu\": {\"base\": \"h100\", \"pcie_h2d_bytes_per_s\":\n"
        "   {\"value\": 24e9, \"provenance\": \"measured\", \"source\": \"shardbench\"}}}",
        a);
    struct cluster c = load(path, a);
    assert_string_equal(c.name, "ours");
    assert_int_equal(c.gpus, 24);
    assert_float_equal(c.host_memory_bytes.value, 1e12, 1);
    assert_float_equal(c.gpu.pcie_h2d_bytes_per_s.value, 24e9, 1);
    assert_int_equal(c.nics_per_node, 8);
    unlink(path);
    arena_destroy(a);
}

// What was read of the base's memory says nothing of a part with another size.
static void memory_of_its_own(void **state) {
    (void)state;
    struct arena *a = arena_create();
    char *path = write_temporary(
        "{\"base\": \"dgx-h100\", \"name\": \"ours\",\n"
        " \"gpu\": {\"base\": \"h100\", \"id\": \"h100-oem-72gb\", \"memory_nominal_bytes\":\n"
        "   {\"value\": 77309411328, \"provenance\": \"spec\", \"source\": \"vendor\"}}}",
        a);
    struct cluster c = load(path, a), base = load("dgx-h100", a);
    assert_true(gpu_visible_bytes(&base.gpu).value > 77309411328.0);
    assert_true(gpu_visible_bytes(&c.gpu).value < 77309411328.0);
    assert_int_equal(gpu_visible_bytes(&c.gpu).provenance, PROVENANCE_ASSUMED);
    assert_float_equal(c.gpu.hbm_bytes_per_s.value, base.gpu.hbm_bytes_per_s.value, 0);
    unlink(path);
    arena_destroy(a);
}

static void writing_and_reading_agree(void **state) {
    (void)state;
    struct arena *a = arena_create();
    struct err e = {0};
    struct cluster c = load("dgx-a100", a), back;
    struct cluster_fit fit = {.collective = COLLECTIVE_ALL_GATHER,
                              .nodes = 2,
                              .ranks = 16,
                              .latency_s = figure_known(1.36e-4, PROVENANCE_FITTED, "fit"),
                              .busbw_bytes_per_s = figure_known(3e11, PROVENANCE_FITTED, "fit"),
                              .half_bytes = figure_unknown(),
                              .min_payload_bytes = 1024,
                              .max_payload_bytes = 4294967296.0};
    c.fits = &fit;
    c.fit_count = 1;
    c.gpu.hbm_fraction = figure_known(0.8, PROVENANCE_MEASURED, "shardbench");
    char *path = write_temporary("", a);
    if (!cluster_write(path, &c, &e))
        fail_msg("%s", e.text);
    if (!cluster_read(path, a, &back, &e))
        fail_msg("%s", e.text);
    assert_string_equal(back.name, c.name);
    assert_string_equal(back.gpu.id, c.gpu.id);
    assert_int_equal(back.gpus, c.gpus);
    assert_float_equal(back.gpu.hbm_fraction.value, 0.8, 1e-12);
    assert_float_equal(back.nic_bytes_per_s.value, c.nic_bytes_per_s.value, 1e-3);
    assert_int_equal(back.intra_fabric, c.intra_fabric);
    assert_int_equal(back.fit_count, 1);
    assert_int_equal(back.fits[0].ranks, 16);
    assert_float_equal(back.fits[0].latency_s.value, 1.36e-4, 1e-12);
    assert_false(figure_is_known(back.fits[0].half_bytes));
    unlink(path);
    arena_destroy(a);
}

static void refuse(const char *text, const char *words) {
    struct arena *a = arena_create();
    struct err e = {0};
    struct cluster c;
    char *path = write_temporary(text, a);
    assert_false(cluster_load(path, a, &c, &e));
    assert_int_equal(e.kind, ERR_INPUT);
    if (strncmp(e.text, path, strlen(path)) != 0 || strcmp(e.text + strlen(path), words) != 0)
        fail_msg("\"%s\" is not <path>%s", e.text, words);
    unlink(path);
    arena_destroy(a);
}

static void bad_files_are_refused(void **state) {
    (void)state;
    refuse("{\"base\": \"dgx-h100\",\n \"node\": 2}",
           ":2 $.node: unknown key 'node'; did you mean 'nodes'?");
    refuse("{\"gpus_per_node\": 8}", ":1 $: \"gpu\" is missing");
    refuse("{\"base\": \"dgx-h100\", \"nodes\": 0}",
           ":1 $: \"nodes\" and \"gpus_per_node\" are at least 1");
    refuse("{\"base\": \"dgx-h100\", \"gpus\": 5,\n\"nodes\": 2}",
           ":1 $: 5 GPUs do not fit 2 nodes of 8 GPUs evenly");
    refuse("{\"base\": \"dgx-h100\",\n\"inter_fabric\": \"infinband\"}",
           ":2 $.inter_fabric: unknown fabric \"infinband\"; did you mean infiniband");
    refuse("{\"base\": \"dgx-h100\",\n\"nodes\": 20000000}",
           ":2 $.nodes: 20000000 is above the limit of 1048576");
    refuse("{\"base\": \"dgx-h100\",\n\"nic_bytes_per_s\": {\"value\": -1, \"provenance\": "
           "\"spec\", \"source\": \"x\"}}",
           ":2 $.nic_bytes_per_s: a known figure is above zero");
}

static void unknown_names(void **state) {
    (void)state;
    struct arena *a = arena_create();
    struct cluster c;
    struct gpu g;
    struct err e = {0};
    assert_false(cluster_load("dgx-h10", a, &c, &e));
    assert_string_equal(e.text, "unknown cluster \"dgx-h10\"; did you mean \"dgx-h100\"?");
    err_clear(&e);
    assert_false(cluster_load("8xA100-80B", a, &c, &e));
    assert_string_equal(e.text, "unknown gpu \"A100-80B\"; did you mean \"A100-80GB\"?");
    err_clear(&e);
    assert_false(cluster_load("512xH100", a, &c, &e));
    assert_string_equal(e.text, "\"512xH100\" would be nodes of 512 GPUs each; for nodes of 8 "
                                "write 64x8xH100");
    err_clear(&e);
    assert_false(cluster_load("./none.json", a, &c, &e));
    assert_string_equal(e.text, "./none.json: no such file");
    err_clear(&e);
    assert_false(cluster_load("/dev/null", a, &c, &e));
    assert_string_equal(e.text, "/dev/null: not a regular file");
    err_clear(&e);
    assert_false(cluster_load("h100", a, &c, &e));
    assert_string_equal(e.text, "\"h100\" is a GPU; how many of them? such as 8xh100");
    err_clear(&e);
    assert_false(cluster_load("dgx-", a, &c, &e));
    assert_non_null(strstr(e.text, "did you mean one of: dgx-2, dgx-a100, "));
    err_clear(&e);
    assert_false(gpu_load("h1000", a, &g, &e));
    assert_int_equal(e.kind, ERR_INPUT);
    arena_destroy(a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(catalog_cluster),
        cmocka_unit_test(shorthand),
        cmocka_unit_test(resize),
        cmocka_unit_test(file_over_a_base),
        cmocka_unit_test(memory_of_its_own),
        cmocka_unit_test(writing_and_reading_agree),
        cmocka_unit_test(bad_files_are_refused),
        cmocka_unit_test(unknown_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
