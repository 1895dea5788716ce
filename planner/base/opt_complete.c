// SPDX-License-Identifier: Apache-2.0
// Completion for bash and zsh: options and the values they name, catalog names where an argument is
// a MODEL, a CLUSTER or a NAME, files elsewhere.
#include "base/opt.h"

#include <stdlib.h>
#include <string.h>

// Program and command names as parts of a shell identifier.
static void identifier(FILE *out, const char *name) {
    for (; *name; name++)
        fputc(*name == '-' || *name == '.' ? '_' : *name, out);
}

static void words(FILE *out, const char *const *list) {
    for (size_t i = 0; list && list[i]; i++)
        fprintf(out, "%s%s", i ? " " : "", list[i]);
}

// What `catalog list` names: "models", "clusters gpus", "models clusters gpus"; NULL for files.
static const char *catalog_of(const char *argument) {
    if (argument && strcmp(argument, "MODEL") == 0)
        return "models";
    if (argument && strcmp(argument, "CLUSTER") == 0)
        return "clusters gpus";
    if (argument && strcmp(argument, "NAME") == 0)
        return "models clusters gpus";
    return NULL;
}

// One word of `positional` at a time: "[NAME|FILE...]" is "NAME|FILE".
static const char *next_word(const char *at, char *word, size_t size) {
    size_t n = 0;
    at += strspn(at, " ");
    size_t length = strcspn(at, " ");
    for (size_t i = 0; i < length && n + 1 < size; i++)
        if (at[i] != '[' && at[i] != ']' && at[i] != '.')
            word[n++] = at[i];
    word[n] = '\0';
    return at + length;
}

// "NAME|FILE" and the like: placeholders are in capitals, words to type are not.
static bool is_choice(const char *word) {
    return strchr(word, '|') && !(word[0] >= 'A' && word[0] <= 'Z');
}

static void spaced(FILE *out, const char *choices) {
    for (; *choices; choices++)
        fputc(*choices == '|' ? ' ' : *choices, out);
}

static const char *catalog_word(char *word) {
    word[strcspn(word, "|")] = '\0';
    return catalog_of(word);
}

// ---- bash ---------------------------------------------------------------------------------------

static void bash_value(const struct opt *o, FILE *out) {
    const char *names = catalog_of(o->argument);
    if (o->choices) {
        fprintf(out, "      --%s) %s \"", o->name, o->type == OPT_TEXTS ? "~list" : "~words");
        words(out, o->choices);
        fputs("\"; return ;;\n", out);
    } else if (names && o->type == OPT_STRING) {
        fprintf(out, "      --%s) ~names %s; return ;;\n", o->name, names);
    } else if (o->type != OPT_FLAG) {
        fprintf(out, "      --%s) COMPREPLY=($(compgen -f -- \"$word\")); return ;;\n", o->name);
    }
}

static void bash_positionals(const struct opt_command *c, FILE *out) {
    char word[160];
    int n = 0;
    fputs("    case $n in\n", out);
    for (const char *at = c->positional ? c->positional : ""; *at;) {
        at = next_word(at, word, sizeof word);
        if (is_choice(word)) {
            fprintf(out, "      %d) ~words \"", n++);
            spaced(out, word);
            fputs("\" ;;\n", out);
            continue;
        }
        const char *names = catalog_word(word);
        if (names)
            fprintf(out, "      %d) ~names %s ;;\n", n, names);
        n++;
    }
    fputs("    esac ;;\n", out);
}

static void bash_command(const struct opt_command *c, FILE *out) {
    const struct opt *options[OPT_MAX];
    size_t count = opt_collect(c, options);
    fprintf(out, "  %s)\n    flags=\" --help", c->name ? c->name : "*");
    for (size_t i = 0; i < count; i++)
        if (options[i]->type == OPT_FLAG)
            fprintf(out, " --%s", options[i]->name);
    fputs(" \"\n    options=\"--help", out);
    for (size_t i = 0; i < count; i++)
        fprintf(out, " --%s", options[i]->name);
    fputs("\"\n    case $previous in\n", out);
    for (size_t i = 0; i < count; i++)
        bash_value(options[i], out);
    fputs("    esac\n    if [[ $word == -* ]]; then ~words \"$options\"; return; fi\n"
          "    ~position\n",
          out);
    bash_positionals(c, out);
}

// `n` is the number of positional arguments before the word; bash splits "--tp=2" at its "=".
static const char bash_helpers[] =
    "  ~words() { COMPREPLY=($(compgen -W \"$1\" -- \"$word\")); }\n"
    "  ~list() {\n"
    "    local done=\"\" w\n"
    "    [[ $word == *,* ]] && done=${word%,*},\n"
    "    for w in $1; do [[ ,$done == *,$w,* ]] || COMPREPLY+=(\"$done$w\"); done\n"
    "    COMPREPLY=($(compgen -W \"${COMPREPLY[*]}\" -- \"$word\"))\n"
    "  }\n"
    "  ~names() {\n"
    "    local kind names times=${word%%x*}\n"
    "    for kind in \"$@\"; do\n"
    "      names=$(\"${COMP_WORDS[0]}\" catalog list \"$kind\" 2>/dev/null |\n"
    "        sed -n 's/^  \\([^ ]*\\).*/\\1/p')\n"
    "      if [[ $kind == gpus && $# == 2 ]]; then\n"
    "        [[ $word == [0-9]*x* && $times != *[!0-9]* ]] || continue\n"
    "        names=$(sed \"s/^/${times}x/\" <<< \"$names\")\n"
    "      fi\n"
    "      COMPREPLY+=($(compgen -W \"$names\" -- \"$word\"))\n"
    "    done\n"
    "    COMPREPLY+=($(compgen -f -- \"$word\"))\n"
    "  }\n"
    "  ~position() {\n"
    "    local i\n"
    "    for ((i = first, n = 0; i < COMP_CWORD; i++)); do\n"
    "      if [[ ${COMP_WORDS[i]} != -* ]]; then\n"
    "        ((n++))\n"
    "      elif [[ ${COMP_WORDS[i + 1]} == = ]]; then\n"
    "        ((i += 2))\n"
    "      elif [[ ${COMP_WORDS[i]} != *=* && $flags != *\" ${COMP_WORDS[i]} \"* ]]; then\n"
    "        ((i++))\n"
    "      fi\n"
    "    done\n"
    "  }\n";

static void bash(const struct opt_command *const *commands, size_t count, const char *program,
                 FILE *out) {
    bool subcommands = count > 1 || commands[0]->name;
    fputc('_', out);
    identifier(out, program);
    fprintf(out,
            "() {\n"
            "  local word=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]}\n"
            "  local flags options n first=%d\n"
            "  COMPREPLY=()\n"
            "  [[ $previous == = ]] && previous=${COMP_WORDS[COMP_CWORD-2]}\n"
            "  [[ $word == = ]] && word=\"\" previous=${COMP_WORDS[COMP_CWORD-1]}\n",
            subcommands ? 2 : 1);
    fputs(bash_helpers, out);
    if (subcommands) {
        fputs("  if ((COMP_CWORD == 1)); then\n    ~words \"", out);
        for (size_t i = 0; i < count; i++)
            fprintf(out, "%s ", commands[i]->name);
        fputs("--help --version\"\n    return\n  fi\n", out);
    }
    fputs("  case ${COMP_WORDS[1]} in\n", out);
    for (size_t i = 0; i < count; i++)
        bash_command(commands[i], out);
    fputs("  esac\n  [[ ${#COMPREPLY[@]} == 0 && $word != -* ]] &&\n"
          "    COMPREPLY=($(compgen -f -- \"$word\"))\n}\ncomplete -F _",
          out);
    identifier(out, program);
    fprintf(out, " %s\n", program);
}

// Helpers are called "~words" above: a shell has one name space for all its functions.
static void bash_named(const struct opt_command *const *commands, size_t count, const char *program,
                       FILE *out) {
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    if (!f)
        return;
    bash(commands, count, program, f);
    fclose(f);
    for (const char *c = text; c && *c; c++) {
        fputc(*c == '~' ? '_' : *c, out);
        if (*c != '~')
            continue;
        identifier(out, program);
        fputc('_', out);
    }
    free(text);
}

// ---- zsh ----------------------------------------------------------------------------------------

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

// The blank keeps _arguments from adding words of its own.
static void zsh_catalog(FILE *out, const char *program, const char *kinds) {
    fputs(": _", out);
    identifier(out, program);
    fprintf(out, "_names %s", kinds);
}

static void zsh_option(const struct opt *o, const char *program, FILE *out) {
    const char *names = catalog_of(o->argument);
    fprintf(out, " \\\n      '%s--%s[", o->type == OPT_TEXTS ? "*" : "", o->name);
    zsh_text(out, o->help ? o->help : "");
    fputc(']', out);
    if (o->choices && o->type == OPT_TEXTS) {
        fputs(":value:_sequence compadd - ", out);
        words(out, o->choices);
    } else if (o->choices) {
        fputs(":value:(", out);
        words(out, o->choices);
        fputc(')', out);
    } else if (o->type != OPT_FLAG) {
        fputc(':', out);
        zsh_text(out, o->argument ? o->argument : "value");
        if (names && o->type == OPT_STRING)
            zsh_catalog(out, program, names);
        else
            fputs(":_files", out);
    }
    fputc('\'', out);
}

static void zsh_positionals(const struct opt_command *c, const char *program, FILE *out) {
    char word[160];
    int n = c->name ? 2 : 1; // the command is the first argument
    for (const char *at = c->positional ? c->positional : ""; *at; n++) {
        at = next_word(at, word, sizeof word);
        if (is_choice(word)) {
            fprintf(out, " \\\n      '%d:word:(", n);
            spaced(out, word);
            fputs(")'", out);
            continue;
        }
        const char *names = catalog_word(word);
        if (!names)
            continue;
        fprintf(out, " \\\n      '%d:%s", n, word);
        zsh_catalog(out, program, names);
        fputc('\'', out);
    }
    fputs(" \\\n      '*:file:_files' ;;\n", out);
}

static void zsh_names(const char *program, FILE *out) {
    fputc('_', out);
    identifier(out, program);
    fputs("_names() {\n"
          "  local kind\n  local -a names\n"
          "  for kind in \"$@\"; do\n"
          "    names=(${(f)\"$(",
          out);
    fprintf(out, "%s catalog list $kind 2>/dev/null | sed -n 's/^  \\([^ ]*\\).*/\\1/p')\"})\n",
            program);
    fputs("    if [[ $kind == gpus && $# == 2 ]]; then\n"
          "      [[ $PREFIX == <->x* ]] || continue\n"
          "      names=(${PREFIX%%x*}x$^names)\n"
          "    fi\n"
          "    compadd -a names\n"
          "  done\n  _files\n}\n\n",
          out);
}

static void zsh(const struct opt_command *const *commands, size_t count, const char *program,
                FILE *out) {
    fprintf(out, "#compdef %s\n\n", program);
    zsh_names(program, out);
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
            zsh_option(options[j], program, out);
        zsh_positionals(commands[i], program, out);
    }
    fputs("esac\n", out);
}

void opt_completion(const struct opt_command *const *commands, size_t count, const char *program,
                    const char *shell, FILE *out) {
    if (strcmp(shell, "zsh") == 0)
        zsh(commands, count, program, out);
    else
        bash_named(commands, count, program, out);
}

bool opt_generate(const struct opt_program *p, const char *what, FILE *out) {
    if (strcmp(what, "man") == 0)
        opt_man(p->commands, p->count, p->name, p->summary, out);
    else if (strcmp(what, "bash") == 0 || strcmp(what, "zsh") == 0)
        opt_completion(p->commands, p->count, p->name, what, out);
    else
        return false;
    return true;
}
