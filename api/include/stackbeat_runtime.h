/*
 * stackbeat_runtime.h: for a library that knows a runtime of managed code (a JIT compiler, an interpreter, a virtual
 * machine) and tells stackbeat of its methods, its code, its frames and its waits.
 *
 * The library does not link to stackbeat. It asks for the agent's table of functions; where there is no agent, there is
 * nothing to do. So one process has one agent, whatever libraries are loaded.
 *
 *     const struct stackbeat_runtime *agent = stackbeat_find_runtime();
 *     if (agent) method = agent->add_method(...);
 *
 * What it tells stays known while no recording is under way, and holds for the next one.
 *
 * A version of the table never changes. New functions come at its end; `bytes` says how much there is.
 *
 * All functions may be called from any thread. Those whose comments end with "(signal-safe)" may also be called in signal
 * handlers and in `find`.
 *
 * An agent may come later, by `stackbeat attach`, and stays then. A library that wants to be heard in such recordings asks
 * again from time to time, and tells once it finds one.
 */
#ifndef STACKBEAT_RUNTIME_H
#define STACKBEAT_RUNTIME_H

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define STACKBEAT_RUNTIME_VERSION 1

/* What runs a method. */
enum { STACKBEAT_RUNTIME_OTHER = 0, STACKBEAT_RUNTIME_CPYTHON = 1 };

/* A line of the source from a position on. Positions are what the runtime counts by: bytes of bytecode, or of code. */
struct stackbeat_line {
    uint32_t position;
    uint32_t line; /* 0: none */
};

/* What a method says of itself. Texts are UTF-8, without an end mark: a name of at most 512 bytes, a file of 1,024, 2,048
   lines; what is longer is cut or left out. All of it is copied. */
struct stackbeat_method {
    uint32_t runtime;
    uint32_t first_line; /* where it is defined; 0: not known */
    const char *name;    /* qualified */
    size_t name_bytes;
    const char *file;
    size_t file_bytes;
    const struct stackbeat_line *lines; /* by position */
    size_t line_count;
};

/* How to get to the caller, from an offset on: CFA = base + cfa, the return address lies at CFA - 8 (the words of DWARF and
   of the psABI). On AArch64 only code that has stored its frame can be described so. The first row has offset 0. */
enum {
    STACKBEAT_FROM_SP = 0,
    STACKBEAT_FROM_FP = 1,
    STACKBEAT_OUTERMOST = 2 /* nobody called it */
};
struct stackbeat_unwind_row {
    uint32_t offset; /* bytes from the code's start */
    uint32_t base;
    int32_t cfa;      /* a multiple of 8 */
    int32_t saved_fp; /* where the caller's frame pointer lies, from the CFA on (-16); 0: it is still in its register */
};

/* Whose code it is, from an offset on. */
struct stackbeat_code_row {
    uint32_t offset;
    uint32_t first_frame; /* the outermost one; those behind it are inlined, each into the one before */
    uint32_t frame_count; /* 0: a stub, code of no method */
};
struct stackbeat_frame {
    uint32_t method; /* of add_method */
    uint32_t position;
};

/* A piece of code that a runtime has made. Rows are in order of their offsets; all of it is copied. */
struct stackbeat_code {
    uint64_t start;
    uint64_t bytes;
    const struct stackbeat_unwind_row *unwind;
    size_t unwind_count;
    const struct stackbeat_code_row *rows;
    size_t row_count;
    const struct stackbeat_frame *frames;
    size_t frame_count;
};

/* A runtime whose interpreter keeps frames apart from the native stack. */
struct stackbeat_source {
    /* Where the interpreter's code lies, from and to. `find` is called only where some of it is on the stack. */
    uint64_t code_start, code_end;
    /* Finds the interpreted frames of the calling thread, from the innermost on: for each call of the interpreter begin_run,
       then add_frame for what it runs. It is called in captures, also in signal handlers, at any instruction of the runtime:
       it takes no lock, calls nothing of libc, and reads what may not be there by `read`. What is on the way of being
       changed is left out. */
    void (*find)(void *argument, void *search);
    void *argument;
};

struct stackbeat_wait { uint64_t words[16]; };
struct stackbeat_wake { uint64_t words[16]; };

/* What waits and hits are of: stackbeat's probes. */
enum {
    STACKBEAT_MONITOR_ENTER = 150,
    STACKBEAT_MONITOR_EXIT = 151,
    STACKBEAT_MONITOR_WAIT = 152,
    STACKBEAT_MONITOR_NOTIFY = 153,
    STACKBEAT_PARK = 154,
    STACKBEAT_UNPARK = 155,
    STACKBEAT_GC_WAIT = 156,
    STACKBEAT_SAFEPOINT = 157,
    STACKBEAT_NATIVE_CALL = 158,
    STACKBEAT_BINDER_TRANSACT = 159,
    STACKBEAT_OBJECT_ALLOCATION = 160,
    STACKBEAT_GC_END = 161,
    STACKBEAT_CLASS_LOAD = 162
};

struct stackbeat_runtime {
    uint32_t version;
    uint32_t bytes; /* of this structure, as the agent knows it */

    /* The method's number, for good; 0: there is no room for more than 131,071. Equal methods have one number. A recording has
       those that are met on a stack. (signal-safe) */
    uint32_t (*add_method)(const struct stackbeat_method *method);

    /* Before the code runs. Gives what remove_code takes; 0: there is no room, or it is not in order. */
    uint64_t (*add_code)(const struct stackbeat_code *code);
    /* When no thread is in the code any more, before its memory is used again. */
    void (*remove_code)(uint64_t code);

    /* 1: added, for good. 0: there are 8 already. */
    int (*add_source)(const struct stackbeat_source *source);
    /* In `find`, with its `search`. 0: the memory cannot be read, or there is no room for another frame; then return. */
    int (*read)(void *search, uint64_t address, void *to, size_t bytes);
    /* `anchor`: an address in the native frame of this call of the interpreter. */
    int (*begin_run)(void *search, uint64_t anchor);
    /* `method` 0: it is not known which. */
    int (*add_frame)(void *search, uint32_t method, uint32_t position);

    /* Something was done that does not wait: a sample may be taken. (signal-safe) */
    void (*hit)(uint32_t probe, uint64_t argument);
    /* The calling thread is about to wait, and has waited. `object`: what for, by a number that stays while the object moves;
       0: not known. `owner`: the tid of the thread that holds it; 0: not known. A negative result: it failed. Both calls stand
       in one function: while the thread waits, its stack is read from the frame that called begin_wait. */
    void (*begin_wait)(struct stackbeat_wait *wait, uint32_t probe, uint64_t object, uint32_t owner);
    void (*end_wait)(struct stackbeat_wait *wait, int64_t result);
    /* The calling thread is about to wake up to `count` threads that wait for `object`, and has done so. */
    void (*begin_wake)(struct stackbeat_wake *wake, uint64_t object, uint32_t count);
    void (*end_wake)(struct stackbeat_wake *wake, uint32_t probe, uint64_t object);

    /* The calling thread has made an object of so many bytes. All are counted, some are captured. Look at `bytes` above before
       the call: older agents do not have it. (signal-safe) */
    void (*allocated)(uint64_t bytes);

    /* In `find`, with its `search`: a frame of the native stack, counted from the innermost one: where it is, and its stack
       pointer. An interpreter that keeps its frames there finds them so; the stack pointer is their anchor. 0: there are no
       more, or older ones are not known. As above: older agents do not have it. */
    int (*native_frame)(void *search, uint32_t index, uint64_t *pc, uint64_t *sp);

    /* `comes` is asked in a signal handler when the sampling clock has interrupted a thread: not 0 says that the thread is about
       to call better_moment, and the sample is left to that. What holds for `find` holds for it, too. 1: added, for good. 0: there
       is one already. As above: older agents do not have these two. */
    int (*add_better_moments)(int (*comes)(void));
    /* A sample is taken, if one was left to this. (signal-safe) */
    void (*better_moment)(uint32_t probe, uint64_t argument);
};

/* The agent's table; NULL: the process has no agent, or one that does not know this version. Not signal-safe. */
static inline const struct stackbeat_runtime *stackbeat_find_runtime(void)
{
#ifdef RTLD_DEFAULT
    void *everywhere = RTLD_DEFAULT;
#else
    /* Hidden by strict C; glibc, musl and bionic define it so. */
    void *everywhere = (void *)0;
#endif
    union {
        void *object;
        const void *(*function)(uint32_t);
    } found;
    found.object = dlsym(everywhere, "stackbeat_runtime");
#ifdef RTLD_NOLOAD
    if (!found.object) {
        /* One that was loaded later is in no list that `dlsym` goes through. */
        void *attached = dlopen("libstackbeat.so", RTLD_LAZY | RTLD_NOLOAD);
        if (attached) {
            found.object = dlsym(attached, "stackbeat_runtime");
            dlclose(attached);
        }
    }
#endif
    return (const struct stackbeat_runtime *)(found.object ? found.function(STACKBEAT_RUNTIME_VERSION) : (void *)0);
}

#ifdef __cplusplus
}
#endif

#endif
