#include "show.h"
#include <linux/futex.h>
#include <mqueue.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdint.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <threads.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static int ready;
static sem_t semaphore;
static pthread_barrier_t barrier;
static uint32_t word;

static void *signal_later(void *unused) {
    usleep(20000);
    pthread_mutex_lock(&lock);
    ready = 1;
    pthread_cond_broadcast(&condition);
    pthread_mutex_unlock(&lock);
    usleep(20000);
    sem_post(&semaphore);
    usleep(20000);
    __atomic_store_n(&word, 1, __ATOMIC_SEQ_CST);
    syscall(SYS_futex, &word, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, 1, NULL, NULL, 0);
    pthread_barrier_wait(&barrier);
    return unused;
}

static int c11(void *unused) {
    (void)unused;
    return 5;
}

static void nothing(int s) { (void)s; }

int main(void) {
    struct timespec past = {1, 0}, bad = {1, 2000000000}, none = {0, 0};
    pthread_t t;
    sem_init(&semaphore, 0, 0);
    pthread_barrier_init(&barrier, NULL, 2);

    pthread_mutex_lock(&lock);
    SHOW(pthread_cond_timedwait(&condition, &lock, &past));
    SHOW(pthread_cond_clockwait(&condition, &lock, CLOCK_MONOTONIC, &past));
    SHOW(pthread_cond_timedwait(&condition, &lock, &bad));
    pthread_create(&t, NULL, signal_later, NULL);
    while (!ready) SHOW(pthread_cond_wait(&condition, &lock));
    pthread_mutex_unlock(&lock);
    SHOW(sem_wait(&semaphore));
    while (!__atomic_load_n(&word, __ATOMIC_SEQ_CST))
        syscall(SYS_futex, &word, FUTEX_WAIT | FUTEX_PRIVATE_FLAG, 0, NULL, NULL, 0);
    SHOW(word);
    SHOW_TRUE(pthread_barrier_wait(&barrier) == 0 || 1);
    SHOW(pthread_join(t, NULL));

    SHOW(sem_trywait(&semaphore));
    SHOW(sem_timedwait(&semaphore, &past));
    SHOW(sem_timedwait(&semaphore, &bad));
    SHOW(sem_clockwait(&semaphore, CLOCK_MONOTONIC, &past));
    SHOW(sem_post(&semaphore));
    SHOW(sem_timedwait(&semaphore, &bad));

    SHOW(syscall(SYS_futex, &word, FUTEX_WAIT, 0, NULL, NULL, 0));
    SHOW(syscall(SYS_futex, &word, FUTEX_WAIT, 1, &(struct timespec){0, 1000000}, NULL, 0));
    SHOW(syscall(SYS_futex, &word, FUTEX_WAKE, 1, NULL, NULL, 0));
    SHOW(syscall(SYS_futex, &word, 99, 1, NULL, NULL, 0));
    SHOW(syscall(SYS_getpid) == getpid());
    SHOW(syscall(100000));
    SHOW(syscall(SYS_pread64, -1, NULL, 1, 0));
    /* All six arguments arrive. */
    SHOW_TRUE(syscall(SYS_mmap, 0L, 4096L, 3L, 0x22L, -1L, 0L) > 0);

    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGRTMIN);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    int which = 0;
    SHOW(sigtimedwait(&set, NULL, &none));
    raise(SIGUSR1);
    SHOW(sigwait(&set, &which));
    SHOW(which);
    sigqueue(getpid(), SIGRTMIN, (union sigval){.sival_int = 42});
    siginfo_t info;
    SHOW(sigwaitinfo(&set, &info));
    SHOW(info.si_value.sival_int);
    signal(SIGUSR1, nothing);
    raise(SIGUSR1);
    sigset_t open;
    sigemptyset(&open);
    SHOW(sigsuspend(&open));
    signal(SIGALRM, nothing);
    /* Again and again: the first may come before the call. */
    ualarm(20000, 20000);
    SHOW(pause());
    ualarm(0, 0);

    int queue = msgget(IPC_PRIVATE, 0600 | IPC_CREAT);
    struct { long kind; char text[16]; } message = {3, "message"}, got;
    SHOW(msgrcv(queue, &got, 16, 0, IPC_NOWAIT));
    SHOW(msgsnd(queue, &message, 16, 0));
    SHOW(msgrcv(queue, &got, 16, 3, 0));
    printf("%s\n", got.text);
    msgctl(queue, IPC_RMID, NULL);
    SHOW(msgrcv(queue, &got, 16, 3, 0));

    int sems = semget(IPC_PRIVATE, 1, 0600 | IPC_CREAT);
    struct sembuf up = {0, 1, 0}, down = {0, -1, 0}, try = {0, -1, IPC_NOWAIT};
    SHOW(semop(sems, &try, 1));
    SHOW(semop(sems, &up, 1));
    SHOW(semop(sems, &down, 1));
    SHOW(semtimedop(sems, &down, 1, &(struct timespec){0, 10000000}));
    semctl(sems, 0, IPC_RMID);

    thrd_t c;
    int result;
    SHOW(thrd_create(&c, c11, NULL));
    SHOW(thrd_join(c, &result));
    SHOW(result);
    SHOW(thrd_sleep(&(struct timespec){0, 1000}, NULL));
    SHOW(nanosleep(&(struct timespec){0, -1}, NULL));
    SHOW(clock_nanosleep(CLOCK_MONOTONIC, 0, &(struct timespec){0, 1000}, NULL));
    SHOW(clock_nanosleep(77, 0, &(struct timespec){0, 1000}, NULL));
    SHOW(usleep(10));
    SHOW(sleep(0));
    ualarm(20000, 20000);
    SHOW(sleep(2));
    ualarm(0, 0);
    SHOW(sched_yield());
    SHOW(wait(NULL));
    return 0;
}
