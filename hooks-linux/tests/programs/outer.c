#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
int open_inner(void) {
    void *inner = dlopen("libinner.so", RTLD_NOW);
    if (!inner) { printf("%s\n", dlerror()); return -1; }
    int (*value)(void) = (int (*)(void))dlsym(inner, "value");
    int got = value();
    dlclose(inner);
    return got;
}
