// SPDX-License-Identifier: Apache-2.0
#include "base/opt.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

struct wanted {
    bool quiet, nodes_given;
    const char *json;
    uint64_t nodes, memory_bytes;
    double net_bytes_per_s, clip, wait_s;
    int offload;
    struct opt_texts strategies;
};

static const char *const offloads[] = {"none", "cpu", "nvme", NULL};

#define AT(field) .offset = offsetof(struct wanted, field), .given_offset = SIZE_MAX

static const struct opt recipe_options[] = {
    {.name = "nodes",
     .letter = 'n',
     .type = OPT_COUNT,
     .offset = offsetof(struct wanted, nodes),
     .given_offset = offsetof(struct wanted, nodes_given),
     .min = 1,
     .max = 1024,
     .fallback = "2",
     .argument = "N",
     .help = "Nodes."},
    {.name = "net", .type = OPT_RATE, AT(net_bytes_per_s), .help = "Rate of a network card."},
    {.name = "clip", .type = OPT_DOUBLE, AT(clip), .fallback = "1.0", .help = "Norm to clip to."},
    {.name = "wait", .type = OPT_SECONDS, AT(wait_s), .help = "How long."},
    {.name = "host-memory", .type = OPT_BYTES, AT(memory_bytes), .help = "Memory of a node."},
    {.name = "offload",
     .type = OPT_CHOICE,
     AT(offload),
     .choices = offloads,
     .fallback = "none",
     .help = "Where the optimizer lives."},
    {.name = "strategy",
     .type = OPT_TEXTS,
     AT(strategies),
     .fallback = "all",
     .help = "Strategies, in the order in which they are shown, so many of them that the sentence "
             "runs over the end of its line."},
    {0},
};

static const struct opt common_options[] = {
    {.name = "json", .type = OPT_STRING, AT(json), .argument = "FILE", .group = "Output"},
    {.name = "quiet", .letter = 'q', .type = OPT_FLAG, AT(quiet), .group = "Output"},
    {.name = "nodes", .type = OPT_FLAG, AT(quiet), .help = "shadowed by the recipe's"},
    {0},
};

static const struct opt *const tables[] = {recipe_options, common_options, NULL};
static const char *const positional_help[] = {"A model.", "A cluster.", NULL};
static const char *const examples[] = {"shardplan plan 7B 8xA100-80GB", NULL};
static const struct opt_command command = {
    .name = "plan",
    .summary = "Plan it.",
    .positional = "MODEL CLUSTER",
    .positional_help = positional_help,
    .tables = tables,
    .examples = examples,
};

struct run {
    struct arena *arena;
    struct wanted wanted;
    struct opt_texts rest;
    struct err err;
    bool help, ok;
};

// `line` is split at spaces.
static void run(struct run *r, const char *line) {
    static char text[512];
    char *argv[32] = {0};
    int argc = 0;
    snprintf(text, sizeof text, "plan %s", line);
    for (char *word = strtok(text, " "); word; word = strtok(NULL, " "))
        argv[argc++] = word;
    r->wanted = (struct wanted){0};
    r->err = (struct err){0};
    r->ok = opt_parse(&command, argc, argv, &r->wanted, r->arena, &r->rest, &r->help, &r->err);
}

static int set_up(void **state) {
    struct run *r = calloc(1, sizeof *r);
    r->arena = arena_create();
    *state = r;
    return 0;
}

static int tear_down(void **state) {
    struct run *r = *state;
    arena_destroy(r->arena);
    free(r);
    return 0;
}

static void defaults_then_arguments(void **state) {
    struct run *r = *state;
    run(r, "");
    assert_true(r->ok);
    assert_int_equal(r->wanted.nodes, 2);
    assert_false(r->wanted.nodes_given);
    assert_true(r->wanted.clip == 1);
    assert_int_equal(r->wanted.strategies.count, 1);
    assert_string_equal(r->wanted.strategies.items[0], "all");
    assert_int_equal(r->rest.count, 0);
    run(r, "7B --net=400Gb/s -n 16 -q cluster.json --strategy zero2,zero3 --strategy ddp "
           "--offload CPU --host-memory 2TiB --json - --wait 2ms --clip 0.5");
    assert_true(r->ok);
    assert_int_equal(r->wanted.nodes, 16);
    assert_true(r->wanted.nodes_given && r->wanted.quiet);
    assert_true(r->wanted.net_bytes_per_s == 5e10);
    assert_true(r->wanted.wait_s == 0.002 && r->wanted.clip == 0.5);
    assert_int_equal(r->wanted.memory_bytes, 2199023255552);
    assert_int_equal(r->wanted.offload, 1);
    assert_string_equal(r->wanted.json, "-");
    assert_int_equal(r->wanted.strategies.count, 3);
    assert_string_equal(r->wanted.strategies.items[1], "zero3");
    assert_string_equal(r->wanted.strategies.items[2], "ddp");
    assert_int_equal(r->rest.count, 2);
    assert_string_equal(r->rest.items[0], "7B");
    assert_string_equal(r->rest.items[1], "cluster.json");
}

static void mistakes_are_usage_errors_with_names(void **state) {
    struct run *r = *state;
    const struct {
        const char *line, *text;
    } known[] = {
        {"--nodse 3", "unknown option '--nodse'; did you mean '--nodes'?"},
        {"--frobnicate", "unknown option '--frobnicate'; see --help"},
        {"--memory 3", "unknown option '--memory'; there is --host-memory"},
        {"--n 3", "option '--n' is ambiguous: --nodes, --net"},
        {"-z", "unknown option '-z'"},
        {"--nodes", "--nodes needs a value"},
        {"-n", "-n needs a value"},
        {"--quiet=yes", "--quiet takes no value"},
        {"--nodes 0", "--nodes: '0' is below 1"},
        {"--nodes 4096", "--nodes: '4096' is above 1024"},
        {"--nodes many", "--nodes: 'many': expected a count"},
        {"--net 400", "expected a rate with its unit"},
        {"--offload cpo", "--offload: 'cpo': did you mean 'cpu'? (none|cpu|nvme)"},
        {"--offload floppy", "'floppy' is none of none|cpu|nvme"},
        {"--strategy zero2,,zero3", "an item is empty"},
        {"--ne 3 --n 3", "expected a rate"},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        run(r, known[i].line);
        assert_false(r->ok);
        assert_int_equal(r->err.kind, ERR_USAGE);
        if (!strstr(r->err.text, known[i].text))
            fail_msg("%s: '%s' lacks '%s'", known[i].line, r->err.text, known[i].text);
    }
}

static void help_stops_and_double_dash_ends(void **state) {
    struct run *r = *state;
    run(r, "--help --nodes nonsense");
    assert_true(r->ok && r->help);
    run(r, "-h");
    assert_true(r->ok && r->help);
    run(r, "-- --nodes");
    assert_true(r->ok && !r->help);
    assert_string_equal(r->rest.items[0], "--nodes");
}

static void one_option_is_set_by_name(void **state) {
    struct run *r = *state;
    struct wanted w = {0};
    struct err e = {0};
    assert_true(opt_set(&command, &w, "offload", "nvme", r->arena, &e));
    assert_int_equal(w.offload, 2);
    assert_true(opt_set(&command, &w, "quiet", "true", r->arena, &e));
    assert_true(w.quiet);
    assert_true(opt_set(&command, &w, "nodes", "8", r->arena, &e) && w.nodes_given);
    assert_false(opt_set(&command, &w, "quiet", "maybe", r->arena, &e));
    assert_int_equal(e.kind, ERR_INPUT);
    err_clear(&e);
    assert_false(opt_set(&command, &w, "ofload", "cpu", r->arena, &e));
    assert_non_null(strstr(e.text, "did you mean 'offload'?"));
}

static char *text_of(void (*print)(FILE *)) {
    char *text = NULL;
    size_t bytes = 0;
    FILE *f = open_memstream(&text, &bytes);
    print(f);
    fclose(f);
    return text;
}

static void print_help(FILE *f) {
    opt_help(&command, "shardplan", f);
}

static const struct opt_command *const all[] = {&command};

static void print_man(FILE *f) {
    opt_man(all, 1, "shardplan", NULL, f);
}

static void print_bash(FILE *f) {
    opt_completion(all, 1, "shardplan", "bash", f);
}

static void print_zsh(FILE *f) {
    opt_completion(all, 1, "shardplan", "zsh", f);
}

static void expect_in(void (*print)(FILE *), const char *const *parts) {
    char *text = text_of(print);
    for (; *parts; parts++)
        if (!strstr(text, *parts))
            fail_msg("'%s' is not in:\n%s", *parts, text);
    free(text);
}

static void every_rendering_knows_every_option(void **state) {
    (void)state;
    expect_in(print_help, (const char *const[]){
                              "usage: shardplan plan [OPTION...] MODEL CLUSTER", "  -n, --nodes N",
                              "Nodes. [2]", "--offload none|cpu|nvme", "\nOutput:\n", "A cluster.",
                              "Examples:\n  shardplan plan 7B", NULL});
    char *help = text_of(print_help);
    assert_null(strstr(help, "shadowed"));
    assert_null(strstr(help, " \n"));
    free(help);
    expect_in(print_man, (const char *const[]){".TH SHARDPLAN 1", "\\-\\-host\\-memory\\fR",
                                               "\\-n\\fR, \\fB\\-\\-nodes", NULL});
    expect_in(print_bash, (const char *const[]){"complete -F _shardplan shardplan",
                                                "--offload) _shardplan_words \"none cpu nvme\"",
                                                "--host-memory", NULL});
    expect_in(print_zsh, (const char *const[]){"#compdef shardplan",
                                               "--offload[Where the optimizer lives.]:value:("
                                               "none cpu nvme)",
                                               NULL});
}

static void command_line_can_be_typed_again(void **state) {
    const char *const argv[] = {"x/shardbench", "rehearse", "a b.json", "it's",
                                "--ranks=2",    "",         NULL};
    struct arena *a = arena_create();
    (void)state;
    assert_string_equal(opt_command_line("shardbench", 6, argv, a),
                        "shardbench rehearse 'a b.json' 'it'\\''s' --ranks=2 ''");
    arena_destroy(a);
}

static void completions_are_valid_shell(void **state) {
    (void)state;
    FILE *shell = popen("bash -n", "w");
    assert_non_null(shell);
    print_bash(shell);
    assert_int_equal(pclose(shell), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(defaults_then_arguments, set_up, tear_down),
        cmocka_unit_test_setup_teardown(mistakes_are_usage_errors_with_names, set_up, tear_down),
        cmocka_unit_test_setup_teardown(help_stops_and_double_dash_ends, set_up, tear_down),
        cmocka_unit_test_setup_teardown(one_option_is_set_by_name, set_up, tear_down),
        cmocka_unit_test(every_rendering_knows_every_option),
        cmocka_unit_test(command_line_can_be_typed_again),
        cmocka_unit_test(completions_are_valid_shell),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
