#include "show.h"
#include <malloc.h>
#include <stdint.h>
#include <sys/mman.h>

int main(void) {
    volatile size_t huge = SIZE_MAX / 2;
    SHOW_TRUE(malloc(0));
    SHOW_TRUE(malloc(100));
    SHOW_TRUE(malloc(huge));
    SHOW_TRUE(calloc(huge, 4));
    char *zero = calloc(1000, 3);
    long sum = 0;
    for (int i = 0; i < 3000; i++) sum += zero[i];
    SHOW(sum);
    void *p = realloc(NULL, 10);
    memcpy(p, "kept text", 10);
    p = realloc(p, 100000);
    printf("%s\n", (char *)p);
    void *volatile kept = p;
    SHOW_TRUE(realloc(kept, huge));
    SHOW_TRUE(realloc(kept, 0));
    SHOW_TRUE(reallocarray(NULL, huge, 3));
    p = NULL;
    SHOW(posix_memalign(&p, 3, 100));
    SHOW(posix_memalign(&p, 4096, 100));
    SHOW((uintptr_t)p % 4096);
    SHOW((uintptr_t)memalign(512, 10) % 512);
    SHOW((uintptr_t)aligned_alloc(256, 256) % 256);
    SHOW((uintptr_t)valloc(10) % 4096);
    SHOW((uintptr_t)pvalloc(10) % 4096);
    SHOW(malloc_usable_size(p) >= 100);
    SHOW((free(p), 0));
    SHOW((free(NULL), 0));
    char *copy = strdup("through libc");
    printf("%s\n", copy);
    free(copy);
    void *m = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    SHOW_TRUE(m != MAP_FAILED);
    SHOW(mprotect(m, 4096, PROT_READ));
    SHOW(madvise(m, 8192, MADV_WILLNEED));
    SHOW(madvise(m, 8192, 12345));
    SHOW(posix_madvise(m, 8192, POSIX_MADV_NORMAL));
    SHOW_TRUE(mremap(m, 8192, 16384, MREMAP_MAYMOVE) != MAP_FAILED);
    SHOW(munmap((void *)1, 1));
    SHOW_TRUE(mmap(NULL, 0, 0, MAP_PRIVATE, -1, 0) == MAP_FAILED);
    return 3;
}
