/* A malloc of the program's own, whose lock a thread takes and never lets go of: as if it were stopped in there. Then the program
 * works without malloc and ends. */
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static atomic_int lock, held;
static char memory[64 << 20];
static size_t used;
static volatile uint64_t sink;

void *malloc(size_t bytes) {
    while (atomic_exchange(&lock, 1)) usleep(100);
    size_t *block = (size_t *)(memory + used);
    used += (bytes + 31) & ~(size_t)15;
    *block = bytes;
    if (atomic_load(&held) == 1 && bytes == 4321) {
        atomic_store(&held, 2);
        for (;;) pause();
    }
    atomic_store(&lock, 0);
    return block + 2;
}
void free(void *block) { (void)block; }
void *calloc(size_t count, size_t bytes) { return memset(malloc(count * bytes), 0, count * bytes); }
void *realloc(void *old, size_t bytes) {
    void *block = malloc(bytes);
    size_t before = old ? ((size_t *)old)[-2] : 0;
    return memcpy(block, old ? old : block, before < bytes ? before : bytes);
}

static void *holds(void *argument) {
    atomic_store(&held, 1);
    return malloc(4321);
}

__attribute__((noinline)) void computes(int ms) {
    struct timespec begin, now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
    do {
        for (int i = 0; i < 20000; i++) sink += i;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    } while ((now.tv_sec - begin.tv_sec) * 1000 + (now.tv_nsec - begin.tv_nsec) / 1000000 < ms);
}

int main(void) {
    pthread_t thread;
    pthread_create(&thread, NULL, holds, NULL);
    while (atomic_load(&held) != 2) usleep(1000);
    /* Long enough for passes of the drain. */
    computes(2500);
    _exit(6);
}
