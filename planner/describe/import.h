// SPDX-License-Identifier: Apache-2.0
// Readers of other tools' output: foreign text becomes measurements or a topology, each with its
// provenance. What cannot be read is reported by line; nothing is guessed silently.
#pragma once

#include "base/arena.h"
#include "base/err.h"
#include "describe/measure.h"
#include "describe/topology.h"
#include "describe/warnings.h"

#include <stdbool.h>
#include <stddef.h>

enum import_kind {
    IMPORT_NCCL_TESTS,    // text or -J JSON
    IMPORT_TOPO_MATRIX,   // nvidia-smi topo -m
    IMPORT_TOPO_P2P,      // nvidia-smi topo -p2p r|w|n|a|p
    IMPORT_NCCL_TOPOLOGY, // NCCL_TOPO_DUMP_FILE XML
    IMPORT_NVBANDWIDTH,   // nvbandwidth --json
    IMPORT_FIO,           // fio --output-format=json
    IMPORT_P2P_BANDWIDTH, // CUDA sample p2pBandwidthLatencyTest
    IMPORT_GDSIO,         // gdsio result lines
    IMPORT_KIND_COUNT
};
extern const char *const import_kind_names[IMPORT_KIND_COUNT]; // "nccl-tests", "topo -m", ...

// The text of one file, and where to put what is worth knowing.
struct import_source {
    const char *name, *text; // text is NUL-terminated
    size_t bytes;
    const char *op; // the collective, given by the user; NULL = infer
    struct arena *arena;
    struct warnings *warnings;
};

// Reads the file into s (name, text, bytes). At most 64 MiB.
bool import_open(const char *path, struct arena *a, struct import_source *s, struct err *e);
// A log with NUL bytes or of another encoding is still text: they become spaces and question marks.
void import_clean(char *text, size_t bytes);
// By content. ERR_INPUT names the kinds that are known.
bool import_sniff(const struct import_source *s, enum import_kind *out, struct err *e);

// Kinds that measure (nccl-tests, nvbandwidth, fio, p2pBandwidthLatencyTest, gdsio). ERR_INPUT when
// no row could be read.
bool import_measurement(const struct import_source *s, enum import_kind kind,
                        struct measurement *out, struct err *e);
// Kinds that describe (topo -m, topo -p2p, NCCL XML).
bool import_topology(const struct import_source *s, enum import_kind kind, struct topology *out,
                     struct err *e);

// One kind each.
bool import_nccl_tests(const struct import_source *s, struct measurement *out, struct err *e);
bool import_nvbandwidth(const struct import_source *s, struct measurement *out, struct err *e);
bool import_fio(const struct import_source *s, struct measurement *out, struct err *e);
bool import_p2p_bandwidth(const struct import_source *s, struct measurement *out, struct err *e);
bool import_gdsio(const struct import_source *s, struct measurement *out, struct err *e);
bool import_topo_matrix(const struct import_source *s, struct topology *out, struct err *e);
bool import_topo_p2p(const struct import_source *s, struct topology *out, struct err *e);
bool import_nccl_topology(const struct import_source *s, struct topology *out, struct err *e);
