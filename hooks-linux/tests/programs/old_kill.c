/* Linked like a program from before glibc 2.34, whose pthread_kill tells of threads that have ended. */
#include "show.h"
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>

#ifdef __x86_64__
__asm__(".symver old_kill, pthread_kill@GLIBC_2.2.5");
#else
__asm__(".symver old_kill, pthread_kill@GLIBC_2.17");
#endif
int old_kill(pthread_t, int);

static volatile int tid, ended;

static void on_signal(int s) { (void)s; }
static void *ends(void *unused) {
    tid = gettid();
    return unused;
}
static void *stays(void *unused) {
    while (!ended) usleep(1000);
    return unused;
}

int main(void) {
    signal(SIGUSR1, on_signal);
    pthread_t thread;
    pthread_create(&thread, NULL, ends, NULL);
    while (tid == 0 || syscall(SYS_tgkill, getpid(), tid, 0) == 0) usleep(1000);
    SHOW(old_kill(thread, SIGUSR1));
    SHOW(pthread_kill(thread, SIGUSR1));
    SHOW(pthread_join(thread, NULL));
    pthread_create(&thread, NULL, stays, NULL);
    SHOW(old_kill(thread, SIGUSR1));
    SHOW(pthread_kill(thread, SIGUSR1));
    ended = 1;
    SHOW(pthread_join(thread, NULL));
    return 0;
}
