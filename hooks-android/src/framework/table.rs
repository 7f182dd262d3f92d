//! The functions of Android's framework that are hooked: one row for each signature, with the versions that
//! have it.
//!
//! The names are those of 64-bit libraries. Sources are paths in AOSP; they were read in public copies of
//! several versions, not at tags. No image of a device was looked at:
//! that devices have these names in these libraries, stack traces in public reports of crashes say
//! (docs/platforms/android.md).

/// A function that is hooked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Function {
    /// Waits for what a thread's loop of messages does next, and runs what native code does then.
    PollOnce,
    /// A frame of the display begins: Choreographer is told.
    DispatchVsync,
    /// A call of another process.
    Transact,
}

impl Function {
    /// All of them.
    pub const ALL: [Function; 3] = [
        Function::PollOnce,
        Function::DispatchVsync,
        Function::Transact,
    ];

    /// The name that `doctor` says.
    pub const fn name(self) -> &'static str {
        match self {
            Function::PollOnce => "PollOnce",
            Function::DispatchVsync => "DispatchVsync",
            Function::Transact => "Transact",
        }
    }

    /// The library that has it.
    pub const fn library(self) -> &'static str {
        match self {
            Function::PollOnce => "libutils.so",
            Function::DispatchVsync => "libandroid_runtime.so",
            Function::Transact => "libbinder.so",
        }
    }
}

/// What a vsync says of its frame, by where it lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data {
    /// Nothing.
    None,
    /// `android::VsyncEventData`: the frame's number comes first.
    Number,
    /// `android::gui::VsyncEventData`: the interval, which timeline is preferred, and timelines.
    Timelines,
}

/// A row of the table.
#[derive(Debug)]
pub struct Row {
    /// What it is.
    pub function: Function,
    /// The first and the last Android version with this signature.
    pub versions: (u8, u8),
    /// The mangled name.
    pub symbol: &'static str,
    /// What it takes and gives, as the ABI has it.
    pub abi: &'static str,
    /// Where AOSP declares it.
    pub source: &'static str,
    /// What comes with a vsync.
    pub data: Data,
}

/// The table.
pub const ROWS: &[Row] = &[
    Row {
        function: Function::PollOnce,
        versions: (8, 16),
        symbol: "_ZN7android6Looper8pollOnceEiPiS1_PPv",
        abi: "(this, int timeout_ms, int* fd, int* events, void** data) -> int",
        source: "system/core, libutils/include/utils/Looper.h",
        data: Data::None,
    },
    Row {
        function: Function::DispatchVsync,
        versions: (8, 9),
        symbol: "_ZN7android26NativeDisplayEventReceiver13dispatchVsyncElij",
        abi: "(this, nsecs_t timestamp, int32_t display, uint32_t count)",
        source: "frameworks/base, core/jni/android_view_DisplayEventReceiver.cpp",
        data: Data::None,
    },
    Row {
        function: Function::DispatchVsync,
        versions: (10, 11),
        symbol: "_ZN7android26NativeDisplayEventReceiver13dispatchVsyncElmj",
        abi: "(this, nsecs_t timestamp, PhysicalDisplayId = uint64_t, uint32_t count)",
        source: "frameworks/base, core/jni/android_view_DisplayEventReceiver.cpp",
        data: Data::None,
    },
    Row {
        function: Function::DispatchVsync,
        versions: (12, 12),
        symbol: "_ZN7android26NativeDisplayEventReceiver13dispatchVsyncElNS_17PhysicalDisplayIdEjNS_14VsyncEventDataE",
        abi: "(this, nsecs_t timestamp, PhysicalDisplayId in a register, uint32_t count, VsyncEventData in memory)",
        source: "frameworks/native, libs/gui/include/gui/DisplayEventDispatcher.h",
        data: Data::Number,
    },
    Row {
        function: Function::DispatchVsync,
        versions: (13, 16),
        symbol: "_ZN7android26NativeDisplayEventReceiver13dispatchVsyncElNS_17PhysicalDisplayIdEjNS_3gui14VsyncEventDataE",
        abi: "(this, nsecs_t timestamp, PhysicalDisplayId in a register, uint32_t count, VsyncEventData in memory)",
        source: "frameworks/native, libs/gui/include/gui/VsyncEventData.h",
        data: Data::Timelines,
    },
    Row {
        function: Function::Transact,
        versions: (8, 16),
        symbol: "_ZN7android14IPCThreadState8transactEijRKNS_6ParcelEPS1_j",
        abi: "(this, int32_t handle, uint32_t code, const Parcel&, Parcel* reply, uint32_t flags) -> status_t",
        source: "frameworks/native, libs/binder/include/binder/IPCThreadState.h",
        data: Data::None,
    },
];
