/*
 * stackbeat.h: marks, scopes, counters, flows and asynchronous work of a program in its stackbeat trace.
 *
 * Header only, C99 and C++11. The program does not link to stackbeat: on first use the functions look for
 * the agent in the process (dlsym); when the program is not being recorded they do nothing. With
 * -DSTACKBEAT_NOOP they compile to nothing. Before glibc 2.34 link with -ldl.
 *
 *     stackbeat_mark("cache flushed");
 *     stackbeat_scope_begin("parse"); ... stackbeat_scope_end();
 *     stackbeat_counter("queue length", n);
 *     stackbeat_flow_begin("request", id);       the thread that hands over
 *     stackbeat_flow_end("request", id);         the thread that takes over
 *     stackbeat_async_begin("download", id); ... stackbeat_async_end("download", id);     in any thread
 *     stackbeat_capture();                       this thread's stack, now
 *
 * Scopes of a thread nest. Names are copied, at most 1024 bytes. All of it may be called from any thread, and
 * costs about 50 ns while recording (a capture: some microseconds, of which a thread may do 2000 a second).
 */
#ifndef STACKBEAT_H
#define STACKBEAT_H

#include <stdint.h>

#ifdef STACKBEAT_NOOP

#define stackbeat_is_active() 0
#define stackbeat_mark(name) ((void)sizeof(name))
#define stackbeat_mark_value(name, value) ((void)sizeof(name), (void)sizeof(value))
#define stackbeat_scope_begin(name) ((void)sizeof(name))
#define stackbeat_scope_end() ((void)0)
#define stackbeat_counter(name, value) ((void)sizeof(name), (void)sizeof(value))
#define stackbeat_flow_begin(name, id) ((void)sizeof(name), (void)sizeof(id))
#define stackbeat_flow_step(name, id) ((void)sizeof(name), (void)sizeof(id))
#define stackbeat_flow_end(name, id) ((void)sizeof(name), (void)sizeof(id))
#define stackbeat_async_begin(name, id) ((void)sizeof(name), (void)sizeof(id))
#define stackbeat_async_end(name, id) ((void)sizeof(name), (void)sizeof(id))
#define stackbeat_capture() ((void)0)
#define stackbeat_session_start(folder, output) ((void)sizeof(folder), (void)sizeof(output), -1)
#define stackbeat_session_stop() (-1)
#define STACKBEAT_SCOPE(name) ((void)sizeof(name))

#else

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

#ifdef RTLD_DEFAULT
#define STACKBEAT_EVERYWHERE_ RTLD_DEFAULT
#else
/* Hidden by strict C; glibc, musl and bionic define it so. */
#define STACKBEAT_EVERYWHERE_ ((void *)0)
#endif

/* The agent's functions. Kinds are those of stackbeat.v1.Event.Kind; 10 is a counter. */
typedef void (*stackbeat_event_function_)(uint32_t kind, const char *name, size_t length, int64_t value);
typedef void (*stackbeat_capture_function_)(void);

#if defined(__GNUC__)
#define STACKBEAT_UNUSED_ __attribute__((unused))
#define STACKBEAT_LOAD_(slot) __atomic_load_n(&(slot), __ATOMIC_ACQUIRE)
/* Keeps what is looked up, unless an agent that came meanwhile has filled it in. */
#define STACKBEAT_STORE_(slot, value)                                                              \
    do {                                                                                           \
        uintptr_t nobody_ = 0;                                                                     \
        (void)__atomic_compare_exchange_n(&(slot), &nobody_, value, 0, __ATOMIC_RELEASE, __ATOMIC_RELAXED); \
    } while (0)
#else
#define STACKBEAT_UNUSED_
#define STACKBEAT_LOAD_(slot) (slot)
#define STACKBEAT_STORE_(slot, value) ((slot) = (value))
#endif

/* Whoever attaches to the program finds these slots by their section. */
#if defined(__GNUC__) && defined(__ELF__)
#define STACKBEAT_SLOT_(function) __attribute__((section(#function))) static uintptr_t slot
#else
#define STACKBEAT_SLOT_(function) static uintptr_t slot
#endif

/* Looks a function up once. `*slot` is 0 before, 1 when there is none. */
static inline STACKBEAT_UNUSED_ uintptr_t stackbeat_find_(uintptr_t *slot, const char *symbol) {
    uintptr_t found = STACKBEAT_LOAD_(*slot);
    if (found == 0) {
        found = (uintptr_t)dlsym(STACKBEAT_EVERYWHERE_, symbol);
        if (found == 0) {
            found = 1;
        }
        STACKBEAT_STORE_(*slot, found);
    }
    return found == 1 ? 0 : found;
}

static inline STACKBEAT_UNUSED_ uintptr_t stackbeat_agent_event_(void) {
    STACKBEAT_SLOT_(stackbeat_v1_event);
    return stackbeat_find_(&slot, "stackbeat_v1_event");
}

static inline STACKBEAT_UNUSED_ void stackbeat_event_(uint32_t kind, const char *name, int64_t value) {
    uintptr_t found = stackbeat_agent_event_();
    if (found != 0) {
        ((stackbeat_event_function_)found)(kind, name, name ? strlen(name) : 0, value);
    }
}

/* Not 0: there is an agent in the program, which records it or has done so. */
static inline STACKBEAT_UNUSED_ int stackbeat_is_active(void) {
    return stackbeat_agent_event_() != 0;
}

/* Something happened now. */
static inline STACKBEAT_UNUSED_ void stackbeat_mark(const char *name) {
    stackbeat_event_(0, name, 0);
}

/* The same, with a number. */
static inline STACKBEAT_UNUSED_ void stackbeat_mark_value(const char *name, int64_t value) {
    stackbeat_event_(0, name, value);
}

/* A scope of this thread begins. */
static inline STACKBEAT_UNUSED_ void stackbeat_scope_begin(const char *name) {
    stackbeat_event_(1, name, 0);
}

/* The innermost scope of this thread ends. */
static inline STACKBEAT_UNUSED_ void stackbeat_scope_end(void) {
    stackbeat_event_(2, "", 0);
}

/* A counter of the process has this value from now on. */
static inline STACKBEAT_UNUSED_ void stackbeat_counter(const char *name, int64_t value) {
    stackbeat_event_(10, name, value);
}

/* Work that goes from thread to thread: its begin, each station, its end. `id` tells it from others. */
static inline STACKBEAT_UNUSED_ void stackbeat_flow_begin(const char *name, uint64_t id) {
    stackbeat_event_(7, name, (int64_t)id);
}

static inline STACKBEAT_UNUSED_ void stackbeat_flow_step(const char *name, uint64_t id) {
    stackbeat_event_(8, name, (int64_t)id);
}

static inline STACKBEAT_UNUSED_ void stackbeat_flow_end(const char *name, uint64_t id) {
    stackbeat_event_(9, name, (int64_t)id);
}

/* Work that is not one thread's: any thread of the process ends it, and other work overlaps. `id` tells it from
 * others of this name. */
static inline STACKBEAT_UNUSED_ void stackbeat_async_begin(const char *name, uint64_t id) {
    stackbeat_event_(11, name, (int64_t)id);
}

static inline STACKBEAT_UNUSED_ void stackbeat_async_end(const char *name, uint64_t id) {
    stackbeat_event_(12, name, (int64_t)id);
}

/* Captures this thread's stack now, whatever the interval. */
static inline STACKBEAT_UNUSED_ void stackbeat_capture(void) {
    STACKBEAT_SLOT_(stackbeat_v1_capture);
    uintptr_t found = stackbeat_find_(&slot, "stackbeat_v1_capture");
    if (found != 0) {
        ((stackbeat_capture_function_)found)();
    }
}

/* A session inside this program, without a recorder beside it. `folder` has libstackbeat.so and libstackbeat_session.so; `output`
 * is an absolute path that does not exist. 0: everything is recorded from here on, as by `stackbeat attach`. */
static inline STACKBEAT_UNUSED_ int stackbeat_session_start(const char *folder, const char *output) {
    char path[4096];
    size_t length = strlen(folder);
    void *agent;
    uintptr_t found;
    if (length + sizeof "/libstackbeat_session.so" > sizeof path) {
        return -1;
    }
    memcpy(path, folder, length);
    memcpy(path + length, "/libstackbeat.so", sizeof "/libstackbeat.so");
    agent = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    found = agent ? (uintptr_t)dlsym(agent, "stackbeat_v1_session_start") : 0;
    memcpy(path + length, "/libstackbeat_session.so", sizeof "/libstackbeat_session.so");
    return found ? ((int (*)(const char *, const char *))found)(path, output) : -1;
}

/* Ends it. The trace is complete when this returns, and the program runs on as before. 0: there was one. */
static inline STACKBEAT_UNUSED_ int stackbeat_session_stop(void) {
    uintptr_t found = (uintptr_t)dlsym(STACKBEAT_EVERYWHERE_, "stackbeat_v1_session_stop");
    return found ? ((int (*)(void))found)() : -1;
}

#define STACKBEAT_JOIN2_(a, b) a##b
#define STACKBEAT_JOIN_(a, b) STACKBEAT_JOIN2_(a, b)

#if defined(__cplusplus)

namespace stackbeat {
/* A scope that ends with the block, also by an exception. */
class Scope {
public:
    explicit Scope(const char *name) { stackbeat_scope_begin(name); }
    ~Scope() { stackbeat_scope_end(); }
    Scope(const Scope &) = delete;
    Scope &operator=(const Scope &) = delete;
};
} // namespace stackbeat

/* A scope from here to the end of the block. */
#define STACKBEAT_SCOPE(name) ::stackbeat::Scope STACKBEAT_JOIN_(stackbeat_scope_, __LINE__)(name)

#elif defined(__GNUC__)

static inline STACKBEAT_UNUSED_ void stackbeat_leave_(const char *unused) {
    (void)unused;
    stackbeat_scope_end();
}

#define STACKBEAT_SCOPE(name)                                                                    \
    __attribute__((cleanup(stackbeat_leave_))) char STACKBEAT_JOIN_(stackbeat_scope_, __LINE__) =   \
        (stackbeat_scope_begin(name), (char)0)

#endif

#endif /* STACKBEAT_NOOP */
#endif /* STACKBEAT_H */
