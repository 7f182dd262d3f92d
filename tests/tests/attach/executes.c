// Executes itself again and again, by its second thread, as often as its argument says. Then it exits with 7.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
static char **arguments;
static void *executes(void *unused) {
    int left = atoi(arguments[1]);
    usleep(1000 + (unsigned)left * 7919 % 20000);
    if (left == 0)
        _exit(7);
    char text[16];
    sprintf(text, "%d", left - 1);
    execl("/proc/self/exe", arguments[0], text, "again", (char *)0);
    return unused;
}
int main(int argc, char **argv) {
    arguments = argv;
    if (argc == 2) {
        puts("running");
        fflush(stdout);
    }
    pthread_t thread;
    pthread_create(&thread, 0, executes, 0);
    for (;;)
        pause();
}
