// SPDX-License-Identifier: Apache-2.0
// One option table per subcommand drives getopt_long, --help, --set, completion and the man page.
#pragma once

#include "base/arena.h"
#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum opt_type {
    OPT_FLAG,    // bool
    OPT_STRING,  // const char *
    OPT_COUNT,   // uint64_t, units_parse_count
    OPT_DOUBLE,  // double
    OPT_BYTES,   // uint64_t bytes
    OPT_RATE,    // double bytes/s
    OPT_SECONDS, // double s
    OPT_CHOICE,  // int index into choices
    OPT_TEXTS,   // struct opt_texts: may be given several times or comma-separated
    OPT_TYPE_COUNT
};

struct opt_texts {
    const char **items;
    size_t count;
};

struct opt {
    const char *name; // long name without dashes
    char letter;      // short form or 0
    enum opt_type type;
    size_t offset;              // offsetof in the target struct
    const char *argument;       // placeholder in help: "N", "BYTES"
    double min, max;            // inclusive; both 0 = unlimited
    const char *const *choices; // OPT_CHOICE: NULL-terminated names; OPT_TEXTS: what completion
                                // offers, unchecked
    const char *fallback;       // default as text, set before argv is read; NULL = none
    const char *help;           // one sentence
    const char *group;          // heading in help; NULL = "Options"
    size_t given_offset;        // offsetof a bool set when the user gave it; SIZE_MAX = none
};

enum { OPT_MAX = 160 }; // options of one command

struct opt_command {
    const char *name;                   // NULL for a program without subcommands
    const char *summary;                // one line
    const char *positional;             // "MODEL CLUSTER"
    const char *const *positional_help; // NULL-terminated, one sentence per word; or NULL
    const struct opt *const *tables; // NULL-terminated list of tables; each ends with name == NULL
    const char *const *examples;     // NULL-terminated command lines, executed by a test
    const char *notes;               // extra paragraphs for help and man page, or NULL
};

// Fill `target` from defaults, then argv (argv[0] is the subcommand). Positionals land in *rest.
// Unknown option: ERR_USAGE with the nearest name. `--help` sets *help and stops.
bool opt_parse(const struct opt_command *c, int argc, char **argv, void *target, struct arena *a,
               struct opt_texts *rest, bool *help, struct err *e);
// A count whose thousands may have been meant as 1024, such as 4k: the word of argv at or after
// `from` that gives it; argc if there is none. A sequence of 4k tokens is 4096 to many, and counts
// are decimal here.
int opt_loose_count(const struct opt_command *c, int argc, char *const *argv, int from);
// Set one option by its long name from text (for --set and recipe files).
bool opt_set(const struct opt_command *c, void *target, const char *name, const char *value,
             struct arena *a, struct err *e);
// Every option of a command in table order; of a repeated name the first. Returns how many.
size_t opt_collect(const struct opt_command *c, const struct opt *out[OPT_MAX]);
// "N", "none|cpu|nvme", or NULL for a flag; `size` bytes are enough at 256.
const char *opt_argument(const struct opt *o, char *buf, size_t size);
// The command as a shell would take it again, `program` for argv[0].
const char *opt_command_line(const char *program, int argc, const char *const *argv,
                             struct arena *a);

void opt_help(const struct opt_command *c, const char *program, FILE *out);
// `summary`: of the program, where it has more than one command.
void opt_man(const struct opt_command *const *commands, size_t count, const char *program,
             const char *summary, FILE *out);
void opt_completion(const struct opt_command *const *commands, size_t count, const char *program,
                    const char *shell, FILE *out); // "bash" or "zsh"
struct opt_program {
    const char *name, *summary; // summary: where it has more than one command
    const struct opt_command *const *commands;
    size_t count;
};
// For the build, `--generate man|bash|zsh`; false for any other word.
bool opt_generate(const struct opt_program *p, const char *what, FILE *out);
