// SPDX-License-Identifier: Apache-2.0
// A fixed team of threads, pinned one to a processor, that runs one function on all of them.
#pragma once

#include <stddef.h>

struct team;

// `threads` 0: one per processor this process may run on. More threads than processors are not
// pinned. The calling thread is member 0.
struct team *team_create(size_t threads);
void team_destroy(struct team *t); // NULL is fine; gives the caller its processors back

size_t team_size(const struct team *t);

// Runs `work(context, member, size)` on every member and returns when all are done.
typedef void team_work(void *context, size_t member, size_t size);
void team_run(struct team *t, team_work *work, void *context);

// Elements [first, first + count) of `total` that belong to `member`, in multiples of `grain`.
struct team_part {
    size_t first, count;
};
struct team_part team_slice(size_t total, size_t grain, size_t member, size_t size);
