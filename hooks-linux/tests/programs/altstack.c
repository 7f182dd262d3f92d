/* A handler on an alternate stack of 8 KiB that uses most of it itself, and threads with the smallest
 * stacks: a capture there would overflow them. */
#include "show.h"
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>

static void handler(int s) {
    (void)s;
    for (int i = 0; i < 2000; i++) {
        free(malloc(100));
        if (i % 50 == 0) usleep(200);
    }
    char text[] = "in the handler\n";
    (void)!write(1, text, sizeof text - 1);
}

static void *run(void *unused) {
    for (int i = 0; i < 2000; i++) {
        free(malloc(100));
        if (i % 100 == 0) usleep(100);
    }
    return unused;
}

int main(void) {
    enum { SIZE = 8192 };
    char *memory = mmap(NULL, SIZE + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(memory, 4096, PROT_NONE);
    stack_t stack = {.ss_sp = memory + 4096, .ss_size = SIZE};
    SHOW(sigaltstack(&stack, NULL));
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
    sigaction(SIGUSR1, &action, NULL);
    sigaction(SIGURG, &action, NULL);
    SHOW(raise(SIGUSR1));
    SHOW(raise(SIGURG));

    pthread_attr_t smallest;
    pthread_attr_init(&smallest);
    SHOW(pthread_attr_setstacksize(&smallest, PTHREAD_STACK_MIN));
    pthread_t threads[20];
    for (int i = 0; i < 20; i++) SHOW(pthread_create(&threads[i], &smallest, run, NULL));
    for (int i = 0; i < 20; i++) SHOW(pthread_join(threads[i], NULL));
    return 0;
}
