/* Processes. Called with a word it is one of its own children. */
#include "show.h"
#include <fcntl.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <pthread.h>

extern char **environ;
static const char *self;

static void wait_for(pid_t child) {
    int status = 0;
    pid_t got;
    do got = waitpid(child, &status, 0); while (got < 0 && errno == EINTR);
    printf("child ended: %s %d\n", WIFSIGNALED(status) ? "signal" : "exit",
           WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    fflush(stdout);
}

static int child(int argc, char **argv) {
    int ours = 0;
    for (char **e = environ; *e; e++)
        ours += !strncmp(*e, "LD_PRELOAD=", 11) || !strncmp(*e, "STACKBEAT_SESSION=", 18);
    printf("child");
    for (int i = 1; i < argc; i++) printf(" %s", argv[i]);
    const char *extra = getenv("EXTRA");
    printf(" extra %s\n", extra ? extra : "none");
    /* Checked by the test apart: the only line that may differ. */
    fprintf(stderr, "preload %d\n", ours);
    fflush(stdout);
    return 40 + argc;
}

#define IN_CHILD(how, ...)                                                                        \
    do {                                                                                           \
        printf("%s: %s\n", #how, #__VA_ARGS__);                                                           \
        fflush(stdout);                                                                            \
        pid_t pid = how();                                                                         \
        if (pid == 0) {                                                                            \
            __VA_ARGS__;                                                                           \
            _exit(99);                                                                             \
        }                                                                                          \
        wait_for(pid);                                                                             \
    } while (0)

static void *fork_in_thread(void *unused) {
    IN_CHILD(fork, _exit(5));
    return unused;
}

int main(int argc, char **argv) {
    if (argc > 1) return child(argc, argv);
    char path[4096];
    path[readlink("/proc/self/exe", path, sizeof path - 1)] = 0;
    self = path;
    char *none[] = {NULL}, *extra[] = {"EXTRA=yes", NULL}, *args[] = {path, "a", "b", NULL};
    char *other_preload[] = {"LD_PRELOAD=/nonexistent.so", "EXTRA=preload", NULL};
    char *large[1002];
    for (int i = 0; i < 1000; i++) {
        large[i] = malloc(32);
        sprintf(large[i], "VARIABLE_%d=x", i);
    }
    large[1000] = "EXTRA=large";
    large[1001] = NULL;

    IN_CHILD(fork, _exit(3));
    IN_CHILD(fork, exit(4));
    IN_CHILD(fork, abort());
    IN_CHILD(vfork, _exit(6));
    IN_CHILD(fork, execl(path, path, "l", NULL));
    IN_CHILD(fork, execl(path, path, "1", "2", "3", "4", "5", "6", "7", "8", "9", NULL));
    IN_CHILD(vfork, execl(path, path, "1", "2", "3", "4", "5", "6", "7", "8", "9", NULL));
    IN_CHILD(fork, execle(path, path, "1", "2", "3", "4", "5", "6", "7", NULL, extra));
    IN_CHILD(vfork, execle(path, path, "le", NULL, none));
    IN_CHILD(fork, execlp(path, path, "lp", NULL));
    IN_CHILD(vfork, execv(path, args));
    IN_CHILD(vfork, execvp(path, args));
    IN_CHILD(fork, execvpe(path, args, extra));
    IN_CHILD(vfork, execve(path, args, none));
    IN_CHILD(vfork, execve(path, args, extra));
    IN_CHILD(fork, execve(path, args, NULL));
    IN_CHILD(fork, execve(path, args, large));
    IN_CHILD(vfork, execve(path, args, large));
    IN_CHILD(fork, fexecve(open(path, O_RDONLY | O_CLOEXEC), args, extra));
    IN_CHILD(fork, execveat(AT_FDCWD, path, args, extra, 0));
    IN_CHILD(fork, clearenv(); execv(path, args));
    IN_CHILD(vfork, execl("/nonexistent", "x", NULL));
    IN_CHILD(vfork, execlp("nonexistent-command", "x", NULL));
    IN_CHILD(fork, { for (int i = 3; i < 1000; i++) close(i); execv(path, args); });
    IN_CHILD(fork, { struct rlimit r = {64 << 20, 64 << 20}; setrlimit(RLIMIT_DATA, &r); execv(path, args); });
    IN_CHILD(_Fork, _exit(8));
    SHOW(execve("/nonexistent", args, extra));
    SHOW(execve("/etc", args, extra));
    fprintf(stderr, "-\n");
    IN_CHILD(fork, execve("/bin/echo", (char *[]){"echo", "other preload", NULL}, other_preload));

    pid_t pid;
    SHOW((posix_spawn(&pid, path, NULL, NULL, args, extra), wait_for(pid), 0));
    SHOW((posix_spawn(&pid, path, NULL, NULL, args, none), wait_for(pid), 0));
    SHOW((posix_spawnp(&pid, path, NULL, NULL, args, large), wait_for(pid), 0));
    SHOW(posix_spawn(&pid, "/nonexistent", NULL, NULL, args, extra));
    char command[5000];
    snprintf(command, sizeof command, "'%s' from-shell", path);
    SHOW(WEXITSTATUS(system(command)));
    FILE *f = popen(command, "r");
    char line[200];
    while (fgets(line, sizeof line, f)) fputs(line, stdout);
    SHOW(WEXITSTATUS(pclose(f)));

    pthread_t t;
    pthread_create(&t, NULL, fork_in_thread, NULL);
    pthread_join(t, NULL);

    /* A vfork child that comes back through a deeper frame than the parent's. */
    for (int i = 0; i < 50; i++) {
        pid = vfork();
        if (pid == 0) _exit(i);
        int status;
        if (waitpid(pid, &status, 0) != pid || WEXITSTATUS(status) != i) printf("vfork %d wrong\n", i);
    }
    fflush(stdout);
    int from_daemon[2];
    if (pipe(from_daemon)) return 1;
    pid = fork();
    if (pid == 0) {
        if (daemon(0, 0)) _exit(1);
        free(malloc(10));
        for (int i = 0; i < 1000; i++)
            if (i != from_daemon[1]) close(i);
        _exit(write(from_daemon[1], "daemon", 6) != 6);
    }
    wait_for(pid);
    char text[6];
    SHOW(read(from_daemon[0], text, 6));
    struct rlimit r = {16, 16};
    SHOW(setrlimit(RLIMIT_NOFILE, &r));
    r.rlim_cur = r.rlim_max = 0;
    setrlimit(RLIMIT_FSIZE, &r);
    free(malloc(1000000));
    quick_exit(12);
}
