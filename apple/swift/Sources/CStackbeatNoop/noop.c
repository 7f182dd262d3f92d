// The functions of stackbeat_app.h for builds without stackbeat: nothing is recorded, and nothing of the library is linked.
#include "stackbeat_app.h"

int stackbeat_app_start(const stackbeat_app_options *options) {
    (void)options;
    return -1;
}

int stackbeat_app_stop(void) {
    return -1;
}

int stackbeat_app_capture(int on) {
    (void)on;
    return -1;
}

int stackbeat_app_set(const stackbeat_app_options *options) {
    (void)options;
    return -1;
}

void stackbeat_app_mark(const char *text) {
    (void)text;
}

int stackbeat_app_dump(const char *output, uint64_t last_ns) {
    (void)output;
    (void)last_ns;
    return -1;
}

size_t stackbeat_app_status(char *text, size_t bytes) {
    if (text && bytes) {
        *text = 0;
    }
    return 0;
}

size_t stackbeat_app_error(char *text, size_t bytes) {
    static const char reason[] = "this build has no stackbeat";
    size_t length = sizeof reason - 1;
    for (size_t i = 0; text && i < bytes; i++) {
        text[i] = i < length && i + 1 < bytes ? reason[i] : 0;
    }
    return length;
}
