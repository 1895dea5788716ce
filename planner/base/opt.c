// SPDX-License-Identifier: Apache-2.0
#include "base/opt.h"

#include "base/kinds.h"
#include "base/units.h"

#include <assert.h>
#include <getopt.h>
#include <stdint.h>
#include <string.h>

struct target {
    void *base;
    struct arena *arena;
};

size_t opt_collect(const struct opt_command *c, const struct opt *out[OPT_MAX]) {
    size_t count = 0;
    for (const struct opt *const *table = c->tables; table && *table; table++) {
        for (const struct opt *o = *table; o->name; o++) {
            bool known = false;
            for (size_t i = 0; i < count && !known; i++)
                known = strcmp(out[i]->name, o->name) == 0;
            if (known)
                continue;
            assert(count < OPT_MAX);
            out[count++] = o;
        }
    }
    return count;
}

static size_t choice_count(const struct opt *o) {
    size_t n = 0;
    while (o->choices && o->choices[n])
        n++;
    return n;
}

const char *opt_argument(const struct opt *o, char *buf, size_t size) {
    if (o->type == OPT_FLAG)
        return NULL;
    if (o->argument)
        return o->argument;
    if (o->type != OPT_CHOICE)
        return "VALUE";
    size_t used = 0;
    buf[0] = '\0';
    for (size_t i = 0; i < choice_count(o) && used < size; i++)
        used += (size_t)snprintf(buf + used, size - used, "%s%s", i ? "|" : "", o->choices[i]);
    return buf;
}

static bool in_range(const struct opt *o, double v, const char *text, struct err *e) {
    if (o->min == 0 && o->max == 0)
        return true;
    if (v < o->min)
        return err_set(e, ERR_INPUT, "'%.64s' is below %.9g", text, o->min);
    // A maximum of 0 beside a minimum above it means: no maximum.
    if (v > o->max && o->max >= o->min)
        return err_set(e, ERR_INPUT, "'%.64s' is above %.9g", text, o->max);
    return true;
}

static bool set_whole(const struct opt *o, void *field, const char *text, struct err *e) {
    uint64_t v;
    bool ok =
        o->type == OPT_COUNT ? units_parse_count(text, &v, e) : units_parse_bytes(text, &v, e);
    if (!ok || !in_range(o, (double)v, text, e))
        return false;
    *(uint64_t *)field = v;
    return true;
}

static bool set_real(const struct opt *o, void *field, const char *text, struct err *e) {
    double v;
    bool ok = o->type == OPT_RATE      ? units_parse_rate(text, &v, e)
              : o->type == OPT_SECONDS ? units_parse_seconds(text, &v, e)
                                       : units_parse_double(text, &v, e);
    if (!ok || !in_range(o, v, text, e))
        return false;
    *(double *)field = v;
    return true;
}

static bool set_choice(const struct opt *o, void *field, const char *text, struct err *e) {
    int i = kinds_find(o->choices, choice_count(o), text);
    if (i >= 0) {
        *(int *)field = i;
        return true;
    }
    char all[512];
    struct opt plain = *o;
    plain.argument = NULL;
    const char *near = kinds_nearest(o->choices, choice_count(o), text);
    opt_argument(&plain, all, sizeof all);
    return near ? err_set(e, ERR_INPUT, "'%.64s': did you mean '%s'? (%s)", text, near, all)
                : err_set(e, ERR_INPUT, "'%.64s' is none of %s", text, all);
}

static bool set_flag(void *field, const char *text, struct err *e) {
    static const char *const words[] = {"false", "true", "off", "on", "no", "yes", "0", "1"};
    int i = text ? kinds_find(words, sizeof words / sizeof *words, text) : 1;
    if (i < 0)
        return err_set(e, ERR_INPUT, "'%.64s': expected true or false", text);
    *(bool *)field = i % 2;
    return true;
}

// Adds every comma-separated part.
static bool set_texts(struct target t, void *field, const char *text, struct err *e) {
    struct opt_texts *texts = field;
    size_t parts = 1;
    for (const char *p = text; *p; p++)
        parts += *p == ',';
    const char **items = arena_array(t.arena, texts->count + parts, sizeof *items);
    if (texts->count)
        memcpy(items, texts->items, texts->count * sizeof *items);
    size_t count = texts->count;
    for (const char *p = text;; p++) {
        size_t length = strcspn(p, ",");
        if (length == 0)
            return err_set(e, ERR_INPUT, "'%.64s': an item is empty", text);
        items[count++] = arena_printf(t.arena, "%.*s", (int)length, p);
        p += length;
        if (!*p)
            break;
    }
    *texts = (struct opt_texts){items, count};
    return true;
}

static bool set_value(const struct opt *o, struct target t, const char *text, struct err *e) {
    void *field = (char *)t.base + o->offset;
    switch (o->type) {
    case OPT_FLAG:
        return set_flag(field, text, e);
    case OPT_STRING:
        *(const char **)field = arena_strdup(t.arena, text);
        return true;
    case OPT_COUNT:
    case OPT_BYTES:
        return set_whole(o, field, text, e);
    case OPT_DOUBLE:
    case OPT_RATE:
    case OPT_SECONDS:
        return set_real(o, field, text, e);
    case OPT_CHOICE:
        return set_choice(o, field, text, e);
    case OPT_TEXTS:
        return set_texts(t, field, text, e);
    case OPT_TYPE_COUNT:
        break;
    }
    return err_set(e, ERR_INPUT, "option '%s' has no type", o->name);
}

static void mark_given(const struct opt *o, struct target t) {
    if (o->given_offset != SIZE_MAX)
        *(bool *)((char *)t.base + o->given_offset) = true;
}

static const char *nearest_name(const struct opt *const *options, size_t count, const char *name) {
    const char *names[OPT_MAX];
    for (size_t i = 0; i < count; i++)
        names[i] = options[i]->name;
    return kinds_nearest(names, count, name);
}

bool opt_set(const struct opt_command *c, void *target, const char *name, const char *value,
             struct arena *a, struct err *e) {
    const struct opt *options[OPT_MAX];
    size_t count = opt_collect(c, options);
    struct target t = {target, a};
    for (size_t i = 0; i < count; i++) {
        if (strcmp(options[i]->name, name) != 0)
            continue;
        if (options[i]->type == OPT_TEXTS)
            *(struct opt_texts *)((char *)target + options[i]->offset) = (struct opt_texts){0};
        if (!set_value(options[i], t, value, e)) {
            err_note(e, "%s", name);
            return false;
        }
        mark_given(options[i], t);
        return true;
    }
    const char *near = nearest_name(options, count, name);
    return near ? err_set(e, ERR_INPUT, "unknown option '%.64s'; did you mean '%s'?", name, near)
                : err_set(e, ERR_INPUT, "unknown option '%.64s'", name);
}

enum { HELP_VALUE = 1000, FIRST_VALUE = 1001 }; // beyond every letter

struct parser {
    const struct opt_command *command;
    const struct opt *options[OPT_MAX];
    bool seen[OPT_MAX];
    size_t count;
    struct option longs[OPT_MAX + 2];
    char letters[2 * OPT_MAX + 3];
    bool help_letter; // -h is free for help
};

static void prepare(struct parser *p) {
    size_t used = 0;
    p->count = opt_collect(p->command, p->options);
    p->letters[used++] = ':';
    p->help_letter = true;
    for (size_t i = 0; i < p->count; i++) {
        const struct opt *o = p->options[i];
        bool takes = o->type != OPT_FLAG;
        p->longs[i] = (struct option){o->name, takes ? required_argument : no_argument, NULL,
                                      FIRST_VALUE + (int)i};
        if (!o->letter)
            continue;
        p->letters[used++] = o->letter;
        if (takes)
            p->letters[used++] = ':';
        p->help_letter = p->help_letter && o->letter != 'h';
    }
    if (p->help_letter)
        p->letters[used++] = 'h';
    p->letters[used] = '\0';
    p->longs[p->count] = (struct option){"help", no_argument, NULL, HELP_VALUE};
}

static bool set_fallbacks(const struct parser *p, struct target t, struct err *e) {
    for (size_t i = 0; i < p->count; i++) {
        const struct opt *o = p->options[i];
        if (o->fallback && !set_value(o, t, o->fallback, e)) {
            err_note(e, "default of --%s", o->name);
            return false;
        }
    }
    return true;
}

static bool starts_with(const char *option, const char *word) {
    return strncmp(option, word, strlen(word)) == 0;
}

static bool contains(const char *option, const char *word) {
    return strlen(word) > 2 && strstr(option, word) != NULL;
}

// " --lora-rank, --lora-targets": the options that `match` the word. How many there are.
static size_t list_options(const struct parser *p, const char *word,
                           bool (*match)(const char *, const char *), char *out, size_t size) {
    size_t found = 0, used = 0;
    out[0] = '\0';
    for (size_t i = 0; i < p->count; i++) {
        if (!match(p->options[i]->name, word))
            continue;
        int wrote =
            snprintf(out + used, size - used, "%s --%s", found++ ? "," : "", p->options[i]->name);
        used = wrote > 0 && used + (size_t)wrote < size ? used + (size_t)wrote : size - 1;
    }
    return found;
}

static bool fail_unknown(const struct parser *p, const char *word, struct err *e) {
    if (optopt >= FIRST_VALUE)
        return err_set(e, ERR_USAGE, "--%s takes no value", p->options[optopt - FIRST_VALUE]->name);
    if (optopt)
        return err_set(e, ERR_USAGE, "unknown option '-%c'", optopt);
    char name[96];
    snprintf(name, sizeof name, "%s", word + strspn(word, "-"));
    name[strcspn(name, "=")] = '\0';
    char list[192];
    if (list_options(p, name, starts_with, list, sizeof list) > 1)
        return err_set(e, ERR_USAGE, "option '--%s' is ambiguous:%s", name, list);
    const char *near = nearest_name(p->options, p->count, name);
    if (near)
        return err_set(e, ERR_USAGE, "unknown option '--%s'; did you mean '--%s'?", name, near);
    if (list_options(p, name, contains, list, sizeof list) > 0)
        return err_set(e, ERR_USAGE, "unknown option '--%s'; there is%s", name, list);
    return err_set(e, ERR_USAGE, "unknown option '--%s'; see --help", name);
}

static bool fail_missing(const struct parser *p, struct err *e) {
    if (optopt >= FIRST_VALUE)
        return err_set(e, ERR_USAGE, "--%s needs a value", p->options[optopt - FIRST_VALUE]->name);
    return err_set(e, ERR_USAGE, "-%c needs a value", optopt);
}

static bool take_option(struct parser *p, int value, struct target t, struct err *e) {
    size_t i = 0;
    if (value >= FIRST_VALUE)
        i = (size_t)(value - FIRST_VALUE);
    else
        while (p->options[i]->letter != value)
            i++;
    const struct opt *o = p->options[i];
    if (o->type == OPT_TEXTS && !p->seen[i]) // the first one given replaces the default
        *(struct opt_texts *)((char *)t.base + o->offset) = (struct opt_texts){0};
    p->seen[i] = true;
    struct err why = {0};
    if (!set_value(o, t, o->type == OPT_FLAG ? NULL : optarg, &why))
        return err_set(e, ERR_USAGE, "--%s: %s", o->name, why.text);
    mark_given(o, t);
    return true;
}

static void take_rest(int argc, char **argv, struct arena *a, struct opt_texts *rest) {
    size_t count = (size_t)(argc - optind);
    const char **items = arena_array(a, count + 1, sizeof *items);
    for (size_t i = 0; i < count; i++)
        items[i] = arena_strdup(a, argv[optind + (int)i]);
    *rest = (struct opt_texts){items, count};
}

bool opt_parse(const struct opt_command *c, int argc, char **argv, void *target, struct arena *a,
               struct opt_texts *rest, bool *help, struct err *e) {
    struct parser *p = arena_alloc(a, sizeof *p);
    struct target t = {target, a};
    p->command = c;
    prepare(p);
    *help = false;
    if (!set_fallbacks(p, t, e))
        return false;
    opterr = 0;
    optind = 0; // glibc: start afresh
    for (int value; (value = getopt_long(argc, argv, p->letters, p->longs, NULL)) != -1;) {
        if (value == HELP_VALUE || (value == 'h' && p->help_letter)) {
            *help = true;
            *rest = (struct opt_texts){0};
            return true;
        }
        if (value == '?')
            return fail_unknown(p, argv[optind - 1], e);
        if (value == ':')
            return fail_missing(p, e);
        if (!take_option(p, value, t, e))
            return false;
    }
    take_rest(argc, argv, a, rest);
    return true;
}

static const struct opt *option_of(const struct opt_command *c, const char *word) {
    const struct opt *all[OPT_MAX];
    size_t count = opt_collect(c, all);
    bool is_long = strncmp(word, "--", 2) == 0;
    size_t length = is_long ? strcspn(word + 2, "=") : 0;
    for (size_t i = 0; i < count && word[0] == '-' && word[1] != '\0'; i++)
        if (is_long ? strlen(all[i]->name) == length && strncmp(all[i]->name, word + 2, length) == 0
                    : all[i]->letter == word[1])
            return all[i];
    return NULL;
}

// Some part between commas and behind an equals sign is digits and a k.
static bool has_thousands(const char *text) {
    for (const char *p = text; *p; p += strcspn(p, ",="), p += *p != '\0') {
        size_t digits = strspn(p, "0123456789.");
        if (digits > 0 && (p[digits] == 'k' || p[digits] == 'K') &&
            strchr(",=", p[digits + 1]) != NULL)
            return true;
    }
    return false;
}

int opt_loose_count(const struct opt_command *c, int argc, char *const *argv, int from) {
    for (int i = from; i < argc; i++) {
        const struct opt *here = option_of(c, argv[i]), *before = NULL;
        bool own = here && (strchr(argv[i], '=') || (argv[i][1] != '-' && argv[i][2]));
        if (!here && i > 0)
            before = option_of(c, argv[i - 1]);
        const struct opt *o = own ? here : before;
        const char *text =
            own ? argv[i] + (argv[i][1] == '-' ? strcspn(argv[i], "=") : 2) : argv[i];
        if (o && (o->type == OPT_COUNT || o->type == OPT_TEXTS) && has_thousands(text))
            return i;
    }
    return argc;
}

static const char *quoted(const char *word, struct arena *a) {
    const char *text = "'", *tick;
    if (word[0] != '\0' && strpbrk(word, " \t\n'\"\\$`*?[](){}<>|&;!#~") == NULL)
        return word;
    for (; (tick = strchr(word, '\'')) != NULL; word = tick + 1)
        text = arena_printf(a, "%s%.*s'\\''", text, (int)(tick - word), word);
    return arena_printf(a, "%s%s'", text, word);
}

const char *opt_command_line(const char *program, int argc, const char *const *argv,
                             struct arena *a) {
    const char *line = program;
    for (int i = 1; i < argc; i++)
        line = arena_printf(a, "%s %s", line, quoted(argv[i], a));
    return line;
}
