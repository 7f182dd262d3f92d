// What AOSP's headers declare of the functions that the table of versions names, written anew from them: a compiler
// says the mangled names. VERSION is Android's (8 is 8.0); DEVICE: the C++ library is libc++. Sources: platform/art
// at the tags of hooks-android/src/art/versions.rs, in the files that are named here.
#include <stddef.h>
#include <stdint.h>

#ifdef DEVICE
// libc++ declares it in an inline namespace.
namespace std {
inline namespace __1 {
class string { char place[24]; };
}
}
#else
#include <string>
#endif

struct _JNIEnv;

namespace art {

namespace mirror {
class Object;
class ClassLoader;
class Class;
}
class Context;
class Thread;
class ArtMethod;
template <class T> class ObjPtr { T *reference; };
template <class T> class Handle { T *reference; };
enum class ThreadState;

#if VERSION <= 9
using ObjectArgument = mirror::Object *;
using ClassResult = mirror::Class *;
#else
using ObjectArgument = ObjPtr<mirror::Object>;
using ClassResult = ObjPtr<mirror::Class>;
#endif

// runtime/stack.h
class StackVisitor {
  public:
    enum class StackWalkKind { kIncludeInlinedFrames, kSkipInlinedFrames };
    enum class CountTransitions { kYes, kNo };
    StackVisitor(Thread *, Context *, StackWalkKind, bool);
    template <CountTransitions> void WalkStack(bool);
    ArtMethod *GetMethod() const;
    uint32_t GetDexPc(bool) const;
};

// runtime/art_method.h
class ArtMethod {
  public:
    static std::string PrettyMethod(ArtMethod *, bool);
};

// runtime/thread.h
class Thread {
  public:
    static unsigned pthread_key_self_;
    void Park(bool, int64_t);
    void Unpark();
#if VERSION <= 11
    void ResetQuickAllocEntryPointsForThread(bool);
#else
    void ResetQuickAllocEntryPointsForThread();
#endif
#if VERSION <= 12
    void FullSuspendCheck();
#else
    void FullSuspendCheck(bool);
#endif
};

// runtime/monitor.h
enum class LockReason { kForWait, kForLock };
class Monitor {
  public:
    static void TranslateLocation(ArtMethod *, uint32_t, const char **, int32_t *);
    static void Wait(Thread *, ObjectArgument, int64_t, int32_t, bool, ThreadState);
    static void DoNotify(Thread *, ObjectArgument, bool);
    static ObjectArgument MonitorEnter(Thread *, ObjectArgument, bool);
    void Wait(Thread *, int64_t, int32_t, bool, ThreadState);
    bool Unlock(Thread *);
#if VERSION <= 8
    void Lock(Thread *);
#else
    template <LockReason> void Lock(Thread *);
#endif
};

// runtime/class_linker.h
namespace dex {
struct ClassDef;
}
class DexFile {
  public:
    struct ClassDef;
};
class ClassLinker {
  public:
    struct ClassLoaderData;
#if VERSION <= 8
    void DeleteClassLoader(Thread *, const ClassLoaderData &);
#else
    void DeleteClassLoader(Thread *, const ClassLoaderData &, bool);
#endif
#if VERSION <= 9
    ClassResult DefineClass(Thread *, const char *, size_t, Handle<mirror::ClassLoader>, const DexFile &,
                            const DexFile::ClassDef &);
#elif VERSION <= 15
    ClassResult DefineClass(Thread *, const char *, size_t, Handle<mirror::ClassLoader>, const DexFile &,
                            const dex::ClassDef &);
#else
    ClassResult DefineClass(Thread *, const char *, size_t, size_t, Handle<mirror::ClassLoader>, const DexFile &,
                            const dex::ClassDef &);
#endif
};

// runtime/thread_list.h
class ScopedSuspendAll {
  public:
    ScopedSuspendAll(const char *, bool);
    ~ScopedSuspendAll();
};
enum class SuspendReason : char { kInternal };
class Closure;
class ThreadList {
  public:
    void ResumeAll();
#if VERSION <= 14
    size_t RunCheckpoint(Closure *, Closure *);
#elif VERSION <= 15
    size_t RunCheckpoint(Closure *, Closure *, bool);
#else
    size_t RunCheckpoint(Closure *, Closure *, bool, bool);
#endif
#if VERSION <= 8
    Thread *SuspendThreadByThreadId(uint32_t, bool, bool *);
    void Resume(Thread *, bool);
#else
    bool Resume(Thread *, SuspendReason);
#if VERSION <= 14
    Thread *SuspendThreadByThreadId(uint32_t, SuspendReason, bool *);
#else
    Thread *SuspendThreadByThreadId(uint32_t, SuspendReason, int);
#endif
#endif
};

// runtime/gc/heap.h, runtime/gc/allocation_listener.h
namespace gc {
enum GcCause : int;
namespace collector {
enum GcType : int;
}
class AllocationListener;
class Heap {
  public:
    collector::GcType WaitForGcToComplete(GcCause, Thread *);
#if VERSION <= 11
    collector::GcType CollectGarbageInternal(collector::GcType, GcCause, bool);
#else
    collector::GcType CollectGarbageInternal(collector::GcType, GcCause, bool, uint32_t);
#endif
    void FinishGC(Thread *, collector::GcType);
    void RegisterNativeAllocation(_JNIEnv *, size_t);
    void SetAllocationListener(AllocationListener *);
    void RemoveAllocationListener();
};
}

// runtime/instrumentation.h
namespace instrumentation {
class Instrumentation {
  public:
    void SetEntrypointsInstrumented(bool);
};
}

// runtime/runtime.h
class Runtime {
  public:
    static Runtime *instance_;
    bool IsShuttingDown(Thread *);
};

// runtime/entrypoints/quick/quick_alloc_entrypoints.h
void SetQuickAllocEntryPointsInstrumented(bool);

// runtime/entrypoints/quick/quick_jni_entrypoints.cc
#if VERSION <= 12
extern uint32_t JniMethodStart(Thread *);
#else
extern "C" void artJniMethodStart(Thread *);
#endif

// runtime/interpreter/mterp/nterp.h
namespace interpreter {
const void *GetNterpEntryPoint();
}

// A base class' constructor and destructor have names of their own.
struct Visitor : StackVisitor {
    Visitor() : StackVisitor(nullptr, nullptr, StackWalkKind(), false) {}
};
struct Suspended : ScopedSuspendAll {
    Suspended() : ScopedSuspendAll("", false) {}
};

template <class T> T &any();

// Never called: its calls ask for the names.
void ask() {
    Thread *thread = nullptr;
    Visitor visitor;
    visitor.WalkStack<StackVisitor::CountTransitions::kYes>(false);
    visitor.GetMethod();
    visitor.GetDexPc(false);
    ArtMethod::PrettyMethod(nullptr, false);
    Thread::pthread_key_self_ = 0;
    Monitor::TranslateLocation(nullptr, 0, nullptr, nullptr);
    Monitor::Wait(thread, ObjectArgument(), 0, 0, false, ThreadState());
    Monitor::DoNotify(thread, ObjectArgument(), false);
    Monitor::MonitorEnter(thread, ObjectArgument(), false);
    Monitor &monitor = any<Monitor>();
    monitor.Wait(thread, 0, 0, false, ThreadState());
    monitor.Unlock(thread);
    ClassLinker &linker = any<ClassLinker>();
    auto &data = any<ClassLinker::ClassLoaderData>();
    ThreadList &threads = any<ThreadList>();
    threads.ResumeAll();
#if VERSION <= 14
    threads.RunCheckpoint(nullptr, nullptr);
#elif VERSION <= 15
    threads.RunCheckpoint(nullptr, nullptr, false);
#else
    threads.RunCheckpoint(nullptr, nullptr, false, false);
#endif
    any<instrumentation::Instrumentation>().SetEntrypointsInstrumented(true);
    SetQuickAllocEntryPointsInstrumented(true);
    Runtime::instance_->IsShuttingDown(thread);
#if VERSION <= 11
    thread->ResetQuickAllocEntryPointsForThread(true);
#else
    thread->ResetQuickAllocEntryPointsForThread();
#endif
#if VERSION <= 8
    monitor.Lock(thread);
    linker.DeleteClassLoader(thread, data);
    threads.SuspendThreadByThreadId(0, false, nullptr);
    threads.Resume(thread, false);
#else
    monitor.Lock<LockReason::kForLock>(thread);
    linker.DeleteClassLoader(thread, data, false);
    threads.SuspendThreadByThreadId(0, SuspendReason::kInternal, 0);
    threads.Resume(thread, SuspendReason::kInternal);
#endif
    Handle<mirror::ClassLoader> loader;
#if VERSION <= 9
    linker.DefineClass(thread, "", 0, loader, any<DexFile>(), any<DexFile::ClassDef>());
#elif VERSION <= 15
    linker.DefineClass(thread, "", 0, loader, any<DexFile>(), any<dex::ClassDef>());
#else
    linker.DefineClass(thread, "", 0, 0, loader, any<DexFile>(), any<dex::ClassDef>());
#endif
    Suspended suspended;
    gc::Heap &heap = any<gc::Heap>();
    heap.WaitForGcToComplete(gc::GcCause(), thread);
#if VERSION <= 11
    heap.CollectGarbageInternal(gc::collector::GcType(), gc::GcCause(), false);
#else
    heap.CollectGarbageInternal(gc::collector::GcType(), gc::GcCause(), false, 0);
#endif
    heap.FinishGC(thread, gc::collector::GcType());
    heap.RegisterNativeAllocation(nullptr, 0);
    heap.SetAllocationListener(nullptr);
    heap.RemoveAllocationListener();
#if VERSION <= 12
    thread->FullSuspendCheck();
#else
    thread->FullSuspendCheck(false);
#endif
#if VERSION >= 10
    thread->Park(false, 0);
    thread->Unpark();
#endif
#if VERSION >= 11
    interpreter::GetNterpEntryPoint();
#endif
#if VERSION <= 12
    JniMethodStart(thread);
#else
    artJniMethodStart(thread);
#endif
}

} // namespace art
