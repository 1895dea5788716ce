// SPDX-License-Identifier: Apache-2.0
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "bench/numa.h"

// Whatever was chosen, the thread's processors are its own again; on node 0 it has some.
static void gives_processors_back(void **state) {
    cpu_set_t before, during, after;
    struct numa_before kept;
    (void)state;
    assert_true(numa_nodes() >= 1);
    sched_getaffinity(0, sizeof(before), &before);
    if (!numa_prefer(0, &kept))
        skip(); // no memory policies in this kernel, or not for us
    sched_getaffinity(0, sizeof(during), &during);
    assert_true(CPU_COUNT(&during) > 0);
    numa_release(&kept);
    sched_getaffinity(0, sizeof(after), &after);
    assert_true(CPU_EQUAL(&before, &after));
}

static void refuses_what_is_not_there(void **state) {
    cpu_set_t before, after;
    struct numa_before kept;
    (void)state;
    sched_getaffinity(0, sizeof(before), &before);
    assert_false(numa_prefer(-1, &kept));
    assert_false(numa_prefer(63, &kept));
    sched_getaffinity(0, sizeof(after), &after);
    assert_true(CPU_EQUAL(&before, &after));
    assert_int_equal(numa_of_pci("ffff:ff:1f.7"), -1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gives_processors_back),
        cmocka_unit_test(refuses_what_is_not_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
