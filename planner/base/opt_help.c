// SPDX-License-Identifier: Apache-2.0
#include "base/opt.h"

#include <ctype.h>
#include <string.h>

enum { HELP_INDENT = 30, HELP_WIDTH = 96, ARGUMENT_SIZE = 512 };

static const char *group_of(const struct opt *o) {
    return o->group ? o->group : "Options";
}

// Words wrapped between `indent` and HELP_WIDTH; the cursor stands at `indent`.
static void print_wrapped(FILE *out, const char *text, int indent) {
    int column = indent;
    while (*text) {
        int length = (int)strcspn(text, " \n");
        bool first = column == indent;
        if (!first && column + 1 + length > HELP_WIDTH) {
            fprintf(out, "\n%*s", indent, "");
            column = indent;
            first = true;
        }
        fprintf(out, "%s%.*s", first ? "" : " ", length, text);
        column += length + !first;
        text += length;
        text += strspn(text, " \n");
    }
}

static void print_option(const struct opt *o, FILE *out) {
    char left[ARGUMENT_SIZE + 64], argument[ARGUMENT_SIZE], letter[8] = "";
    const char *shown = opt_argument(o, argument, sizeof argument);
    if (o->letter)
        snprintf(letter, sizeof letter, "-%c, ", o->letter);
    int column = snprintf(left, sizeof left, "  %4s--%s%s%s", letter, o->name, shown ? " " : "",
                          shown ? shown : "");
    fputs(left, out);
    char text[1024];
    snprintf(text, sizeof text, o->fallback ? "%s [%s]" : "%s", o->help ? o->help : "",
             o->fallback);
    if (*text && column >= HELP_INDENT - 1) {
        fputc('\n', out);
        column = 0;
    }
    if (*text)
        fprintf(out, "%*s", HELP_INDENT - column, "");
    print_wrapped(out, text, HELP_INDENT);
    fputc('\n', out);
}

// Groups in order of first appearance, each once.
static void for_each_group(const struct opt *const *options, size_t count,
                           void (*print)(const char *, const struct opt *const *, size_t, FILE *),
                           FILE *out) {
    for (size_t i = 0; i < count; i++) {
        bool shown = false;
        for (size_t j = 0; j < i && !shown; j++)
            shown = strcmp(group_of(options[j]), group_of(options[i])) == 0;
        if (!shown)
            print(group_of(options[i]), options + i, count - i, out);
    }
}

static void print_group(const char *group, const struct opt *const *options, size_t count,
                        FILE *out) {
    fprintf(out, "\n%s:\n", group);
    for (size_t i = 0; i < count; i++)
        if (strcmp(group_of(options[i]), group) == 0)
            print_option(options[i], out);
}

static void print_arguments(const struct opt_command *c, FILE *out) {
    const char *word = c->positional;
    if (!word || !c->positional_help)
        return;
    fputs("\nArguments:\n", out);
    for (size_t i = 0; c->positional_help[i] && *word; i++) {
        int length = (int)strcspn(word, " ");
        fprintf(out, "  %.*s", length, word);
        int gap = HELP_INDENT - 2 - length;
        fprintf(out, "%*s", gap > 1 ? gap : 1, "");
        print_wrapped(out, c->positional_help[i], HELP_INDENT);
        fputc('\n', out);
        word += length;
        word += strspn(word, " ");
    }
}

static void print_usage(const struct opt_command *c, const char *program, FILE *out) {
    fprintf(out, "%s%s%s [OPTION...]%s%s", program, c->name ? " " : "", c->name ? c->name : "",
            c->positional ? " " : "", c->positional ? c->positional : "");
}

void opt_help(const struct opt_command *c, const char *program, FILE *out) {
    const struct opt *options[OPT_MAX];
    size_t count = opt_collect(c, options);
    fputs("usage: ", out);
    print_usage(c, program, out);
    fprintf(out, "\n\n%s\n", c->summary);
    print_arguments(c, out);
    for_each_group(options, count, print_group, out);
    if (c->notes) {
        fputc('\n', out);
        print_wrapped(out, c->notes, 0);
        fputc('\n', out);
    }
    if (c->examples && c->examples[0])
        fputs("\nExamples:\n", out);
    for (size_t i = 0; c->examples && c->examples[i]; i++)
        fprintf(out, "  %s\n", c->examples[i]);
}

// Roff: a hyphen that must stay one, a backslash, and no line that starts like a request.
static void roff(FILE *out, const char *text) {
    if (*text == '.' || *text == '\'')
        fputs("\\&", out);
    for (; *text; text++) {
        if (*text == '-' || *text == '\\')
            fputc('\\', out);
        fputc(*text, out);
        if (*text == '\\')
            fputc('e', out);
    }
}

static void man_group(const char *group, const struct opt *const *options, size_t count,
                      FILE *out) {
    fputs(".PP\n", out);
    roff(out, group);
    fputs(":\n", out);
    for (size_t i = 0; i < count; i++) {
        const struct opt *o = options[i];
        char argument[ARGUMENT_SIZE];
        const char *shown = opt_argument(o, argument, sizeof argument);
        if (strcmp(group_of(o), group) != 0)
            continue;
        fputs(".TP\n\\fB", out);
        if (o->letter)
            fprintf(out, "\\-%c\\fR, \\fB", o->letter);
        fputs("\\-\\-", out);
        roff(out, o->name);
        fputs("\\fR", out);
        if (shown) {
            fputs(" \\fI", out);
            roff(out, shown);
            fputs("\\fR", out);
        }
        fputc('\n', out);
        roff(out, o->help ? o->help : "");
        if (o->fallback) {
            fputs(" [", out);
            roff(out, o->fallback);
            fputc(']', out);
        }
        fputc('\n', out);
    }
}

static void man_command(const struct opt_command *c, const char *program, FILE *out) {
    const struct opt *options[OPT_MAX];
    size_t count = opt_collect(c, options);
    fputs(".SS ", out);
    print_usage(c, program, out);
    fputc('\n', out);
    roff(out, c->summary);
    fputc('\n', out);
    for_each_group(options, count, man_group, out);
    if (c->notes) {
        fputs(".PP\n", out);
        roff(out, c->notes);
        fputc('\n', out);
    }
    for (size_t i = 0; c->examples && c->examples[i]; i++) {
        fputs(i ? ".br\n" : ".PP\nExamples:\n.PP\n", out);
        roff(out, c->examples[i]);
        fputc('\n', out);
    }
}

void opt_man(const struct opt_command *const *commands, size_t count, const char *program,
             const char *summary, FILE *out) {
    fputs(".TH ", out);
    for (const char *p = program; *p; p++)
        fputc(toupper((unsigned char)*p), out);
    fputs(" 1\n.SH NAME\n", out);
    roff(out, program);
    fputs(" \\- ", out);
    roff(out, count == 1 ? commands[0]->summary : summary);
    fputs("\n.SH SYNOPSIS\n.B ", out);
    roff(out, program);
    fputs(count == 1 ? "\n[OPTION...]\n" : "\nCOMMAND [OPTION...] [ARGUMENT...]\n", out);
    fputs(count == 1 ? ".SH OPTIONS\n" : ".SH COMMANDS\n", out);
    for (size_t i = 0; i < count; i++)
        man_command(commands[i], program, out);
    fputs(".SH EXIT STATUS\n"
          "0 done and the answer is yes, 1 the answer is no, 2 usage, 3 bad input, 4 a resource,\n"
          "device, backend or required measurement is missing, 130 interrupted.\n",
          out);
}
