// An app that makes processes by vfork and waits for futexes of its own, and says when by its own clock. Its first
// session has a file for its records, its second one has none.
#include "app.h"
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CHILDREN = 20, TURNS = 20 };

static int status_of(pid_t child)
{
    int status;
    return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// Has a frame of its own below its caller's, where the child comes by after the parent's has returned.
__attribute__((noinline)) static void children(int depth)
{
    volatile char below[100];
    below[depth % 100] = 1;
    if (depth) {
        children(depth - 1);
        return;
    }
    for (int i = 0; i < CHILDREN; i++) {
        int pipe_ends[2];
        if (pipe(pipe_ends))
            exit(1);
        int64_t begin = now();
        pid_t child = vfork();
        if (!child) {
            // What a child does between vfork and exec. Its calls pass hooks, and are none of its parent's.
            pid_t own = getpid();
            if (write(pipe_ends[1], &own, sizeof own) != sizeof own)
                _exit(99);
            free(malloc(100 + i));
            usleep(10000);
            _exit(i);
        }
        int64_t end = now();
        pid_t own = 0;
        if (read(pipe_ends[0], &own, sizeof own) != sizeof own)
            exit(1);
        close(pipe_ends[0]);
        close(pipe_ends[1]);
        printf("vfork %lld %lld %d %d %d\n", (long long)begin, (long long)end, child, own == child, status_of(child) == i);
    }
}

// What a child's exec gives, if its parent has vforked.
#define BECOMES(...)                                                                                                   \
    ({                                                                                                                 \
        pid_t child = vfork();                                                                                         \
        if (!child) {                                                                                                  \
            __VA_ARGS__;                                                                                               \
            _exit(errno == ENOENT ? 98 : 97);                                                                          \
        }                                                                                                              \
        status_of(child);                                                                                              \
    })

static void lists()
{
    const char *environment[] = { "STATUS=42", nullptr };
    int counted = BECOMES(execl("/bin/sh", "sh", "-c", "exit $#", "", "1", "2", "3", "4", "5", "6", "7", "8", "9", nullptr));
    int few = BECOMES(execlp("sh", "sh", "-c", "exit 3", nullptr));
    int with = BECOMES(execle("/bin/sh", "sh", "-c", "exit $STATUS", "", "1", "2", "3", "4", "5", nullptr, environment));
    int none = BECOMES(execl("/nowhere", "x", nullptr));
    int here = execlp("nowhere-at-all", "x", nullptr) == -1 && errno == ENOENT;
    printf("lists %d %d %d %d %d\n", counted, few, with, none, here);
}

static int word;

static void *waits(void *)
{
    pthread_setname_np(pthread_self(), "waits");
    for (int i = 0; i < TURNS; i++) {
        int64_t begin = now();
        while (__atomic_load_n(&word, __ATOMIC_ACQUIRE) == i)
            syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, i, nullptr, nullptr, 0);
        printf("futex %lld %lld\n", (long long)begin, (long long)now());
    }
    return nullptr;
}

static void futexes()
{
    pthread_t thread;
    pthread_create(&thread, nullptr, waits, nullptr);
    for (int i = 0; i < TURNS; i++) {
        rest(5);
        __atomic_store_n(&word, i + 1, __ATOMIC_RELEASE);
        syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
    }
    pthread_join(thread, nullptr);
    word = 0;
}

// Calls whose numbers are not looked at, and one that fails.
static void others()
{
    errno = 0;
    long mapped = syscall(SYS_mmap, nullptr, 4096l, 3l, 0x22l, -1l, 0l);
    *(volatile char *)mapped = 1;
    long refused = syscall(SYS_read, -1l, nullptr, 1l);
    printf("others %d %d %d\n", syscall(SYS_getpid) == getpid(), syscall(SYS_munmap, mapped, 4096l) == 0,
           refused == -1 && errno == EBADF);
}

// Until it is killed: records come, and the session has time to write some of them.
static void die(App &app, const char *folder)
{
    printf("trace %s\n", app.start(folder, true));
    for (int i = 0; i < 300; i++)
        usleep(10000);
    kill(getpid(), SIGKILL);
}

// APP-LIBRARY FOLDER [dies|save]
int main(int count, char **arguments)
{
    setvbuf(stdout, nullptr, _IOLBF, 0);
    App app(arguments[1]);
    if (count > 3 && !strcmp(arguments[3], "dies"))
        die(app, arguments[2]);
    if (count > 3 && !strcmp(arguments[3], "save")) {
        printf("saved %s\n", app.save(arguments[2]));
        return 0;
    }
    for (int session = 0; session < 2; session++) {
        printf("trace %s\n", app.start(arguments[2], session == 1));
        children(30);
        lists();
        futexes();
        others();
        printf("%s\n", app.doctor());
        app.stop();
    }
    return 0;
}
