// An app whose library begins a session before main, if its environment says so. It runs until it is ended.
#include "stackbeat_app.h"

#include <stdlib.h>
#include <time.h>

// What `stackbeat.h` calls.
extern void stackbeat_v1_capture(void);

__attribute__((noinline)) static void is_captured(void) {
    stackbeat_v1_capture();
    __asm__ volatile("");
}

int main(void) {
    struct timespec moment = {0, 10000000};
    if (getenv("ENDS_AT_ONCE")) {
        return 0;
    }
    for (;;) {
        if (getenv("IS_CAPTURED")) {
            is_captured();
        }
        stackbeat_app_mark("beat");
        nanosleep(&moment, NULL);
    }
}
