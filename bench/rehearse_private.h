// SPDX-License-Identifier: Apache-2.0
// Between the files that rehearse.
#pragma once

#include "base/units.h"
#include "bench/io.h"
#include "bench/rehearse.h"
#include "bench/scratch.h"
#include "kernels/adam.h"

#include <stddef.h>

#define REHEARSE_CORES_MAX 64
#define REHEARSE_STORAGE_BYTES (512 * UNITS_MIB)

// What one stream's thread works with.
struct rehearse_lane {
    char *from, *to; // as large as its largest task needs
    size_t bytes;
    void *collectives; // of rehearse_collectives_open
    struct adam_arrays adam;
    float *adam_base;
    size_t adam_elements;
    const struct io_engine *io; // of a storage stream
    void *io_state;
    char *blocks;
    uint64_t block; // of the file, next to touch
};

struct rehearse_work {
    double units_per_s; // calibrated: turns of the work loop on one undisturbed core
    double shrink;
    int cores; // of this rank
    struct scratch file;
};

// Whether a stream has tasks of that kind; stream REHEARSE_ANY: some stream.
#define REHEARSE_ANY UINT32_MAX
bool rehearse_has(const struct graph *g, uint32_t stream, enum graph_kind kind);
// The file of the storage tasks; none is opened for a graph without them.
bool rehearse_open_file(const struct rehearse_setup *s, struct scratch *file, struct err *e);

double rehearse_calibrate(void);
void rehearse_spin(double units);

// Arrays for the Adam tasks of one stream.
bool rehearse_adam_open(struct rehearse_lane *lane, struct err *e);
void rehearse_adam_close(struct rehearse_lane *lane);

// A queue on the scratch file, for the storage tasks of one stream.
bool rehearse_storage_open(struct rehearse_lane *lane, const struct scratch *file, struct err *e);
void rehearse_storage_close(struct rehearse_lane *lane);

// Everything but collectives. False: a device failed.
bool rehearse_do(const struct graph_task *t, struct rehearse_lane *lane,
                 const struct rehearse_work *w, struct err *e);

// Collectives by the explicit ring; every lane has communicators of its own. In a build without MPI
// only groups of one rank exist and nothing is moved.
bool rehearse_collectives_open(const struct graph *g, const struct ranks *r, void **lane,
                               struct err *e);
void rehearse_collectives_close(void *lane, const struct graph *g);
void rehearse_collective(const struct graph_task *t, struct rehearse_lane *lane, double shrink);
// Room that a collective of `bytes` needs in `from` and in `to`.
size_t rehearse_collective_bytes(double bytes, uint64_t ranks);
