// What programs need that stand in for an app: a clock and a sleep that pass no hook, and as much of JNI as the
// natives of libstackbeat_app.so use.
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>

// A system call that passes no hook, not even that of syscall().
static inline long quietly(long number, long a = 0, long b = 0, long c = 0, long d = 0)
{
    long result;
#if defined(__x86_64__)
    register long fourth __asm__("r10") = d;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(fourth) : "rcx", "r11", "memory");
#else
    register long x8 __asm__("x8") = number, x0 __asm__("x0") = a, x1 __asm__("x1") = b, x2 __asm__("x2") = c,
                  x3 __asm__("x3") = d;
    __asm__ volatile("svc #0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3) : "memory");
    result = x0;
#endif
    return result;
}

static inline int64_t clock_ns(clockid_t clock)
{
    timespec time;
    quietly(SYS_clock_gettime, clock, (long)&time);
    return time.tv_sec * 1000000000ll + time.tv_nsec;
}

static inline int64_t now() { return clock_ns(CLOCK_MONOTONIC); }

// CPU time of the calling thread.
static inline int64_t cpu() { return clock_ns(CLOCK_THREAD_CPUTIME_ID); }

static inline void rest(int milliseconds)
{
    timespec time = { 0, milliseconds * 1000000l };
    quietly(SYS_nanosleep, (long)&time);
}

// jni.h has the places of its functions.
typedef const void **Env;

struct App {
    const void *functions[240] = {};
    Env env = functions;
    void *library;

    static size_t length(Env *, const char *string) { return strlen(string); }
    static void region(Env *, const char *string, int start, int count, char *to) { memcpy(to, string + start, count); }
    static const char *text(Env *, const char *string) { return strdup(string); }
    static int no_machine(Env *, void **) { return -1; }
    static void *find(Env *, const char *name) { return (void *)name; }
    static int raise(Env *, void *, const char *why)
    {
        printf("thrown %s\n", why);
        exit(1);
    }

    // Loads the library.
    App(const char *path)
    {
        functions[6] = (void *)find;
        functions[14] = (void *)raise;
        functions[164] = functions[168] = (void *)length;
        functions[167] = (void *)text;
        functions[219] = (void *)no_machine;
        functions[221] = (void *)region;
        library = dlopen(path, RTLD_NOW);
        if (!library) {
            printf("%s\n", dlerror());
            exit(1);
        }
    }

    template <class Function> Function native(const char *name) { return (Function)dlsym(library, name); }

    // Begins a recording in the folder. Gives the trace's path.
    const char *start(const char *folder, bool in_memory = false)
    {
        auto start = native<const char *(*)(Env *, void *, const char *, char, char)>("Java_dev_stackbeat_Native_start");
        return start(&env, nullptr, folder, 0, in_memory);
    }

    const char *doctor()
    {
        return native<const char *(*)(Env *, void *)>("Java_dev_stackbeat_Native_doctor")(&env, nullptr);
    }

    // Completes what killed runs have left in the folder, and says so.
    const char *save(const char *folder)
    {
        auto save = native<const char *(*)(Env *, void *, const char *)>("Java_dev_stackbeat_Native_save");
        return save(&env, nullptr, folder);
    }

    void stop() { native<const char *(*)(Env *, void *)>("Java_dev_stackbeat_Native_stop")(&env, nullptr); }
};
