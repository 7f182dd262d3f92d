// When a program's main begins. `start exec PROGRAM` notes the time and becomes PROGRAM; a PROGRAM that is
// linked from this file prints how long that took: wall and CPU in ms.
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static double clock_ms(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return t.tv_sec * 1e3 + t.tv_nsec * 1e-6;
}

int main(int argc, char **argv) {
  char text[64];
  if (argc == 3 && !strcmp(argv[1], "exec")) {
    snprintf(text, sizeof text, "%.6f %.6f", clock_ms(CLOCK_MONOTONIC), clock_ms(CLOCK_PROCESS_CPUTIME_ID));
    setenv("BEGIN", text, 1);
    execl(argv[2], argv[2], (char *)0);
    perror(argv[2]);
    return 1;
  }
  double wall = clock_ms(CLOCK_MONOTONIC), cpu = clock_ms(CLOCK_PROCESS_CPUTIME_ID), wall_before, cpu_before;
  const char *begin = getenv("BEGIN");
  if (!begin || sscanf(begin, "%lf %lf", &wall_before, &cpu_before) != 2) {
    fprintf(stderr, "start: to be run by `start exec`\n");
    return 2;
  }
  printf("%.4f %.4f\n", wall - wall_before, cpu - cpu_before);
}
