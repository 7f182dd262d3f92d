/* Allocates and frees so many blocks, in two threads, and frees at the end what was allocated at the begin. Says
   whether a function still is what data says it is. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void (*volatile release)(void *) = free;

static void *churn(void *count) {
    char *first = malloc(100), *kept = NULL;
    strcpy(first, "first");
    for (long i = 0; i < (long)count; i++) {
        char *block = i % 2 ? malloc(i % 500 + 1) : calloc(1, i % 500 + 1);
        block[0] = (char)i;
        free(kept);
        kept = realloc(block, i % 300 + 2);
    }
    free(kept);
    return first;
}

int main(int count, char **arguments) {
    long blocks = count > 1 ? atol(arguments[1]) : 1000;
    pthread_t thread;
    void *first;
    pthread_create(&thread, NULL, churn, (void *)blocks);
    printf("%s\n", (char *)churn((void *)blocks));
    pthread_join(thread, &first);
    printf("%s\n", (char *)first);
    free(first);
    printf("%d\n", release == free);
    return 0;
}
