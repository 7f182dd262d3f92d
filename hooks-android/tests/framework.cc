// Stands in for three libraries of Android and for a program that has them, one part for each (LIBUTILS,
// LIBANDROID_RUNTIME, LIBBINDER, and none of these: the program). VERSION is Android's. Declarations are
// written anew from AOSP's, in the files that are named here; what functions do is as little as the hooks need.
#include "app.h"
#include <fcntl.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

class _JNIEnv;
class _jobject;

// What the stand-ins have done, by their own clock: for the test, which compares it with the trace.
struct Moment {
    int64_t begin, end, value, result;
};
struct Log {
    Moment polls[1000], iterations[1000], calls[1000];
    int poll_count, iteration_count, call_count;
};
extern "C" Log stand_in_log;

namespace android {

typedef int64_t nsecs_t;
typedef int32_t status_t;

// system/core, libutils/include/utils/Looper.h
class Looper {
  public:
    typedef int (*Looper_callbackFunc)(int fd, int events, void *data);
    Looper(bool allowNonCallbacks);
    int pollOnce(int timeoutMillis, int *outFd, int *outEvents, void **outData);
    int addFd(int fd, int ident, int events, Looper_callbackFunc callback, void *data);
    void wake();

  private:
    int pollInner(int timeoutMillis);
    int epoll, event, callbackFd = -1;
    Looper_callbackFunc callback = nullptr;
    void *callbackData = nullptr;
};

// frameworks/base, core/jni/android_os_MessageQueue.cpp
class NativeMessageQueue {
  public:
    void pollOnce(_JNIEnv *env, _jobject *obj, int timeoutMillis);
    Looper *looper;
};

#if VERSION <= 9
// frameworks/base, core/jni/android_view_DisplayEventReceiver.cpp
typedef int32_t PhysicalDisplayId;
#elif VERSION <= 11
// frameworks/native, libs/ui/include/ui/PhysicalDisplayId.h
typedef uint64_t PhysicalDisplayId;
#else
// The same file; since 12 in libs/ui/include/ui/DisplayId.h
struct DisplayId {
    uint64_t value;
};
struct PhysicalDisplayId : DisplayId {};
#endif

#if VERSION == 12
// frameworks/native, libs/gui/include/gui/DisplayEventDispatcher.h
struct VsyncEventData {
    int64_t id, deadlineTimestamp, frameInterval;
};
#elif VERSION >= 13
// frameworks/native, libs/gui/include/gui/VsyncEventData.h
namespace gui {
struct VsyncEventData {
    int64_t frameInterval;
    uint32_t preferredFrameTimelineIndex;
#if VERSION >= 14
    uint32_t frameTimelinesLength;
#endif
#if VERSION >= 16
    uint32_t numberQueuedBuffers;
#endif
    struct alignas(8) FrameTimeline {
        int64_t vsyncId, deadlineTimestamp, expectedPresentationTime;
    } frameTimelines[7];
};
}
using gui::VsyncEventData;
#endif

// frameworks/native, libs/gui/include/gui/DisplayEventDispatcher.h; until 11 in frameworks/base,
// libs/androidfw/include/androidfw/DisplayEventDispatcher.h
class NativeDisplayEventReceiver {
  public:
    virtual ~NativeDisplayEventReceiver() {}
#if VERSION <= 11
    virtual void dispatchVsync(nsecs_t timestamp, PhysicalDisplayId displayId, uint32_t count);
#else
    virtual void dispatchVsync(nsecs_t timestamp, PhysicalDisplayId displayId, uint32_t count,
                               VsyncEventData vsyncEventData);
#endif
    // What has come, for the test.
    int64_t vsyncs[1000][4];
    int vsync_count = 0;
};

// frameworks/native, libs/binder/include/binder/Parcel.h
class Parcel {};

// frameworks/native, libs/binder/include/binder/IPCThreadState.h
class IPCThreadState {
  public:
    static IPCThreadState *self();
    status_t transact(int32_t handle, uint32_t code, const Parcel &data, Parcel *reply, uint32_t flags);
};

// frameworks/native, libs/binder/include/binder/BpBinder.h
class BpBinder {
  public:
    virtual ~BpBinder() {}
    virtual status_t transact(uint32_t code, const Parcel &data, Parcel *reply, uint32_t flags = 0);
    int32_t handle;
};

#ifdef LIBUTILS
// system/core, libutils/Looper.cpp
Looper::Looper(bool) : epoll(epoll_create1(EPOLL_CLOEXEC)), event(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC))
{
    epoll_event wanted = {};
    wanted.events = EPOLLIN;
    wanted.data.fd = event;
    epoll_ctl(epoll, EPOLL_CTL_ADD, event, &wanted);
}

int Looper::addFd(int fd, int, int, Looper_callbackFunc function, void *data)
{
    callbackFd = fd, callback = function, callbackData = data;
    epoll_event wanted = {};
    wanted.events = EPOLLIN;
    wanted.data.fd = fd;
    return epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &wanted) ? -1 : 1;
}

int Looper::pollOnce(int timeoutMillis, int *, int *, void **)
{
    Log &log = stand_in_log;
    if (log.iteration_count && !log.iterations[log.iteration_count - 1].end)
        log.iterations[log.iteration_count - 1].end = now();
    return pollInner(timeoutMillis);
}

int Looper::pollInner(int timeoutMillis)
{
    Log &log = stand_in_log;
    epoll_event events[16];
    int64_t begin = now();
    int count = epoll_wait(epoll, events, 16, timeoutMillis);
    int64_t end = now();
    log.polls[log.poll_count++] = { begin, end, count, 0 };
    log.iterations[log.iteration_count++] = { end, 0, 0, 0 };
    int result = count ? -1 : -3;
    for (int i = 0; i < count; i++) {
        uint64_t number;
        if (events[i].data.fd == event)
            quietly(SYS_read, event, (long)&number, sizeof number);
        else {
            callback(callbackFd, 1, callbackData);
            result = -2;
        }
    }
    return result;
}

void Looper::wake()
{
    uint64_t one = 1;
    quietly(SYS_write, event, (long)&one, sizeof one);
}
#endif

#ifdef LIBANDROID_RUNTIME
void NativeMessageQueue::pollOnce(_JNIEnv *, _jobject *, int timeoutMillis)
{
    looper->pollOnce(timeoutMillis, nullptr, nullptr, nullptr);
}

#if VERSION <= 11
void NativeDisplayEventReceiver::dispatchVsync(nsecs_t timestamp, PhysicalDisplayId displayId, uint32_t count)
{
    int64_t number = 0, expected = 0;
#else
void NativeDisplayEventReceiver::dispatchVsync(nsecs_t timestamp, PhysicalDisplayId displayId, uint32_t count,
                                               VsyncEventData data)
{
#if VERSION == 12
    int64_t number = data.id, expected = 0;
#else
    auto &timeline = data.frameTimelines[data.preferredFrameTimelineIndex];
    int64_t number = timeline.vsyncId, expected = timeline.expectedPresentationTime;
#endif
#endif
    int64_t display;
    memcpy(&display, &displayId, sizeof displayId);
    if ((int32_t)display != 77)
        abort();
    int64_t vsync[4] = { timestamp, count, number, expected };
    memcpy(vsyncs[vsync_count++], vsync, sizeof vsync);
}
#endif

#ifdef LIBBINDER
IPCThreadState *IPCThreadState::self()
{
    static IPCThreadState one;
    return &one;
}

// frameworks/native, libs/binder/IPCThreadState.cpp: a call that is not one-way waits for its reply.
status_t IPCThreadState::transact(int32_t handle, uint32_t code, const Parcel &, Parcel *, uint32_t flags)
{
    if (flags & 1)
        return 0;
    Log &log = stand_in_log;
    int64_t begin = now();
    rest(6);
#ifdef COMPUTES
    // For longer than there is between two samples, whoever else wants the processor.
    for (int64_t until = cpu() + 6000000; cpu() < until;) {
    }
#endif
    status_t status = code == 9 ? -32 : 0;
    log.calls[log.call_count++] = { begin, now(), (int64_t)((uint64_t)code << 32 | (uint32_t)handle), status };
    return status;
}

// frameworks/native, libs/binder/BpBinder.cpp
status_t BpBinder::transact(uint32_t code, const Parcel &data, Parcel *reply, uint32_t flags)
{
    return IPCThreadState::self()->transact(handle, code, data, reply, flags);
}
#endif

}

#ifdef PROGRAM
using namespace android;

Log stand_in_log;

enum { ITERATIONS = 40, CALLS = 20, ONE_WAY = 15 };
static Looper *looper;
static NativeDisplayEventReceiver *receiver;
static int pipe_ends[2];
// How many messages have been handled.
static int handled;

// Each message and each vsync comes a while after the one before it was handled.
static void *sender(void *)
{
    for (int64_t i = 0; i < ITERATIONS; i++) {
        while (__atomic_load_n(&handled, __ATOMIC_ACQUIRE) < i)
            rest(1);
        rest(9);
        if (i % 4 == 3)
            quietly(SYS_write, pipe_ends[1], (long)&i, sizeof i);
        else
            looper->wake();
    }
    return nullptr;
}

// frameworks/native, libs/gui/DisplayEventDispatcher.cpp: tells whoever waits for it.
static int handle_event(int fd, int, void *data)
{
    int64_t number;
    quietly(SYS_read, fd, (long)&number, sizeof number);
    auto *receiver = (NativeDisplayEventReceiver *)data;
    int64_t time = now();
    uint32_t count = 100 + number;
#if VERSION <= 11
    receiver->dispatchVsync(time, PhysicalDisplayId(77), count);
#else
    PhysicalDisplayId display;
    display.value = 77;
#if VERSION == 12
    VsyncEventData event = { 5000 + number, time + 11000000, 16666667 };
#else
    VsyncEventData event = {};
    event.frameInterval = 16666667;
    event.preferredFrameTimelineIndex = 1;
#if VERSION >= 14
    event.frameTimelinesLength = 7;
#endif
#if VERSION >= 16
    event.numberQueuedBuffers = 1;
#endif
    for (int i = 0; i < 7; i++) {
        int64_t shown = time + 16666667 * (i + 1);
        event.frameTimelines[i] = { 5000 + number + i, shown - 5000000, shown };
    }
#endif
    receiver->dispatchVsync(time, display, count, event);
#endif
    rest(2);
    return 1;
}

// APP-LIBRARY FOLDER
int main(int, char **arguments)
{
    App app(arguments[1]);
    looper = new Looper(false);
    receiver = new NativeDisplayEventReceiver;
    if (pipe2(pipe_ends, O_CLOEXEC) || looper->addFd(pipe_ends[0], 0, 1, handle_event, receiver) != 1)
        return 1;
    NativeMessageQueue queue;
    queue.looper = looper;
    BpBinder *binder = new BpBinder;
    Parcel parcel;
    for (int session = 0; session < 2; session++) {
        stand_in_log = {};
        receiver->vsync_count = handled = 0;
        printf("trace %s\n", app.start(arguments[2]));
        pthread_t thread;
        pthread_create(&thread, nullptr, sender, nullptr);
        // What android.os.Looper.loop does in Java: polls, and handles a message.
        for (int i = 0; i < ITERATIONS; i++) {
            queue.pollOnce(nullptr, nullptr, -1);
            rest(3);
            __atomic_add_fetch(&handled, 1, __ATOMIC_RELEASE);
        }
        pthread_join(thread, nullptr);
        for (int i = 0; i < CALLS; i++) {
            binder->handle = 3 + i;
            if (binder->transact(i % 10, parcel, &parcel) != (i % 10 == 9 ? -32 : 0))
                return 1;
        }
        for (int i = 0; i < ONE_WAY; i++)
            binder->transact(700, parcel, nullptr, 1);
        printf("%s\n", app.doctor());
        app.stop();
        // Nothing of a session is left in the code and the slots: this is in no trace.
        int64_t more = 3;
        quietly(SYS_write, pipe_ends[1], (long)&more, sizeof more);
        queue.pollOnce(nullptr, nullptr, -1);
        binder->transact(1, parcel, &parcel);
        Log &log = stand_in_log;
        for (int i = 0; i < log.poll_count - 1; i++)
            printf("poll %lld %lld\n", (long long)log.polls[i].begin, (long long)log.polls[i].end);
        for (int i = 0; i < log.iteration_count - 1; i++)
            printf("iteration %lld %lld\n", (long long)log.iterations[i].begin, (long long)log.iterations[i].end);
        for (int i = 0; i < log.call_count - 1; i++)
            printf("call %lld %lld %lld %lld\n", (long long)log.calls[i].begin, (long long)log.calls[i].end,
                   (long long)log.calls[i].value, (long long)log.calls[i].result);
        for (int i = 0; i < receiver->vsync_count - 1; i++) {
            int64_t *vsync = receiver->vsyncs[i];
            printf("vsync %lld %lld %lld %lld\n", (long long)vsync[0], (long long)vsync[1], (long long)vsync[2],
                   (long long)vsync[3]);
        }
    }
    return 0;
}
#endif
