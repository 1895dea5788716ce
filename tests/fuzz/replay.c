// SPDX-License-Identifier: Apache-2.0
// Runs a fuzz target over the files of a folder, without libFuzzer: the corpus as a plain test.
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay(const char *folder, const char *name) {
    static uint8_t data[1 << 21];
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "rb");
    if (f == NULL) {
        perror(path);
        return 1;
    }
    size_t n = fread(data, 1, sizeof data, f);
    fclose(f);
    LLVMFuzzerTestOneInput(data, n);
    return 0;
}

int main(int argc, char **argv) {
    DIR *d = argc > 1 ? opendir(argv[1]) : NULL;
    size_t count = 0;
    int failed = 0;
    if (d == NULL)
        return 2;
    for (struct dirent *at; (at = readdir(d)) != NULL;)
        if (at->d_name[0] != '.') {
            failed |= replay(argv[1], at->d_name);
            count++;
        }
    closedir(d);
    printf("%zu inputs\n", count);
    return failed || count == 0;
}
