// SPDX-License-Identifier: Apache-2.0
// Where the ranks of one communicator of NCCL's double meet: shared memory named by the unique id,
// so that threads of one process and processes of a job do the same. Zero bytes are an empty room.
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ROOM_RANKS 8
#define ROOM_SLOT_BYTES (1 << 18) // of one rank's data in flight
#define ROOM_CHANNEL_BYTES (1 << 15)
#define ROOM_TEXT 256

// What a rank says it is about to do.
struct room_call {
    const char *name; // not compared: addresses differ between processes
    int kind, type, operation, root;
    uint64_t count;
};

struct room_channel {
    _Atomic uint64_t produced, consumed; // pieces
    unsigned char data[ROOM_CHANNEL_BYTES];
};

struct room {
    _Atomic int joined, left;
    _Atomic uint64_t arrived; // at barriers, since ever
    _Atomic int failed;       // ncclResult_t of the first failure
    _Atomic int failed_rank;  // its rank + 1
    char text[ROOM_TEXT];
    int devices[ROOM_RANKS];
    struct room_call calls[ROOM_RANKS];
    struct room_channel channels[ROOM_RANKS][ROOM_RANKS]; // [from][to]
    unsigned char slots[ROOM_RANKS][ROOM_SLOT_BYTES];
};

// NULL when the memory cannot be had. Everybody maps it; the last to join removes its name.
struct room *room_enter(const char *name);
void room_leave(struct room *r);
