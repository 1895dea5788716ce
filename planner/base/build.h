// SPDX-License-Identifier: Apache-2.0
// What this program was built from, and where its files lie.
#pragma once

#include "base/arena.h"

const char *build_version(void); // "0.1.0"
const char *build_commit(void);  // git describe, or "unknown"
const char *build_type(void);    // Meson's build type: "debugoptimized"
const char *build_flags(void);   // compiler, version and optimisation level

// Folder of the catalog: the variable SHARDPLAN_CATALOG, else the source tree's models/ when the
// program runs from its build tree, else the installed one. Not checked for existence.
const char *build_catalog_dir(struct arena *a);

// Folder of the running program, or "." when it cannot be known.
const char *build_program_dir(struct arena *a);

const char *build_libexec_dir(void); // installed helper programs
