// One thread waits, another ends the wait, as many times as the second argument says and in the way that
// the first one names. The second thread first sees the first one asleep, and lets 2 ms pass: so who ended each
// wait, and that it was longer than 1 ms, is known by construction.
//
// Prints "waiter TID" and "waker TID", and "ender TID" for each thread or child whose end was waited for.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void pause_us(long us) {
    struct timespec t = {us / 1000000, us % 1000000 * 1000};
    while (nanosleep(&t, &t) != 0 && errno == EINTR) {
    }
}

static void fail(const char *what) {
    perror(what);
    exit(1);
}

// Whether a thread of this process sleeps in the kernel.
static int is_asleep(int tid) {
    char path[64], text[256];
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", tid);
    int file = open(path, O_RDONLY);
    if (file < 0)
        return 0;
    ssize_t n = read(file, text, sizeof text - 1);
    close(file);
    text[n > 0 ? n : 0] = 0;
    char *name_end = strrchr(text, ')');
    return name_end != NULL && name_end[2] == 'S';
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;

static void mutex_hold(void) { pthread_mutex_lock(&mutex); }
static void mutex_wait(void) {
    pthread_mutex_lock(&mutex);
    pthread_mutex_unlock(&mutex);
}
static void mutex_end(void) { pthread_mutex_unlock(&mutex); }

static void write_hold(void) { pthread_rwlock_wrlock(&rwlock); }
static void read_hold(void) { pthread_rwlock_rdlock(&rwlock); }
static void write_wait(void) {
    pthread_rwlock_wrlock(&rwlock);
    pthread_rwlock_unlock(&rwlock);
}
static void read_wait(void) {
    pthread_rwlock_rdlock(&rwlock);
    pthread_rwlock_unlock(&rwlock);
}
static void rwlock_end(void) { pthread_rwlock_unlock(&rwlock); }

static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static sem_t semaphore;
static int flag, word;

static void nothing(void) {}

static void condition_wait(void) {
    pthread_mutex_lock(&mutex);
    while (!flag)
        pthread_cond_wait(&condition, &mutex);
    flag = 0;
    pthread_mutex_unlock(&mutex);
}
static void set_flag(void) {
    pthread_mutex_lock(&mutex);
    flag = 1;
    pthread_mutex_unlock(&mutex);
}
static void signal_end(void) {
    set_flag();
    pthread_cond_signal(&condition);
}
static void broadcast_end(void) {
    set_flag();
    pthread_cond_broadcast(&condition);
}

static void semaphore_wait(void) { sem_wait(&semaphore); }
static void semaphore_end(void) { sem_post(&semaphore); }

static void futex_hold(void) { __atomic_store_n(&word, 0, __ATOMIC_SEQ_CST); }
static void futex_wait(void) {
    while (__atomic_load_n(&word, __ATOMIC_SEQ_CST) == 0)
        syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
}
static void futex_end(void) {
    __atomic_store_n(&word, 1, __ATOMIC_SEQ_CST);
    syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

// The thread and the child end when they are told to.
static sem_t may_end;
static pthread_t thread_to_end;
static pid_t child_to_end;
static int to_child[2];
static atomic_int ender_tid;

static void *ends_with_its_thread(void *unused) {
    ender_tid = gettid();
    sem_wait(&may_end);
    return unused;
}
static void join_hold(void) {
    ender_tid = 0;
    pthread_create(&thread_to_end, NULL, ends_with_its_thread, NULL);
    while (ender_tid == 0)
        pause_us(100);
    printf("ender %d\n", ender_tid);
}
static void join_wait(void) { pthread_join(thread_to_end, NULL); }
static void join_end(void) { sem_post(&may_end); }

__attribute__((noinline)) static void child_ends_it(void) { _exit(0); }
static void child_hold(void) {
    char byte;
    if (pipe(to_child) != 0)
        fail("pipe");
    fflush(stdout);
    child_to_end = fork();
    if (child_to_end == 0) {
        close(to_child[1]);
        if (read(to_child[0], &byte, 1) < 0)
            _exit(1);
        child_ends_it();
    }
    close(to_child[0]);
    printf("ender %d\n", child_to_end);
}
static void child_wait(void) {
    if (waitpid(child_to_end, NULL, 0) != child_to_end)
        fail("waitpid");
}
static void any_child_wait(void) {
    if (wait(NULL) != child_to_end)
        fail("wait");
}
static void child_end(void) { close(to_child[1]); }

struct kind {
    const char *name;
    void (*hold)(void); // the waker, before the wait
    void (*wait)(void); // the waiter
    void (*end)(void);  // the waker
};
static const struct kind kinds[] = {
    {"mutex", mutex_hold, mutex_wait, mutex_end},
    {"write-behind-writer", write_hold, write_wait, rwlock_end},
    {"write-behind-reader", read_hold, write_wait, rwlock_end},
    {"read-behind-writer", write_hold, read_wait, rwlock_end},
    {"signal", nothing, condition_wait, signal_end},
    {"broadcast", nothing, condition_wait, broadcast_end},
    {"semaphore", nothing, semaphore_wait, semaphore_end},
    {"futex", futex_hold, futex_wait, futex_end},
    {"join", join_hold, join_wait, join_end},
    {"child", child_hold, child_wait, child_end},
    {"any-child", child_hold, any_child_wait, child_end},
};

static const struct kind *kind;
static int rounds;
static atomic_int round_begun, round_done, is_entering, waiter_tid;

__attribute__((noinline)) static void waits_for_it(void) {
    kind->wait();
    asm volatile("");
}

__attribute__((noinline)) static void ends_it(void) {
    kind->end();
    asm volatile("");
}

static void *waiter(void *unused) {
    pthread_setname_np(pthread_self(), "waiter");
    waiter_tid = gettid();
    for (int round = 1; round <= rounds; round++) {
        while (round_begun < round)
            pause_us(200);
        is_entering = 1;
        waits_for_it();
        is_entering = 0;
        round_done = round;
    }
    return unused;
}

static void *waker(void *unused) {
    pthread_setname_np(pthread_self(), "waker");
    printf("waker %d\n", gettid());
    for (int round = 1; round <= rounds; round++) {
        kind->hold();
        round_begun = round;
        while (!is_entering || !is_asleep(waiter_tid))
            pause_us(200);
        pause_us(2000);
        ends_it();
        while (round_done < round)
            pause_us(200);
    }
    return unused;
}

// Lets go of other things all the time: none of the waits is its doing.
static atomic_int is_over;
static void *bystander(void *unused) {
    pthread_mutex_t other = PTHREAD_MUTEX_INITIALIZER;
    pthread_rwlock_t other_rwlock = PTHREAD_RWLOCK_INITIALIZER;
    pthread_cond_t other_condition = PTHREAD_COND_INITIALIZER;
    sem_t other_semaphore;
    int other_word = 0;
    sem_init(&other_semaphore, 0, 0);
    pthread_setname_np(pthread_self(), "bystander");
    while (!is_over) {
        pthread_mutex_lock(&other);
        pthread_mutex_unlock(&other);
        pthread_rwlock_wrlock(&other_rwlock);
        pthread_rwlock_unlock(&other_rwlock);
        pthread_cond_broadcast(&other_condition);
        sem_post(&other_semaphore);
        sem_wait(&other_semaphore);
        syscall(SYS_futex, &other_word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
        pause_us(100);
    }
    return unused;
}

int main(int count, char **arguments) {
    if (count != 3)
        return 2;
    rounds = atoi(arguments[2]);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(kinds[i].name, arguments[1]) == 0)
            kind = &kinds[i];
    if (kind == NULL)
        return 2;
    sem_init(&semaphore, 0, 0);
    sem_init(&may_end, 0, 0);
    pthread_t threads[3];
    pthread_create(&threads[0], NULL, waiter, NULL);
    while (waiter_tid == 0)
        pause_us(100);
    printf("waiter %d\n", waiter_tid);
    pthread_create(&threads[1], NULL, waker, NULL);
    pthread_create(&threads[2], NULL, bystander, NULL);
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
    is_over = 1;
    pthread_join(threads[2], NULL);
    return 0;
}
