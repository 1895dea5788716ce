// SPDX-License-Identifier: Apache-2.0
// What GPU backends need and runs without one: NCCL's log, port counters, groups.
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "bench/groups.h"
#include "bench/nccl_log.h"
#include "bench/wire.h"

static void reads_the_choice(void **state) {
    (void)state;
    const char *text =
        "h:1:1 [0] NCCL INFO AllGather: 4096 Bytes -> Algo RING proto LL channel{..}\n"
        "h:1:1 [0] NCCL INFO AllReduce: 4096 Bytes -> Algo NVLS_TREE proto SIMPLE\n"
        "h:1:1 [0] NCCL INFO something else\n";
    assert_string_equal(nccl_log_parse(text), "nvls_tree/simple");
    // NCCL 2.19 prints indices
    assert_string_equal(nccl_log_parse("NCCL INFO 64 Bytes -> Algo 1 proto 2 time 12.3"),
                        "ring/simple");
    assert_string_equal(nccl_log_parse("NCCL INFO 64 Bytes -> Algo 0 proto 1 time 1"),
                        "tree/ll128");
    assert_null(nccl_log_parse("NCCL INFO 64 Bytes -> Algo 9 proto 2 time 12.3"));
    assert_null(nccl_log_parse("-> Algo PIGEON proto LL"));
    assert_null(nccl_log_parse("-> Algo RING"));
    assert_null(nccl_log_parse(""));
}

static void write_counter(const char *root, const char *port, const char *value) {
    char path[512];
    snprintf(path, sizeof(path), "%s/%s", root, port);
    for (char *p = path + strlen(root) + 1; (p = strchr(p, '/')) != NULL; *p++ = '/') {
        *p = '\0';
        mkdir(path, 0700);
    }
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(value, f);
    fclose(f);
}

static void adds_up_ports(void **state) {
    char root[] = "/tmp/ports.XXXXXX", command[64];
    double bytes = -1;
    (void)state;
    assert_non_null(mkdtemp(root));
    assert_false(wire_ports_sent_bytes(root, &bytes));
    assert_false(wire_ports_sent_bytes("/nowhere", &bytes));
    assert_true(bytes == -1);
    write_counter(root, "mlx5_0/ports/1/counters/port_xmit_data", "1000\n");
    write_counter(root, "mlx5_0/ports/2/counters/port_xmit_data", "20\n");
    write_counter(root, "mlx5_1/ports/1/counters/port_xmit_data", "18446744073709551615\n");
    assert_true(wire_ports_sent_bytes(root, &bytes));
    assert_true(bytes == 4 * (1020 + 0x1p64));
    snprintf(command, sizeof(command), "rm -r %s", root);
    assert_int_equal(system(command), 0);
}

static void makes_groups(void **state) {
    uint32_t list[8];
    (void)state;
    struct bench_point p = {.group_size = 2};
    assert_int_equal(groups_of(&p, 5, 3), 1);
    assert_true(groups_of(&p, 5, 4) == GROUPS_NONE); // no partner
    assert_int_equal(groups_list(&p, 5, 1, list), 2);
    assert_true(list[0] == 2 && list[1] == 3);
    p.group_stride = 4; // replicas: 0 with 4, 1 with 5, ...
    assert_int_equal(groups_list(&p, 8, groups_of(&p, 8, 6), list), 2);
    assert_true(list[0] == 2 && list[1] == 6);
    p = (struct bench_point){.paired = true, .first = 1, .second = 3};
    assert_int_equal(groups_list(&p, 4, 0, list), 2);
    assert_true(list[0] == 1 && list[1] == 3);
    p = (struct bench_point){.left_out = 3};
    assert_int_equal(groups_list(&p, 4, 0, list), 3);
    assert_true(list[2] == 3 && groups_of(&p, 4, 2) == GROUPS_NONE);
    p = (struct bench_point){.kind = "all_gather"};
    assert_int_equal(groups_list(&p, 4, 0, list), 4);
    assert_int_equal(groups_list(&p, 4, GROUPS_NONE, list), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(reads_the_choice),
                                       cmocka_unit_test(adds_up_ports),
                                       cmocka_unit_test(makes_groups)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
