/* Computes without passing a hook. */
#include <stdlib.h>

static __attribute__((noinline)) unsigned mix(unsigned long steps) {
    unsigned state = 1;
    for (unsigned long i = 0; i < steps; i++)
        state = state * 31 + (i ^ (state >> 7));
    return state;
}

int main(int count, char **arguments) {
    return count < 2 || mix(strtoul(arguments[1], NULL, 10)) == 7;
}
