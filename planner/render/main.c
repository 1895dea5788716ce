// SPDX-License-Identifier: Apache-2.0
#include "base/build.h"
#include "base/kinds.h"
#include "base/opt.h"
#include "render/cmd.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

// In the order of help.
const struct command *const commands[] = {
    &plan_command,     &simulate_command, &advise_command,   &sweep_command,
    &bench_command,    &confirm_command,  &fit_command,      &accept_command,
    &rehearse_command, &report_command,   &validate_command, &check_command,
    &emit_command,     &explain_command,  &catalog_command,  NULL,
};
#define COMMANDS (sizeof commands / sizeof commands[0] - 1)

static void print_help(FILE *out) {
    fputs(
        "usage: shardplan COMMAND [ARGUMENT...]\n\n"
        "Plan sharded training of large models: does it fit, how fast is it, what holds it back,\n"
        "and should you offload or buy bandwidth?\n\n",
        out);
    for (size_t i = 0; i < COMMANDS; i++)
        fprintf(out, "  %-10s %s\n", commands[i]->options->name, commands[i]->options->summary);
    fputs("\nshardplan COMMAND --help shows a command's options. Start here:\n"
          "  shardplan plan llama-3-8b dgx-h100\n",
          out);
}

static const struct command *find_command(const char *name) {
    for (size_t i = 0; i < COMMANDS; i++)
        if (strcmp(commands[i]->options->name, name) == 0)
            return commands[i];
    return NULL;
}

static int unknown_command(const char *name) {
    const char *names[COMMANDS];
    for (size_t i = 0; i < COMMANDS; i++)
        names[i] = commands[i]->options->name;
    const char *near = kinds_nearest(names, COMMANDS, name);
    fprintf(stderr, "shardplan: unknown command '%s'%s%s%s; see shardplan --help\n", name,
            near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
    return EXIT_USAGE;
}

// Hidden: the build's man page and completions come from the option tables.
static int generate(const char *what) {
    const struct opt_command *all[COMMANDS];
    for (size_t i = 0; i < COMMANDS; i++)
        all[i] = commands[i]->options;
    const struct opt_program p = {"shardplan", "plan sharded training of large models", all,
                                  COMMANDS};
    return opt_generate(&p, what, stdout) ? EXIT_YES : EXIT_USAGE;
}

// An answer that did not reach its reader is none: a full disk shows here at the latest.
static int written(int status) {
    bool lost = fflush(stdout) != 0;
    if (!lost && !ferror(stdout))
        return status;
    fprintf(stderr, "shardplan: standard output: %s\n", lost ? strerror(errno) : "write failed");
    return status == EXIT_YES || status == EXIT_NO ? EXIT_MISSING : status;
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "--version") == 0) {
        printf("shardplan %s (%s)\n", build_version(), build_commit());
        return written(EXIT_YES);
    }
    if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        print_help(stdout);
        return written(EXIT_YES);
    }
    if (argc < 2) {
        print_help(stderr);
        return EXIT_USAGE;
    }
    if (strcmp(argv[1], "--generate") == 0 && argc == 3)
        return written(generate(argv[2]));
    const struct command *c = find_command(argv[1]);
    if (!c)
        return unknown_command(argv[1]);
    struct cli cli = {.arena = arena_create()};
    cli.command_line = opt_command_line("shardplan", argc, (const char *const *)argv, cli.arena);
    int status = c->run(&cli, argc - 1, argv + 1);
    arena_destroy(cli.arena);
    return written(status);
}
