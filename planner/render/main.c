// SPDX-License-Identifier: Apache-2.0
#include "base/build.h"

#include <stdio.h>
#include <string.h>

static void print_help(FILE *out) {
    fputs("usage: shardplan COMMAND [ARGUMENT...]\n"
          "       shardplan --version | --help\n",
          out);
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "--version") == 0) {
        printf("shardplan %s (%s)\n", build_version(), build_commit());
        return 0;
    }
    if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        print_help(stdout);
        return 0;
    }
    print_help(stderr);
    return 2;
}
