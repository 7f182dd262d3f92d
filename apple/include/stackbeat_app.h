/*
 * stackbeat_app.h: a recording of an app by the app itself, on iOS and macOS.
 *
 *     stackbeat_app_options options = STACKBEAT_APP_OPTIONS;
 *     options.interval_ns = 2000000;
 *     if (stackbeat_app_start(&options) != 0) { ... stackbeat_app_error(text, sizeof text) ... }
 *     ...
 *     stackbeat_app_stop();                      the trace is complete when this returns
 *
 * The library also begins by itself where the environment or the user defaults say so, before main: see
 * docs/platforms/apple-app.md. Marks, scopes, counters and flows are in stackbeat.h, which finds this library.
 *
 * Functions that return an int give 0 when they have done it, and -1 otherwise; stackbeat_app_error says why. All may be
 * called from any thread. start, stop and dump take as long as a file is written.
 */
#ifndef STACKBEAT_APP_H
#define STACKBEAT_APP_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What to record. Begin with STACKBEAT_APP_OPTIONS: fields that are 0 have their defaults. */
typedef struct {
    /* sizeof(stackbeat_app_options). */
    size_t bytes;
    /* Where the trace goes, an absolute path; NULL: Library/Caches/stackbeat/app.beat in the app's home. A file that is there
     * is replaced. */
    const char *output;
    /* Time between samples of a thread, and of the main thread, 50000 to 4000000000. */
    uint64_t interval_ns;
    uint64_t main_interval_ns;
    /* The part of the app's CPU time that the recording may take, percent; 0: no limit. */
    double budget_percent;
    /* Groups of probes, such as "lock,wait,io"; NULL: all but those that are off by default. */
    const char *probes;
    /* The session ends by itself after this time; 0: it does not. */
    uint64_t duration_ns;
    /* Not 0: capture nothing until stackbeat_app_capture(1). */
    int start_disabled;
} stackbeat_app_options;

#define STACKBEAT_APP_OPTIONS {sizeof(stackbeat_app_options), NULL, 0, 0, 0, NULL, 0, 0}

/* Begins a session. NULL: all defaults. */
int stackbeat_app_start(const stackbeat_app_options *options);

/* Ends it. The trace is complete when this returns, and the app goes on without hooks. It may begin another session. */
int stackbeat_app_stop(void);

/* Captures from now on, or, with 0, nothing until it is asked for. The session goes on. */
int stackbeat_app_capture(int on);

/* Changes intervals and probes of the session. Fields that are 0 stay as they are; others than these three are not looked at. */
int stackbeat_app_set(const stackbeat_app_options *options);

/* Something happened now, in this thread. */
void stackbeat_app_mark(const char *text);

/* Writes what the session holds into a trace of its own, an absolute path. last_ns: only this long before now; 0: all. */
int stackbeat_app_dump(const char *output, uint64_t last_ns);

/* Where the session stands, as JSON (docs/control.md). Gives the length without the NUL; what does not fit is cut. 0: there is
 * no session. */
size_t stackbeat_app_status(char *text, size_t bytes);

/* Why the last function of these failed. Gives the length without the NUL; what does not fit is cut. */
size_t stackbeat_app_error(char *text, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif
