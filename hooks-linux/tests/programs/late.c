/* Brings the agent in by itself, as an attaching collector would, and loads a library while threads allocate.

     late AGENT SESSION TIMES BLOCKS   */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static atomic_int stop;

static long churn(long blocks) {
    long sum = 0;
    for (long i = 0; i < blocks; i++) {
        char *block = malloc(i % 500 + 1);
        block[0] = (char)i;
        block = realloc(block, i % 300 + 2);
        sum += block[0];
        free(block);
    }
    return sum;
}

static void *churns(void *unused) {
    while (!stop) churn(10);
    return unused;
}

static void use_library(void) {
    void *library = dlopen("libm.so.6", RTLD_NOW);
    double (*cosine)(double) = library ? (double (*)(double))dlsym(library, "cos") : NULL;
    if (!cosine || cosine(0) != 1) abort();
    dlclose(library);
}

int main(int count, char **arguments) {
    if (count < 5) return 2;
    void *agent = dlopen(arguments[1], RTLD_NOW);
    if (!agent) return puts(dlerror()), 2;
    long (*attach)(const char *, size_t) = (long (*)(const char *, size_t))dlsym(agent, "stackbeat_attach");
    long (*detach)(void) = (long (*)(void))dlsym(agent, "stackbeat_detach");
    pthread_t threads[2];
    int times = atoi(arguments[3]);
    for (int i = 0; i < 2 && times > 1; i++) pthread_create(&threads[i], NULL, churns, NULL);
    for (int i = 0; i < times; i++) {
        if (attach(arguments[2], 0) <= 0) return puts("not attached"), 1;
        long sum = churn(100);
        use_library();
        sum += churn(atol(arguments[4]));
        use_library();
        if (i == 0) printf("%ld\n", sum);
        if (detach() <= 0) return puts("not detached"), 1;
    }
    stop = 1;
    for (int i = 0; i < 2 && times > 1; i++) pthread_join(threads[i], NULL);
    puts("left");
    return 0;
}
