// SPDX-License-Identifier: Apache-2.0
// The one place that knows which backends this build has.
#include <string.h>

#include "bench/backend.h"
#include "bench/backend_adam.h"
#include "bench/backend_host.h"
#include "bench/backend_null.h"
#include "bench/backend_nvme.h"
#include "bench/bench_features.h"

#if BENCH_HAVE_CUDA
#include "bench/backend_cuda.h"
#include "bench/backend_cufile.h"
#endif
#if BENCH_HAVE_GEMM
#include "bench/backend_gemm.h"
#endif
#if BENCH_HAVE_NCCL
#include "bench/backend_nccl.h"
#endif
#if BENCH_HAVE_MPI
#include "bench/backend_mpi.h"
#endif

const struct backend *const backend_registry[] = {
    &backend_null, &backend_host,   &backend_adam, &backend_nvme,
#if BENCH_HAVE_CUDA
    &backend_cuda, &backend_cufile,
#endif
#if BENCH_HAVE_MPI
    &backend_mpi,
#endif
#if BENCH_HAVE_GEMM
    &backend_gemm,
#endif
#if BENCH_HAVE_NCCL
    &backend_nccl,
#endif
    NULL,
};

const struct backend *backend_find(const char *name) {
    for (size_t i = 0; backend_registry[i] != NULL; i++)
        if (strcmp(backend_registry[i]->name, name) == 0)
            return backend_registry[i];
    return NULL;
}
