// SPDX-License-Identifier: Apache-2.0
#include "bench/pages.h"

#include <sys/mman.h>

void *pages_map(size_t bytes) {
    void *p = mmap(NULL, bytes > 0 ? bytes : 1, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    madvise(p, bytes, MADV_HUGEPAGE);
    return p;
}

void pages_unmap(void *p, size_t bytes) {
    if (p != NULL)
        munmap(p, bytes > 0 ? bytes : 1);
}
