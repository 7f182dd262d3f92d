/* Signals of ours that the program ignores are ignored in what it starts, and none pends that nobody sent. */
#include "show.h"
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

extern char **environ;
static char path[4096];

/* Of the first of ours alone: the second stands in while that rests, and /proc tells. */
static void show(const char *what) {
    unsigned long ignored = 0;
    char line[256];
    FILE *f = fopen("/proc/self/status", "r");
    while (fgets(line, sizeof line, f)) sscanf(line, "SigIgn: %lx", &ignored);
    fclose(f);
    printf("%s: ignored %lx\n", what, ignored & (1ul << (SIGURG - 1)));
    fflush(stdout);
}

static void children(const char *what) {
    char *spawned[] = {path, "spawned", NULL}, *run[] = {path, "run", NULL}, command[5000];
    pid_t child;
    puts(what);
    fflush(stdout);
    snprintf(command, sizeof command, "'%s' system", path);
    SHOW(system(command));
    snprintf(command, sizeof command, "'%s' popen", path);
    FILE *f = popen(command, "r");
    while (fgets(command, sizeof command, f)) fputs(command, stdout);
    SHOW(pclose(f));
    int result = posix_spawn(&child, path, NULL, NULL, spawned, environ);
    SHOW(waitpid(child, NULL, 0) == child);
    SHOW(result);
    if (!(child = fork())) execv(path, run), _exit(9);
    SHOW(waitpid(child, NULL, 0) == child);
    if (!(child = vfork())) execv(path, run), _exit(9);
    SHOW(waitpid(child, NULL, 0) == child);
    /* The child's own wish, not its parent's. */
    if (!(child = vfork())) {
        signal(SIGURG, SIG_DFL);
        execv(path, run);
        _exit(9);
    }
    SHOW(waitpid(child, NULL, 0) == child);
    if (!(child = vfork())) execl("/nonexistent", "x", NULL), _exit(9);
    SHOW(waitpid(child, NULL, 0) == child);
    show(what);
}

static volatile int came;
static void handler(int number) { came += number; }

int main(int argc, char **argv) {
    if (argc > 1) {
        show(argv[1]);
        return 7;
    }
    path[readlink("/proc/self/exe", path, sizeof path - 1)] = 0;
    children("default");
    SHOW(signal(SIGURG, SIG_IGN) == SIG_DFL);
    children("ignored");
    SHOW(raise(SIGURG));
    SHOW(signal(SIGURG, handler) == SIG_IGN);
    SHOW(raise(SIGURG));
    SHOW(came);
    children("handled");
    struct sigaction ignore = {.sa_handler = SIG_IGN}, old;
    SHOW(sigaction(SIGURG, &ignore, &old));
    SHOW(old.sa_handler == handler);
    SHOW(sigaction(SIGURG, NULL, &old));
    SHOW(old.sa_handler == SIG_IGN);
    children("ignored again");
    SHOW(sigaction(SIGWINCH, NULL, &old));
    SHOW(old.sa_handler == SIG_DFL);
    SHOW(signal(SIGWINCH, SIG_IGN) == SIG_DFL);
    SHOW(signal(SIGWINCH, handler) == SIG_IGN);
    SHOW(raise(SIGWINCH));
    SHOW(came);
    SHOW(signal(SIGURG, SIG_DFL) == SIG_IGN);
    children("default again");

    sigset_t all, pending;
    int seen = 0;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
    for (int i = 0; i < 200; i++) {
        for (volatile long k = 0; k < 300000; k++);
        sigpending(&pending);
        seen += sigismember(&pending, SIGURG) + sigismember(&pending, SIGWINCH);
    }
    SHOW(seen);
    SHOW(raise(SIGURG));
    SHOW(sigpending(&pending));
    SHOW(sigismember(&pending, SIGURG));
    return 0;
}
