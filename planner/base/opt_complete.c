// SPDX-License-Identifier: Apache-2.0
#include "base/opt.h"

#include <string.h>

// Program and command names as parts of a shell identifier.
static void identifier(FILE *out, const char *name) {
    for (; *name; name++)
        fputc(*name == '-' || *name == '.' ? '_' : *name, out);
}

static void bash_choices(const struct opt *o, FILE *out) {
    fprintf(out, "    --%s) COMPREPLY=($(compgen -W \"", o->name);
    for (size_t i = 0; o->choices[i]; i++)
        fprintf(out, "%s%s", i ? " " : "", o->choices[i]);
    fputs("\" -- \"$word\")); return ;;\n", out);
}

static void bash_command(const struct opt_command *c, FILE *out) {
    const struct opt *options[OPT_MAX];
    size_t count = opt_collect(c, options);
    fprintf(out, "  %s)\n    case $previous in\n", c->name ? c->name : "*");
    for (size_t i = 0; i < count; i++)
        if (options[i]->type == OPT_CHOICE)
            bash_choices(options[i], out);
    fputs("    esac\n    words=\"--help", out);
    for (size_t i = 0; i < count; i++)
        fprintf(out, " --%s", options[i]->name);
    fputs("\" ;;\n", out);
}

static void bash(const struct opt_command *const *commands, size_t count, const char *program,
                 FILE *out) {
    fputc('_', out);
    identifier(out, program);
    fputs(
        "() {\n"
        "  local word=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]} words=\"\"\n",
        out);
    bool subcommands = count > 1 || commands[0]->name;
    if (subcommands) {
        fputs("  if ((COMP_CWORD == 1)); then\n    COMPREPLY=($(compgen -W \"", out);
        for (size_t i = 0; i < count; i++)
            fprintf(out, "%s ", commands[i]->name);
        fputs("--help --version\" -- \"$word\"))\n    return\n  fi\n", out);
    }
    fputs("  case ${COMP_WORDS[1]} in\n", out);
    for (size_t i = 0; i < count; i++)
        bash_command(commands[i], out);
    fputs("  esac\n"
          "  if [[ $word == -* ]]; then\n"
          "    COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n"
          "  else\n"
          "    COMPREPLY=($(compgen -f -- \"$word\"))\n"
          "  fi\n}\ncomplete -F _",
          out);
    identifier(out, program);
    fprintf(out, " %s\n", program);
}

// Inside single quotes and an _arguments specification.
static void zsh_text(FILE *out, const char *text) {
    for (; *text; text++) {
        if (*text == '\'') {
            fputs("'\\''", out);
            continue;
        }
        if (strchr("[]:\\", *text))
            fputc('\\', out);
        fputc(*text, out);
    }
}

static void zsh_option(const struct opt *o, FILE *out) {
    fprintf(out, " \\\n      '%s--%s[", o->type == OPT_TEXTS ? "*" : "", o->name);
    zsh_text(out, o->help ? o->help : "");
    fputc(']', out);
    if (o->type == OPT_CHOICE) {
        fputs(":value:(", out);
        for (size_t i = 0; o->choices[i]; i++)
            fprintf(out, "%s%s", i ? " " : "", o->choices[i]);
        fputc(')', out);
    } else if (o->type != OPT_FLAG) {
        fputc(':', out);
        zsh_text(out, o->argument ? o->argument : "value");
        fputs(":_files", out);
    }
    fputc('\'', out);
}

static void zsh(const struct opt_command *const *commands, size_t count, const char *program,
                FILE *out) {
    fprintf(out, "#compdef %s\n\n", program);
    bool subcommands = count > 1 || commands[0]->name;
    if (subcommands) {
        fputs("if (( CURRENT == 2 )); then\n  local -a commands\n  commands=(\n", out);
        for (size_t i = 0; i < count; i++) {
            fprintf(out, "    '%s:", commands[i]->name);
            zsh_text(out, commands[i]->summary);
            fputs("'\n", out);
        }
        fputs("  )\n  _describe command commands\n  return\nfi\n\ncase ${words[2]} in\n", out);
    } else {
        fputs("case x in\n", out);
    }
    for (size_t i = 0; i < count; i++) {
        const struct opt *options[OPT_MAX];
        size_t n = opt_collect(commands[i], options);
        fprintf(out, "  %s)\n    _arguments '--help[show help]'",
                subcommands ? commands[i]->name : "x");
        for (size_t j = 0; j < n; j++)
            zsh_option(options[j], out);
        fputs(" '*:file:_files' ;;\n", out);
    }
    fputs("esac\n", out);
}

void opt_completion(const struct opt_command *const *commands, size_t count, const char *program,
                    const char *shell, FILE *out) {
    if (strcmp(shell, "zsh") == 0)
        zsh(commands, count, program, out);
    else
        bash(commands, count, program, out);
}
