/* Preloaded before libgradwire_pmpi: holds PMPI_Comm_create_keyval until all threads of threads.c have called
 * MPI_Allreduce and had ample time to call it too, or have. Says at the end how often it was called. */
#define _GNU_SOURCE
#include <mpi.h>

#include <dlfcn.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum { THREADS = 4, YIELDS = 200000 };

static atomic_int sums, keys;

/* A function pointer has no conversion from an object pointer in C. */
static void next(const char *name, void *function)
{
    void *found = dlsym(RTLD_NEXT, name);
    memcpy(function, &found, sizeof found);
}

int MPI_Allreduce(const void *send, void *receive, int count, MPI_Datatype type, MPI_Op op,
                  MPI_Comm comm)
{
    int (*real)(const void *, void *, int, MPI_Datatype, MPI_Op, MPI_Comm);
    next("MPI_Allreduce", &real);
    atomic_fetch_add(&sums, 1);
    return real(send, receive, count, type, op, comm);
}

int PMPI_Comm_create_keyval(MPI_Comm_copy_attr_function *copy, MPI_Comm_delete_attr_function *drop,
                            int *key, void *extra)
{
    int (*real)(MPI_Comm_copy_attr_function *, MPI_Comm_delete_attr_function *, int *, void *);
    next("PMPI_Comm_create_keyval", &real);
    atomic_fetch_add(&keys, 1);
    while (atomic_load(&sums) < THREADS) {
        (void)sched_yield();
    }
    for (int i = 0; i < YIELDS && atomic_load(&keys) < THREADS; i++) {
        (void)sched_yield();
    }
    return real(copy, drop, key, extra);
}

__attribute__((destructor)) static void say(void)
{
    if (atomic_load(&sums) > 0) {
        (void)printf("keys made: %d\n", atomic_load(&keys));
    }
}
