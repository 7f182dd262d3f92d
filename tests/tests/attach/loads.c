// Threads that load libraries and unload them again all the time, until SIGTERM comes. Prints a line before and after.
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static volatile sig_atomic_t stop;
static void on_signal(int signal) { stop = signal; }

static void *loads(void *name) {
    while (!stop) {
        void *library = dlopen(name, RTLD_NOW);
        if (!library) {
            puts(dlerror());
            exit(1);
        }
        dlclose(library);
    }
    return NULL;
}

int main(void) {
    char *names[] = {"libsqlite3.so.0", "libexpat.so.1", "libz.so.1"};
    pthread_t threads[3];
    signal(SIGTERM, on_signal);
    for (int i = 0; i < 3; i++) pthread_create(&threads[i], NULL, loads, names[i]);
    puts("running");
    fflush(stdout);
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    puts("went on");
    return 0;
}
