// An app that records itself: argv[1] is its folder. With another argument the system ends it while it is recorded.
#include "stackbeat_app.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int failed(const char *what) {
    char text[512];
    stackbeat_app_error(text, sizeof text);
    fprintf(stderr, "%s: %s\n", what, text);
    return 1;
}

static void rest(long ms) {
    struct timespec time = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&time, NULL);
}

int main(int argc, char **argv) {
    char path[1024], status[4096];
    stackbeat_app_options options = STACKBEAT_APP_OPTIONS;
    if (argc < 2) {
        return 2;
    }
    if (argc > 2) {
        snprintf(path, sizeof path, "%s/killed.beat", argv[1]);
        options.output = path;
        if (stackbeat_app_start(&options) != 0) {
            return failed("start to be killed");
        }
        stackbeat_app_mark("before it is killed");
        return raise(SIGKILL);
    }
    // Nothing to stop, to change or to write yet.
    if (stackbeat_app_stop() == 0 || stackbeat_app_capture(1) == 0 || stackbeat_app_dump("/nowhere", 0) == 0 ||
        stackbeat_app_status(status, sizeof status) != 0) {
        return failed("there is no session");
    }
    stackbeat_app_error(status, sizeof status);
    puts(status);
    options.probes = "lock, tea";
    snprintf(path, sizeof path, "%s/first.beat", argv[1]);
    options.output = path;
    if (stackbeat_app_start(&options) == 0) {
        return failed("tea");
    }
    stackbeat_app_error(status, sizeof status);
    puts(status);
    options.probes = NULL;
    options.interval_ns = 2000000;
    if (stackbeat_app_start(&options) != 0) {
        return failed("start");
    }
    if (stackbeat_app_start(&options) == 0) {
        return failed("a second one");
    }
    stackbeat_app_error(status, sizeof status);
    puts(status);
    stackbeat_app_mark("first mark");
    options.interval_ns = 3000000;
    options.probes = "lock,wait";
    if (stackbeat_app_set(&options) != 0) {
        return failed("set");
    }
    if (stackbeat_app_status(status, sizeof status) >= sizeof status) {
        return failed("status");
    }
    puts(status);
    // What does not fit is cut.
    if (stackbeat_app_status(status, 8) <= 8 || strlen(status) != 7) {
        return failed("a short status");
    }
    snprintf(path, sizeof path, "%s/dump.beat", argv[1]);
    if (stackbeat_app_dump(path, 0) != 0) {
        return failed("dump");
    }
    stackbeat_app_capture(0);
    stackbeat_app_mark("not captured");
    stackbeat_app_capture(1);
    stackbeat_app_mark("last mark");
    if (stackbeat_app_stop() != 0) {
        return failed("stop");
    }
    // Another session, which ends by itself, and one that ends with the process.
    options.probes = NULL;
    options.duration_ns = 100000000;
    snprintf(path, sizeof path, "%s/second.beat", argv[1]);
    if (stackbeat_app_start(&options) != 0) {
        return failed("start again");
    }
    stackbeat_app_mark("second session");
    for (int i = 0; stackbeat_app_status(status, sizeof status) != 0; i++) {
        if (i > 1000) {
            return failed("it does not end");
        }
        rest(10);
    }
    options.duration_ns = 0;
    snprintf(path, sizeof path, "%s/third.beat", argv[1]);
    if (stackbeat_app_start(&options) != 0) {
        return failed("start a third time");
    }
    stackbeat_app_mark("third session");
    return 0;
}
