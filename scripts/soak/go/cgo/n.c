#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>
int back(int);
static void *run(void *n) { return (void *)(long)back((int)(long)n); }
int native(int n) { void *r, *m = malloc(1000 + n); pthread_t t; if (n % 5 == 0) { usleep(300); pthread_create(&t, 0, run, (void *)(long)n); pthread_join(t, &r); n = (int)(long)r; } else n = back(n); free(m); return n; }
