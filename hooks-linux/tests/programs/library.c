/* argv[1]: a library that itself opens another one by its RUNPATH. */
#include "show.h"
#include <dlfcn.h>
#include <pthread.h>

static volatile int stop;
static void *allocate(void *unused) {
    while (!stop) free(malloc(100));
    return unused;
}

int main(int argc, char **argv) {
    (void)argc;
    pthread_t t;
    pthread_create(&t, NULL, allocate, NULL);
    for (int i = 0; i < 50; i++) {
        void *outer = dlopen(argv[1], RTLD_NOW);
        if (!outer) { printf("%s\n", dlerror()); return 1; }
        int (*open_inner)(void) = (int (*)(void))dlsym(outer, "open_inner");
        int got = open_inner();
        if (i == 0) SHOW(got);
        if (got != 17 || dlclose(outer)) { printf("round %d: %d\n", i, got); return 1; }
    }
    stop = 1;
    pthread_join(t, NULL);
    SHOW_TRUE(dlopen("libnonexistent.so", RTLD_NOW) == NULL);
    printf("%s\n", dlerror());
    void *m = dlmopen(LM_ID_NEWLM, "libm.so.6", RTLD_NOW);
    SHOW_TRUE(m);
    if (m) {
        double (*cosine)(double) = (double (*)(double))dlsym(m, "cos");
        SHOW((int)cosine(0));
    }
    SHOW_TRUE(dlsym(RTLD_DEFAULT, "malloc"));
    return 0;
}
