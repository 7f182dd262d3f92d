/* Before main and after it. */
#include "show.h"
#include <pthread.h>

static __thread char *tls = "tls";

__attribute__((constructor(101))) static void first(void) {
    free(malloc(10));
    printf("constructor\n");
}
__attribute__((destructor(101))) static void last(void) {
    void *p = malloc(10);
    free(p);
    printf("destructor\n");
    fflush(stdout);
}
static void *sleeper(void *unused) {
    for (;;) free(malloc(1 << 12));
    return unused;
}
static void at_exit(void) {
    pthread_t t;
    pthread_create(&t, NULL, sleeper, NULL);
    usleep(2000);
    printf("at exit %s\n", tls);
}

int main(void) {
    atexit(at_exit);
    pthread_t t;
    pthread_create(&t, NULL, sleeper, NULL);
    usleep(1000);
    printf("main\n");
    return 9;
}
