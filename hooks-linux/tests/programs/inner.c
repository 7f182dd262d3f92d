#include <stdlib.h>
int value(void) {
    void *p = malloc(10);
    free(p);
    return 17;
}
