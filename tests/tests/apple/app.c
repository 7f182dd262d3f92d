// An app whose library begins a session before main, if its environment says so. It runs until it is ended.
#include "stackbeat_app.h"

#include <stdlib.h>
#include <time.h>

int main(void) {
    struct timespec moment = {0, 10000000};
    if (getenv("ENDS_AT_ONCE")) {
        return 0;
    }
    for (;;) {
        stackbeat_app_mark("beat");
        nanosleep(&moment, NULL);
    }
}
