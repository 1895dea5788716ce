// SPDX-License-Identifier: Apache-2.0
// shardreport: result files in, one HTML page and its plots out.
#include "gnuplot.h"
#include "load.h"
#include "page.h"

#include "base/build.h"
#include "base/json.h"
#include "base/opt.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct options {
    const char *output, *gnuplot;
    bool quiet, version;
};

static const struct opt table[] = {
    {.name = "output",
     .letter = 'o',
     .type = OPT_STRING,
     .offset = offsetof(struct options, output),
     .argument = "DIR",
     .help = "folder for index.html and plots/; made when it is not there",
     .given_offset = SIZE_MAX},
    {.name = "gnuplot",
     .type = OPT_STRING,
     .offset = offsetof(struct options, gnuplot),
     .argument = "PROGRAM",
     .fallback = "gnuplot",
     .help = "program that draws; none: write scripts and data only",
     .given_offset = SIZE_MAX},
    {.name = "quiet",
     .letter = 'q',
     .type = OPT_FLAG,
     .offset = offsetof(struct options, quiet),
     .help = "do not print the page's path",
     .given_offset = SIZE_MAX},
    {.name = "version",
     .type = OPT_FLAG,
     .offset = offsetof(struct options, version),
     .help = "print the version and stop",
     .given_offset = SIZE_MAX},
    {.name = NULL},
};

static const struct opt_command command = {
    .name = "shardreport",
    .summary = "One self-contained HTML page, with plots, from results of shardplan",
    .positional = "RESULT.json...",
    .positional_help =
        (const char *const[]){"result files of any shardplan command, or F.jsonl of bench", NULL},
    .tables = (const struct opt *const[]){table, NULL},
    .examples =
        (const char *const[]){
            "shardplan plan llama-3-8b dgx-h100 --json plan.json",
            "shardplan simulate llama-3-8b dgx-h100 --strategy fsdp2 --json simulated.json",
            "shardreport plan.json simulated.json -o report", NULL},
    .notes =
        "The page needs no script and asks for nothing from elsewhere. Without gnuplot it still "
        "comes, and says what is missing.",
};

static bool make_folder(const char *path, struct err *e) {
    char part[4096];
    if (strlen(path) >= sizeof part - 16)
        return err_set(e, ERR_USAGE, "-o: the path is too long");
    for (size_t i = 1; i <= strlen(path); i++) {
        if (path[i] != '/' && path[i] != '\0')
            continue;
        memcpy(part, path, i);
        part[i] = '\0';
        if (mkdir(part, 0777) != 0 && errno != EEXIST)
            return err_set(e, ERR_RESOURCE, "%s: cannot be made: %s", part, strerror(errno));
    }
    return true;
}

static bool make_folders(const char *output, struct arena *a, struct err *e) {
    return make_folder(output, e) && make_folder(arena_printf(a, "%s/plots", output), e);
}

static bool write_report(const struct options *o, const struct opt_texts *files, struct arena *a,
                         struct err *e) {
    struct page page = {.arena = a};
    struct results results = {0};
    bool drawn = strcmp(o->gnuplot, "none") != 0;
    size_t bytes = 0;
    char *text = NULL;
    bool good = false;
    html_init(&page.html);
    plot_set_init(&page.plots, a);
    if (!results_read(files->items, files->count, a, &results, e))
        goto fail;
    if (!make_folders(o->output, a, e))
        goto fail;
    page_write(&page, &results);
    if (!gnuplot_draw(&page.plots, o->output, drawn ? o->gnuplot : NULL, e))
        goto fail;
    text = page_assemble(&page, &bytes);
    good = json_write_text_file(arena_printf(a, "%s/index.html", o->output), text, bytes, e);
fail:
    free(text);
    html_discard(&page.html);
    plot_set_finish(&page.plots);
    results_finish(&results);
    return good;
}

int main(int argc, char **argv) {
    struct arena *a = arena_create();
    struct err e = {0};
    struct options o = {0};
    struct opt_texts files = {0};
    bool help = false;
    if (argc == 3 && strcmp(argv[1], "--generate") == 0) { // hidden: for the build
        struct opt_command alone = command;
        alone.name = NULL; // the program is its only command
        const struct opt_command *const all[] = {&alone};
        const struct opt_program p = {"shardreport", NULL, all, 1};
        if (!opt_generate(&p, argv[2], stdout))
            err_set(&e, ERR_USAGE, "--generate takes man, bash or zsh");
        goto done;
    }
    if (!opt_parse(&command, argc, argv, &o, a, &files, &help, &e))
        goto done;
    if (help) {
        opt_help(&command, "", stdout);
        goto done;
    }
    if (o.version) {
        printf("shardreport %s (%s)\n", build_version(), build_commit());
        goto done;
    }
    if (files.count == 0 || !o.output)
        err_set(&e, ERR_USAGE,
                files.count == 0 ? "give at least one result file (see --help)"
                                 : "give the output folder: -o DIR");
    else if (write_report(&o, &files, a, &e) && !o.quiet)
        printf("%s/index.html\n", o.output);
done:
    if (fflush(stdout) != 0 || ferror(stdout))
        err_set(&e, ERR_RESOURCE, "standard output: %s", strerror(errno));
    if (e.kind != ERR_NONE)
        fprintf(stderr, "shardreport: %s\n", e.text);
    int status = err_exit_status(&e);
    arena_destroy(a);
    return status;
}
