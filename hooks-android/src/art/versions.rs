//! The functions of ART that stackbeat calls or hooks: one row for each signature, with the Android versions
//! that have it.
//!
//! `device` is the name in an Android build, where the C++ library is libc++. `host` is given where a build
//! with libstdc++ (as Debian's) has another one. Each row names its source in AOSP's platform/art. The
//! declarations were read at the tags android-8.0.0_r1, 8.1.0_r1, 9.0.0_r1, 10.0.0_r1, 11.0.0_r1, 12.0.0_r1,
//! 13.0.0_r1, 14.0.0_r1, 15.0.0_r1 and android-16-beta-3-gpl; those of entry points, checkpoints, `Runtime`
//! and `ResumeAll` in forks of it: LineageOS' branches 15.0 to 19.1 (8 to 12L), GrapheneOS' 13 and 14,
//! HertzifyOS' 16 (of 15 only `RunCheckpoint` was seen). Real libraries were looked at for 11 and 14
//! (docs/platforms/android.md).

/// A function of ART, or a datum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the rows say what they are")]
pub enum Function {
    SelfKey,
    StackVisitor,
    WalkStack,
    GetMethod,
    GetDexPc,
    PrettyMethod,
    TranslateLocation,
    NterpEntry,
    DeleteClassLoader,
    SuspendAll,
    ResumeAll,
    MonitorEnter,
    MonitorLock,
    MonitorUnlock,
    MonitorWait,
    WaitForObject,
    MonitorNotify,
    Park,
    Unpark,
    FullSuspendCheck,
    WaitForGc,
    CollectGarbage,
    FinishGc,
    RegisterNativeAllocation,
    SetAllocationListener,
    RemoveAllocationListener,
    JniMethodStart,
    DefineClass,
    SetEntrypointsInstrumented,
    SetAllocationInstrumented,
    ResetEntryPoints,
    RunCheckpoint,
    Runtime,
    IsShuttingDown,
    ResumeAllThreads,
    SuspendThread,
    ResumeThread,
}

/// A row of the table.
#[derive(Debug)]
pub struct Row {
    /// What it is.
    pub function: Function,
    /// The first and the last Android version with this signature.
    pub versions: (u8, u8),
    /// The mangled name in an Android build.
    pub device: &'static str,
    /// The same with libstdc++, where it differs.
    pub host: Option<&'static str>,
    /// What it takes and gives, as the ABI has it.
    pub abi: &'static str,
    /// Where AOSP declares it.
    pub source: &'static str,
}

/// The oldest version.
pub const OLDEST: u8 = 8;
/// The newest one.
pub const NEWEST: u8 = 16;

const fn row(
    function: Function,
    versions: (u8, u8),
    device: &'static str,
    abi: &'static str,
    source: &'static str,
) -> Row {
    Row {
        function,
        versions,
        device,
        host: None,
        abi,
        source,
    }
}

const fn with_host(row: Row, host: &'static str) -> Row {
    Row {
        host: Some(host),
        ..row
    }
}

/// The table.
pub const ROWS: &[Row] = &[
    row(
        Function::SelfKey,
        (8, 16),
        "_ZN3art6Thread17pthread_key_self_E",
        "pthread_key_t: a thread's Thread*; bionic has a slot of its own beside it",
        "runtime/thread.h",
    ),
    row(
        Function::StackVisitor,
        (8, 16),
        "_ZN3art12StackVisitorC2EPNS_6ThreadEPNS_7ContextENS0_13StackWalkKindEb",
        "(this, Thread*, Context* or null, 0 = with inlined frames, bool check_suspended)",
        "runtime/stack.h",
    ),
    row(
        Function::WalkStack,
        (8, 16),
        "_ZN3art12StackVisitor9WalkStackILNS0_16CountTransitionsE0EEEvb",
        "(this, bool include_transitions); calls VisitFrame, the third function of the virtual table",
        "runtime/stack.h",
    ),
    row(
        Function::GetMethod,
        (8, 16),
        "_ZNK3art12StackVisitor9GetMethodEv",
        "(this) -> ArtMethod*",
        "runtime/stack.h",
    ),
    row(
        Function::GetDexPc,
        (8, 16),
        "_ZNK3art12StackVisitor8GetDexPcEb",
        "(this, bool abort_on_failure) -> uint32_t",
        "runtime/stack.h",
    ),
    with_host(
        row(
            Function::PrettyMethod,
            (8, 16),
            "_ZN3art9ArtMethod12PrettyMethodEPS0_b",
            "(ArtMethod*, bool with_signature) -> std::string, by a hidden first argument",
            "runtime/art_method.h",
        ),
        "_ZN3art9ArtMethod12PrettyMethodB5cxx11EPS0_b",
    ),
    row(
        Function::TranslateLocation,
        (8, 16),
        "_ZN3art7Monitor17TranslateLocationEPNS_9ArtMethodEjPPKcPi",
        "static: (ArtMethod*, uint32_t dex_pc, const char** file, int32_t* line)",
        "runtime/monitor.h",
    ),
    row(
        Function::NterpEntry,
        (11, 16),
        "_ZN3art11interpreter18GetNterpEntryPointEv",
        "() -> const void*: where nterp's code begins",
        "runtime/interpreter/mterp/nterp.h",
    ),
    row(
        Function::DeleteClassLoader,
        (8, 8),
        "_ZN3art11ClassLinker17DeleteClassLoaderEPNS_6ThreadERKNS0_15ClassLoaderDataE",
        "(this, Thread*, const ClassLoaderData&)",
        "runtime/class_linker.h",
    ),
    row(
        Function::DeleteClassLoader,
        (9, 16),
        "_ZN3art11ClassLinker17DeleteClassLoaderEPNS_6ThreadERKNS0_15ClassLoaderDataEb",
        "(this, Thread*, const ClassLoaderData&, bool cleanup_cha)",
        "runtime/class_linker.h",
    ),
    row(
        Function::SuspendAll,
        (8, 16),
        "_ZN3art16ScopedSuspendAllC2EPKcb",
        "(this, const char* cause, bool long_suspend); the object has no fields",
        "runtime/thread_list.h",
    ),
    row(
        Function::ResumeAll,
        (8, 16),
        "_ZN3art16ScopedSuspendAllD2Ev",
        "(this)",
        "runtime/thread_list.h",
    ),
    row(
        Function::MonitorEnter,
        (10, 16),
        "_ZN3art7Monitor12MonitorEnterEPNS_6ThreadENS_6ObjPtrINS_6mirror6ObjectEEEb",
        "static: (Thread*, ObjPtr<Object> in a register, bool trylock) -> ObjPtr<Object>: hooked for a moment, to count",
        "runtime/monitor.h",
    ),
    row(
        Function::MonitorLock,
        (8, 8),
        "_ZN3art7Monitor4LockEPNS_6ThreadE",
        "(this, Thread*)",
        "runtime/monitor.h",
    ),
    row(
        Function::MonitorLock,
        (9, 16),
        "_ZN3art7Monitor4LockILNS_10LockReasonE1EEEvPNS_6ThreadE",
        "(this, Thread*)",
        "runtime/monitor.h",
    ),
    row(
        Function::MonitorUnlock,
        (8, 16),
        "_ZN3art7Monitor6UnlockEPNS_6ThreadE",
        "(this, Thread*) -> bool",
        "runtime/monitor.h",
    ),
    row(
        Function::MonitorWait,
        (8, 16),
        "_ZN3art7Monitor4WaitEPNS_6ThreadElibNS_11ThreadStateE",
        "(this, Thread*, int64_t ms, int32_t ns, bool interrupt_should_throw, ThreadState)",
        "runtime/monitor.h",
    ),
    row(
        Function::WaitForObject,
        (8, 9),
        "_ZN3art7Monitor4WaitEPNS_6ThreadEPNS_6mirror6ObjectElibNS_11ThreadStateE",
        "static: (Thread*, Object*, int64_t ms, int32_t ns, bool, ThreadState)",
        "runtime/monitor.h",
    ),
    row(
        Function::WaitForObject,
        (10, 16),
        "_ZN3art7Monitor4WaitEPNS_6ThreadENS_6ObjPtrINS_6mirror6ObjectEEElibNS_11ThreadStateE",
        "static: (Thread*, ObjPtr<Object> in a register, int64_t ms, int32_t ns, bool, ThreadState)",
        "runtime/monitor.h",
    ),
    row(
        Function::MonitorNotify,
        (8, 9),
        "_ZN3art7Monitor8DoNotifyEPNS_6ThreadEPNS_6mirror6ObjectEb",
        "static: (Thread*, Object*, bool notify_all)",
        "runtime/monitor.h",
    ),
    row(
        Function::MonitorNotify,
        (10, 16),
        "_ZN3art7Monitor8DoNotifyEPNS_6ThreadENS_6ObjPtrINS_6mirror6ObjectEEEb",
        "static: (Thread*, ObjPtr<Object> in a register, bool notify_all)",
        "runtime/monitor.h",
    ),
    row(
        Function::Park,
        (10, 16),
        "_ZN3art6Thread4ParkEbl",
        "(this, bool is_absolute, int64_t time)",
        "runtime/thread.h",
    ),
    row(
        Function::Unpark,
        (10, 16),
        "_ZN3art6Thread6UnparkEv",
        "(this)",
        "runtime/thread.h",
    ),
    row(
        Function::FullSuspendCheck,
        (8, 12),
        "_ZN3art6Thread16FullSuspendCheckEv",
        "(this): a thread that runs Java code is to be suspended, and comes here",
        "runtime/thread.h",
    ),
    row(
        Function::FullSuspendCheck,
        (13, 16),
        "_ZN3art6Thread16FullSuspendCheckEb",
        "(this, bool implicit)",
        "runtime/thread.h",
    ),
    row(
        Function::WaitForGc,
        (8, 16),
        "_ZN3art2gc4Heap19WaitForGcToCompleteENS0_7GcCauseEPNS_6ThreadE",
        "(this, GcCause, Thread*) -> GcType",
        "runtime/gc/heap.h",
    ),
    row(
        Function::CollectGarbage,
        (8, 11),
        "_ZN3art2gc4Heap22CollectGarbageInternalENS0_9collector6GcTypeENS0_7GcCauseEb",
        "(this, GcType, GcCause, bool clear_soft_references) -> GcType: tells 11 from 12",
        "runtime/gc/heap.h",
    ),
    row(
        Function::CollectGarbage,
        (12, 16),
        "_ZN3art2gc4Heap22CollectGarbageInternalENS0_9collector6GcTypeENS0_7GcCauseEbj",
        "(this, GcType, GcCause, bool clear_soft_references, uint32_t requested_gc_num) -> GcType",
        "runtime/gc/heap.h",
    ),
    row(
        Function::FinishGc,
        (8, 16),
        "_ZN3art2gc4Heap8FinishGCEPNS_6ThreadENS0_9collector6GcTypeE",
        "(this, Thread*, GcType)",
        "runtime/gc/heap.h",
    ),
    row(
        Function::RegisterNativeAllocation,
        (8, 16),
        "_ZN3art2gc4Heap24RegisterNativeAllocationEP7_JNIEnvm",
        "(this, JNIEnv*, size_t bytes): hooked to learn where the heap is",
        "runtime/gc/heap.h",
    ),
    row(
        Function::SetAllocationListener,
        (8, 16),
        "_ZN3art2gc4Heap21SetAllocationListenerEPNS0_18AllocationListenerE",
        "(this, AllocationListener*); when there was none: calls SetEntrypointsInstrumented(true)",
        "runtime/gc/heap.h",
    ),
    row(
        Function::RemoveAllocationListener,
        (8, 16),
        "_ZN3art2gc4Heap24RemoveAllocationListenerEv",
        "(this); when there was one: calls SetEntrypointsInstrumented(false)",
        "runtime/gc/heap.h",
    ),
    row(
        Function::JniMethodStart,
        (8, 12),
        "_ZN3art14JniMethodStartEPNS_6ThreadE",
        "(Thread*) -> uint32_t",
        "runtime/entrypoints/quick/quick_jni_entrypoints.cc",
    ),
    row(
        Function::JniMethodStart,
        (13, 16),
        "artJniMethodStart",
        "(Thread*)",
        "runtime/entrypoints/quick/quick_jni_entrypoints.cc",
    ),
    row(
        Function::DefineClass,
        (8, 9),
        "_ZN3art11ClassLinker11DefineClassEPNS_6ThreadEPKcmNS_6HandleINS_6mirror11ClassLoaderEEERKNS_7DexFileERKNS9_8ClassDefE",
        "(this, Thread*, const char* descriptor, size_t hash, Handle, const DexFile&, const ClassDef&) -> Class*",
        "runtime/class_linker.h",
    ),
    row(
        Function::DefineClass,
        (10, 15),
        "_ZN3art11ClassLinker11DefineClassEPNS_6ThreadEPKcmNS_6HandleINS_6mirror11ClassLoaderEEERKNS_7DexFileERKNS_3dex8ClassDefE",
        "(this, Thread*, const char* descriptor, size_t hash, Handle, const DexFile&, const ClassDef&) -> ObjPtr<Class>",
        "runtime/class_linker.h",
    ),
    row(
        Function::DefineClass,
        (16, 16),
        "_ZN3art11ClassLinker11DefineClassEPNS_6ThreadEPKcmmNS_6HandleINS_6mirror11ClassLoaderEEERKNS_7DexFileERKNS_3dex8ClassDefE",
        "(this, Thread*, const char* descriptor, size_t length, size_t hash, Handle, const DexFile&, const ClassDef&)",
        "runtime/class_linker.h",
    ),
    row(
        Function::SetEntrypointsInstrumented,
        (8, 16),
        "_ZN3art15instrumentation15Instrumentation26SetEntrypointsInstrumentedEb",
        "(this, bool); suspends all threads, sets the word, resets each thread's entry points",
        "runtime/instrumentation.h",
    ),
    row(
        Function::SetAllocationInstrumented,
        (8, 16),
        "_ZN3art36SetQuickAllocEntryPointsInstrumentedEb",
        "(bool): sets the word that tells which entry points threads get",
        "runtime/entrypoints/quick/quick_alloc_entrypoints.h",
    ),
    row(
        Function::ResetEntryPoints,
        (8, 11),
        "_ZN3art6Thread35ResetQuickAllocEntryPointsForThreadEb",
        "(this, bool is_marking); a new thread gets those of true (quick_default_init_entrypoints.h)",
        "runtime/thread.h",
    ),
    row(
        Function::ResetEntryPoints,
        (12, 16),
        "_ZN3art6Thread35ResetQuickAllocEntryPointsForThreadEv",
        "(this)",
        "runtime/thread.h",
    ),
    row(
        Function::RunCheckpoint,
        (8, 14),
        "_ZN3art10ThreadList13RunCheckpointEPNS_7ClosureES2_",
        "(this, Closure*, Closure* callback or null) -> size_t; Closure: two destructors, then Run(Thread*)",
        "runtime/thread_list.h, runtime/thread_pool.h",
    ),
    row(
        Function::RunCheckpoint,
        (15, 15),
        "_ZN3art10ThreadList13RunCheckpointEPNS_7ClosureES2_b",
        "(this, Closure*, Closure* callback or null, bool allow_lock_checking) -> size_t",
        "runtime/thread_list.h, runtime/base/closure.h",
    ),
    row(
        Function::RunCheckpoint,
        (16, 16),
        "_ZN3art10ThreadList13RunCheckpointEPNS_7ClosureES2_bb",
        "(this, Closure*, Closure* callback or null, bool allow_lock_checking, bool acquire_mutator_lock) -> size_t",
        "runtime/thread_list.h, runtime/base/closure.h",
    ),
    row(
        Function::Runtime,
        (8, 16),
        "_ZN3art7Runtime9instance_E",
        "Runtime*",
        "runtime/runtime.h",
    ),
    row(
        Function::IsShuttingDown,
        (8, 16),
        "_ZN3art7Runtime14IsShuttingDownEPNS_6ThreadE",
        "(this, Thread*) -> bool: takes the lock under which a new thread gets its entry points and enters the list",
        "runtime/runtime.h, runtime/thread.cc",
    ),
    row(
        Function::ResumeAllThreads,
        (8, 16),
        "_ZN3art10ThreadList9ResumeAllEv",
        "(this): hooked to learn where the list is",
        "runtime/thread_list.h",
    ),
    row(
        Function::SuspendThread,
        (8, 8),
        "_ZN3art10ThreadList23SuspendThreadByThreadIdEjbPb",
        "8.0: (this, uint32_t thin-lock id, bool debug_suspension, bool* timed_out) -> Thread*; 8.1 as 9",
        "runtime/thread_list.h",
    ),
    row(
        Function::SuspendThread,
        (9, 14),
        "_ZN3art10ThreadList23SuspendThreadByThreadIdEjNS_13SuspendReasonEPb",
        "(this, uint32_t thin-lock id, SuspendReason, bool* timed_out) -> Thread*",
        "runtime/thread_list.h",
    ),
    row(
        Function::SuspendThread,
        (15, 16),
        "_ZN3art10ThreadList23SuspendThreadByThreadIdEjNS_13SuspendReasonEi",
        "(this, uint32_t thin-lock id, SuspendReason, int attempt_of_4) -> Thread*",
        "runtime/thread_list.h",
    ),
    row(
        Function::ResumeThread,
        (8, 8),
        "_ZN3art10ThreadList6ResumeEPNS_6ThreadEb",
        "8.0: (this, Thread*, bool for_debugger); 8.1 as 9",
        "runtime/thread_list.h",
    ),
    row(
        Function::ResumeThread,
        (9, 16),
        "_ZN3art10ThreadList6ResumeEPNS_6ThreadENS_13SuspendReasonE",
        "(this, Thread*, SuspendReason) -> bool",
        "runtime/thread_list.h",
    ),
];

/// Which version a library is of, by what it has: the newest one of those that fit it best. 13 and 14 have
/// the same rows.
pub fn of_library(has: impl Fn(&str) -> bool) -> Option<u8> {
    let fit = |version: u8| {
        let rows = ROWS.iter().filter(|row| row.is_of(version));
        let found = rows.map(|row| if row.names().any(&has) { 1 } else { -1 });
        found.sum::<i32>()
    };
    let best = (OLDEST..=NEWEST).max_by_key(|version| fit(*version))?;
    (fit(best) > 0).then_some(best)
}

impl Row {
    /// Whether this Android version has it.
    pub fn is_of(&self, version: u8) -> bool {
        (self.versions.0..=self.versions.1).contains(&version)
    }

    /// The names it may have.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        [Some(self.device), self.host].into_iter().flatten()
    }
}
