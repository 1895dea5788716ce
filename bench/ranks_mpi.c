// SPDX-License-Identifier: Apache-2.0
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/ranks.h"
#include "bench/ranks_private.h"

// Errors of MPI end the job (MPI_ERRORS_ARE_FATAL, its default), so the status is not looked at.

static void broadcast(void *data, size_t bytes, int root) {
    MPI_Bcast(data, (int)bytes, MPI_BYTE, root, MPI_COMM_WORLD);
}

static void gather(const void *mine, size_t bytes, void *all) {
    MPI_Allgather(mine, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE, MPI_COMM_WORLD);
}

static void largest(double *values, size_t n) {
    MPI_Allreduce(MPI_IN_PLACE, values, (int)n, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
}

static void barrier(void) {
    MPI_Barrier(MPI_COMM_WORLD);
}

// MPI_Abort leaves nobody who could still say it.
static void end(int status, const char *why) {
    fprintf(stderr, "shardbench: %s\n", why);
    MPI_Abort(MPI_COMM_WORLD, status);
    _exit(status);
}

// Which distinct host each rank is on, from the gathered host names.
static void place(struct ranks *r) {
    enum { NAME = 256 };
    char mine[NAME] = {0};
    char *all = calloc((size_t)r->count, NAME);
    int *node_of = calloc((size_t)r->count, sizeof(*node_of));
    if (all == NULL || node_of == NULL)
        abort();
    gethostname(mine, NAME - 1);
    const char *forced = getenv("SHARDBENCH_NODE"); // network namespaces share a host name
    if (forced != NULL)
        snprintf(mine, NAME, "%s", forced);
    gather(mine, NAME, all);
    for (int i = 0; i < r->count; i++) {
        node_of[i] = -1;
        for (int j = 0; j < i && node_of[i] < 0; j++)
            if (strcmp(all + (size_t)i * NAME, all + (size_t)j * NAME) == 0)
                node_of[i] = node_of[j];
        if (node_of[i] < 0)
            node_of[i] = r->nodes++;
    }
    r->node = node_of[r->rank];
    for (int i = 0; i < r->count; i++) {
        if (node_of[i] != r->node)
            continue;
        r->local_rank += i < r->rank;
        r->local_count++;
    }
    free(all);
    free(node_of);
}

static int processors(void) {
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (int)online : 1;
}

bool ranks_mpi_open(bool many_threads, const struct ranks **out, struct err *e) {
    int got, wanted = many_threads ? MPI_THREAD_MULTIPLE : MPI_THREAD_FUNNELED;
    if (MPI_Init_thread(NULL, NULL, wanted, &got) != MPI_SUCCESS)
        return err_set(e, ERR_RESOURCE, "MPI could not start");
    if (got < wanted)
        return err_set(e, ERR_RESOURCE, "this MPI does not serve several threads at once");
    int count;
    MPI_Comm_size(MPI_COMM_WORLD, &count);
    if (count == 1 && ranks_promised() > 1) {
        MPI_Finalize();
        return err_set(
            e, ERR_RESOURCE,
            "the launcher started %d processes, but this MPI sees one: they do not speak "
            "the same protocol; try srun --mpi=pmix or this MPI's own mpirun",
            ranks_promised());
    }
    struct ranks *r = calloc(1, sizeof(*r));
    char *library = calloc(1, MPI_MAX_LIBRARY_VERSION_STRING);
    if (r == NULL || library == NULL)
        abort();
    MPI_Comm_rank(MPI_COMM_WORLD, &r->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &r->count);
    int length;
    MPI_Get_library_version(library, &length);
    library[strcspn(library, ",\n")] = '\0'; // the rest is where it was built
    r->library = library;
    r->broadcast = broadcast;
    r->gather = gather;
    r->largest = largest;
    r->barrier = barrier;
    r->abort = end;
    place(r);
    double crowded = r->local_count > processors();
    largest(&crowded, 1);
    r->oversubscribed = crowded > 0;
    *out = r;
    return true;
}

void ranks_mpi_close(const struct ranks *r) {
    MPI_Finalize();
    free((char *)r->library);
    free((struct ranks *)r);
}
