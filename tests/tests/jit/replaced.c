// A run-time compiler: two functions, one after the other, at the same address of memory. Half of a function's time is
// its own, half that of what it calls. Its map lies where others leave theirs, or at the path that the third argument
// says. With "remove" in its place the map has no name any more once the first function has run, and is written on.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define CALL_LOOPS 2000000L

static double cpu_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}

__attribute__((noinline, optimize("no-omit-frame-pointer"))) void called(long loops) {
    for (volatile long i = 0; i < loops / 2; i++)
        ;
}

// push %rbp; mov %rsp, %rbp; push %rdi; push %rdi; mov %rdi, %rax; 1: ...; jnz 1b; call *%rsi; leave; ret
static const unsigned char decrement[] = "\x55\x48\x89\xe5\x57\x57\x48\x89\xf8\x48\xff\xc8\x75\xfb\xff\xd6\xc9\xc3";
static const unsigned char subtract[] = "\x55\x48\x89\xe5\x57\x57\x48\x89\xf8\x48\x83\xe8\x01\x75\xfa\xff\xd6\xc9\xc3";

static void play(FILE *map, unsigned char *place, const unsigned char *code, size_t size, const char *name, double seconds) {
    memcpy(place, code, size);
    fprintf(map, "%lx %zx %s\n", (long)place, size, name);
    fflush(map);
    void (*function)(long, void (*)(long)) = (void *)place;
    double end = cpu_seconds() + seconds;
    while (cpu_seconds() < end)
        function(CALL_LOOPS, called);
}

int main(int argc, char **argv) {
    double seconds = argc > 1 ? atof(argv[1]) : 0.2;
    int rounds = argc > 2 ? atoi(argv[2]) : 1;
    char path[64];
    snprintf(path, sizeof path, "/tmp/perf-%d.map", getpid());
    int removes = argc > 3 && strcmp(argv[3], "remove") == 0;
    FILE *map = fopen(argc > 3 && !removes ? argv[3] : path, "w");
    unsigned char *place = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (!map || place == MAP_FAILED)
        return 1;
    printf("%d\n", getpid());
    fflush(stdout);
    for (int i = 0; i < rounds; i++) {
        play(map, place, decrement, sizeof decrement - 1, "compiled first", seconds);
        if (removes)
            unlink(path);
        play(map, place, subtract, sizeof subtract - 1, "compiled second", seconds);
    }
    fclose(map);
    return 0;
}
