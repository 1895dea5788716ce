// SPDX-License-Identifier: Apache-2.0
#include "bench/words.h"

#include <string.h>

#include "base/kinds.h"

static size_t count_of(const char *const *known) {
    size_t n = 0;
    while (known[n] != NULL)
        n++;
    return n;
}

const char *words_join(const char *const *known, struct arena *a) {
    const char *text = known[0] != NULL ? known[0] : "none";
    for (size_t i = 1; known[0] != NULL && known[i] != NULL; i++)
        text = arena_printf(a, "%s, %s", text, known[i]);
    return text;
}

bool words_refuse(const char *option, const char *word, const char *const *known, struct err *e) {
    const char *nearest = kinds_nearest(known, count_of(known), word);
    struct arena *a = arena_create();
    err_set(e, ERR_USAGE, "%s: no \"%s\"%s%s; there are %s", option, word,
            nearest != NULL ? "; nearest is " : "", nearest != NULL ? nearest : "",
            words_join(known, a));
    arena_destroy(a);
    return false;
}

bool words_check(const char *option, const char *word, const char *const *known, struct err *e) {
    return kinds_find(known, count_of(known), word) >= 0 || words_refuse(option, word, known, e);
}
