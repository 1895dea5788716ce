// SPDX-License-Identifier: Apache-2.0
#include "bench/team.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

struct member {
    struct team *team;
    pthread_t thread;
    size_t index;
};

struct team {
    size_t size;
    struct member *members;
    cpu_set_t before; // the caller's processors
    bool pinned;
    pthread_mutex_t lock;
    pthread_cond_t start, done;
    atomic_size_t turn;    // grows by one for every team_run
    atomic_size_t running; // members but 0 that have not finished this turn
    team_work *work;
    void *context;
    bool over;
};

// About as long as a wake-up takes; longer would steal the processor from whoever works.
#define SPINS 2000

static void pin(const cpu_set_t *allowed, size_t index) {
    size_t seen = 0;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, allowed) || seen++ != index)
            continue;
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        sched_setaffinity(0, sizeof(one), &one);
        return;
    }
}

static bool wait_for_turn(struct team *t, size_t seen) {
    for (int i = 0; i < SPINS && atomic_load(&t->turn) == seen; i++)
        ;
    pthread_mutex_lock(&t->lock);
    while (atomic_load(&t->turn) == seen)
        pthread_cond_wait(&t->start, &t->lock);
    bool over = t->over;
    pthread_mutex_unlock(&t->lock);
    return !over;
}

static void *serve(void *context) {
    struct member *m = context;
    struct team *t = m->team;
    if (t->pinned)
        pin(&t->before, m->index);
    for (size_t seen = 0; wait_for_turn(t, seen); seen++) {
        t->work(t->context, m->index, t->size);
        if (atomic_fetch_sub(&t->running, 1) == 1) {
            pthread_mutex_lock(&t->lock);
            pthread_cond_signal(&t->done);
            pthread_mutex_unlock(&t->lock);
        }
    }
    return NULL;
}

struct team *team_create(size_t threads) {
    struct team *t = calloc(1, sizeof(*t));
    if (t == NULL)
        abort();
    sched_getaffinity(0, sizeof(t->before), &t->before);
    size_t processors = (size_t)CPU_COUNT(&t->before);
    t->size = threads ? threads : processors;
    t->pinned = t->size <= processors;
    t->members = calloc(t->size, sizeof(*t->members));
    if (t->members == NULL)
        abort();
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->start, NULL);
    pthread_cond_init(&t->done, NULL);
    for (size_t i = 1; i < t->size; i++) {
        t->members[i] = (struct member){.team = t, .index = i};
        if (pthread_create(&t->members[i].thread, NULL, serve, &t->members[i]) != 0)
            abort();
    }
    if (t->pinned)
        pin(&t->before, 0);
    return t;
}

static void begin_turn(struct team *t, bool over) {
    pthread_mutex_lock(&t->lock);
    t->over = over;
    atomic_store(&t->running, t->size - 1);
    atomic_fetch_add(&t->turn, 1);
    pthread_cond_broadcast(&t->start);
    pthread_mutex_unlock(&t->lock);
}

void team_destroy(struct team *t) {
    if (t == NULL)
        return;
    begin_turn(t, true);
    for (size_t i = 1; i < t->size; i++)
        pthread_join(t->members[i].thread, NULL);
    if (t->pinned)
        sched_setaffinity(0, sizeof(t->before), &t->before);
    pthread_cond_destroy(&t->start);
    pthread_cond_destroy(&t->done);
    pthread_mutex_destroy(&t->lock);
    free(t->members);
    free(t);
}

size_t team_size(const struct team *t) {
    return t->size;
}

void team_run(struct team *t, team_work *work, void *context) {
    t->work = work;
    t->context = context;
    begin_turn(t, false);
    work(context, 0, t->size);
    for (int i = 0; i < SPINS && atomic_load(&t->running) > 0; i++)
        ;
    pthread_mutex_lock(&t->lock);
    while (atomic_load(&t->running) > 0)
        pthread_cond_wait(&t->done, &t->lock);
    pthread_mutex_unlock(&t->lock);
}

struct team_part team_slice(size_t total, size_t grain, size_t member, size_t size) {
    size_t grains = (total + grain - 1) / grain;
    size_t begin = grains * member / size * grain, end = grains * (member + 1) / size * grain;
    struct team_part p = {.first = begin < total ? begin : total};
    p.count = (end < total ? end : total) - p.first;
    return p;
}
