/* Does little while the file in the first argument is there, then much while that in the second is; with
 * `work N` a fixed amount of work. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static volatile long sum;
static const char *until;

static void compute(long rounds) {
    for (long i = 0; i < rounds; i++)
        sum += i;
}

static void *allocate(void *unused) {
    while (access(until, F_OK) == 0)
        for (int i = 0; i < 200; i++) {
            void *block = malloc(100);
            compute(1000);
            free(block);
        }
    return unused;
}

int main(int count, char **arguments) {
    if (count < 3)
        return 2;
    if (strcmp(arguments[1], "work") == 0) {
        compute(atol(arguments[2]));
        return 0;
    }
    while (access(arguments[1], F_OK) == 0) {
        compute(10000);
        free(malloc(1));
        usleep(3000);
    }
    until = arguments[2];
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, allocate, NULL);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    return 0;
}
