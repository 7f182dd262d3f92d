/* Uses a known amount of what the recorder counts of a process: memory and page faults, threads, descriptors, allocations, CPU time,
   bytes read and written. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 3, DESCRIPTORS = 20, MEBIBYTES = 96, WRITES = 300, WRITE_BYTES = 1000 };

static void *waits(void *barrier)
{
    pthread_barrier_wait(barrier);
    return 0;
}

static void compute(double seconds)
{
    struct timespec now;
    double end = -1;
    do {
        for (int i = 0; i < 200; i++) {
            void *volatile memory = malloc(100 + i);
            free(memory);
        }
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
        double at = now.tv_sec + now.tv_nsec / 1e9;
        if (end < 0)
            end = at + seconds;
        else if (at >= end)
            return;
    } while (1);
}

int main(void)
{
    pthread_barrier_t barrier;
    pthread_t threads[THREADS];
    static char bytes[WRITE_BYTES];
    pthread_barrier_init(&barrier, 0, THREADS + 1);
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], 0, waits, &barrier);
    int null = open("/dev/null", O_WRONLY);
    for (int i = 1; i < DESCRIPTORS; i++)
        dup(null);
    compute(0.8);
    char *memory = mmap(0, (size_t)MEBIBYTES << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    madvise(memory, (size_t)MEBIBYTES << 20, MADV_NOHUGEPAGE);
    memset(memory, 1, (size_t)MEBIBYTES << 20);
    for (int i = 0; i < WRITES; i++)
        if (write(null, bytes, sizeof bytes) != sizeof bytes)
            return 2;
    compute(0.8);
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], 0);
    return 0;
}
