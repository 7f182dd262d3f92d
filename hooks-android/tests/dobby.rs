//! Dobby on x86-64 Linux: a library made here, zlib, SQLite, and threads that call what is being hooked.

use std::ffi::{c_int, c_uchar, c_uint, c_ulong, c_void};
use std::path::Path;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use stackbeat_android::backend::dobby::Dobby;
use stackbeat_android::backend::{HookBackend, HookError, Refusal, Request, place_all, remove_all};

use crate::library::{self, Library, code};

/// Functions that begin as compilers let functions begin, and some by hand.
const SOURCE: &str = r#"
static int state = 40;
int loads(int a) { return a + state; }
int branches(int a) { if (a > 3) return a * 7; state ^= a; return state; }
__attribute__((noinline)) int callee(int a) { return a * a + state; }
int calls(int a) { return callee(a + 1) + 1; }
int frames(int a) { volatile int b[16]; b[a & 15] = a; return b[a & 15] + 1; }
double floats(double a, double b) { return a * b + 0.5; }
__asm__(".text\n.globl padded\n.p2align 4\npadded: lea 1(%rdi), %eax\nret\n.p2align 4\n"
        ".globl tiny\ntiny: ret\n.globl after_tiny\nafter_tiny: lea 2(%rdi), %eax\nret\n.p2align 4\n"
        ".globl short_jump\nshort_jump: test %edi, %edi\njz 1f\nlea 3(%rdi), %eax\nret\n1: mov $77, %eax\nret\n.p2align 4\n"
        ".globl misaligned\n.skip 5\nmisaligned: lea 9(%rdi), %eax\nlea 1(%rax), %eax\nret\n.p2align 4\n"
        ".globl whole\nwhole: .byte 0x8d, 0x87, 1, 0, 0, 0\nret\n");
"#;

static ORIGINAL: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
static CALLS: AtomicU64 = AtomicU64::new(0);

type Int = unsafe extern "C" fn(c_int) -> c_int;

unsafe extern "C" fn thousand_more(a: c_int) -> c_int {
    CALLS.fetch_add(1, Ordering::Relaxed);
    // SAFETY: the original was set before the hook was there.
    let original: Int = unsafe { std::mem::transmute(ORIGINAL.load(Ordering::Acquire)) };
    // SAFETY: it has this signature.
    unsafe { original(a) + 1000 }
}

fn request(name: &'static str, target: *mut c_void, replacement: *const ()) -> Request {
    Request {
        name,
        target,
        size: 0,
        replacement: replacement.cast_mut().cast(),
        original: &ORIGINAL,
    }
}

fn refusal(result: Result<stackbeat_android::backend::Placed, HookError>) -> Refusal {
    match result {
        Err(HookError::Refused { why, .. }) => why,
        other => panic!("{other:?}"),
    }
}

/// One test: the statics above belong to one hook at a time.
#[test]
fn functions_are_hooked_called_through_and_restored() {
    let folder = tempfile::tempdir().unwrap();
    let made = Library::open(&library::build(folder.path(), "made", SOURCE, &[]));
    let dobby = Dobby::new();
    for name in ["loads", "calls", "frames", "padded", "misaligned", "whole"] {
        let target = made.address(name);
        // SAFETY: all of them take and give an int.
        let function: Int = unsafe { std::mem::transmute(target) };
        for round in 0..3 {
            let before = code(target);
            // SAFETY: as above.
            let plain = unsafe { (function(5), function(0)) };
            let hook = request(name, target, thousand_more as *const ());
            let calls = CALLS.load(Ordering::Relaxed);
            // SAFETY: the replacement has the signature, and the library stays.
            let placed = unsafe { dobby.place(&hook) }.unwrap();
            assert_ne!(code(target), before, "{name}");
            // SAFETY: as above.
            let again = refusal(unsafe { dobby.place(&hook) });
            assert_eq!(again, Refusal::AlreadyHooked);
            // SAFETY: as above.
            let hooked = unsafe { (function(5), function(0)) };
            let difference = (hooked.0 - plain.0, hooked.1 - plain.1);
            assert_eq!(difference, (1000, 1000), "{name} in round {round}");
            assert_eq!(CALLS.load(Ordering::Relaxed), calls + 2);
            // SAFETY: the library is loaded.
            unsafe { dobby.remove(placed) }.unwrap();
            assert_eq!(code(target), before, "{name} is restored");
            // SAFETY: as above.
            let again = unsafe { (function(5), function(0)) };
            assert_eq!(again, plain);
        }
    }
    refused(&dobby, &made);
    of_others(&dobby, &made);
    real_libraries(&dobby);
    under_threads(&dobby, &made);
}

/// What cannot be hooked is said, and the rest works.
fn refused(dobby: &Dobby, made: &Library) {
    let replacement = thousand_more as *const ();
    let data: &'static mut [u8; 64] = Box::leak(Box::new([0; 64]));
    let not_code = request("data", data.as_mut_ptr().cast(), replacement);
    let null = request("null", ptr::null_mut(), replacement);
    let tiny = Request {
        size: 1,
        ..request("tiny", made.address("tiny"), replacement)
    };
    let branches = request("branches", made.address("branches"), replacement);
    let short_jump = request("short_jump", made.address("short_jump"), replacement);
    let unknown_size = request("tiny", made.address("tiny"), replacement);
    let fine = request("loads", made.address("loads"), replacement);
    let requests = [
        not_code,
        null,
        tiny,
        unknown_size,
        branches,
        short_jump,
        fine,
    ];
    // SAFETY: what is code has the signature.
    let report = unsafe { place_all(&[dobby], &requests) };
    let said: Vec<String> = report
        .refused
        .iter()
        .map(|(_, reasons)| reasons[0].to_string())
        .collect();
    assert_eq!(
        said,
        [
            "dobby cannot hook data: its address is in no executable memory",
            "dobby cannot hook null: its address is not known",
            "dobby cannot hook tiny: it has 1 bytes, and the jump needs 6",
            "dobby cannot hook tiny: it has 1 bytes, and the jump needs 6",
            "dobby cannot hook branches: its first instructions cannot be moved",
            "dobby cannot hook short_jump: its first instructions cannot be moved",
        ]
    );
    assert_eq!(report.placed.len(), 1);
    // SAFETY: as above.
    let errors = unsafe { remove_all(&[dobby], report.placed) };
    assert_eq!(errors, [], "the hook of `loads` goes");
}

/// Code that somebody else has changed stays as they have it.
fn of_others(dobby: &Dobby, made: &Library) {
    let target = made.address("frames");
    let hook = request("frames", target, thousand_more as *const ());
    // SAFETY: signature and library as above.
    let placed = unsafe { dobby.place(&hook) }.unwrap();
    let page = target.map_addr(|a| a & !4095);
    let set = |protection| {
        // SAFETY: pages of the test's library.
        assert_eq!(unsafe { libc::mprotect(page, 8192, protection) }, 0);
    };
    let byte = target.cast::<u8>();
    set(libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC);
    // SAFETY: writable, and nobody is in the function.
    let ours = unsafe { byte.replace(0xc3) };
    let at = placed.target();
    // SAFETY: as above.
    let error = unsafe { dobby.remove(placed) }.unwrap_err();
    assert!(
        error.to_string().contains("somebody else has changed"),
        "{error}"
    );
    assert_eq!(at, target.addr());
    // SAFETY: as above.
    unsafe { byte.write(ours) };
    set(libc::PROT_READ | libc::PROT_EXEC);
    // SAFETY: a second removal by the same address: it is the hook that is still there.
    let hooked = refusal(unsafe { dobby.place(&hook) });
    assert_eq!(hooked, Refusal::AlreadyHooked);
}

type Crc = unsafe extern "C" fn(c_ulong, *const c_uchar, c_uint) -> c_ulong;

unsafe extern "C" fn flipped(crc: c_ulong, bytes: *const c_uchar, length: c_uint) -> c_ulong {
    CALLS.fetch_add(1, Ordering::Relaxed);
    // SAFETY: as in `thousand_more`.
    let original: Crc = unsafe { std::mem::transmute(ORIGINAL.load(Ordering::Acquire)) };
    // SAFETY: the caller's arguments.
    unsafe { original(crc, bytes, length) ^ 1 }
}

unsafe extern "C" fn version() -> c_int {
    // SAFETY: as in `thousand_more`.
    let original: unsafe extern "C" fn() -> c_int =
        unsafe { std::mem::transmute(ORIGINAL.load(Ordering::Acquire)) };
    // SAFETY: it has this signature.
    unsafe { -original() }
}

fn real_libraries(dobby: &Dobby) {
    let zlib = Library::open(Path::new("libz.so.1"));
    let target = zlib.address("crc32");
    let before = code(target);
    // SAFETY: zlib's signature.
    let crc32: Crc = unsafe { std::mem::transmute(target) };
    // SAFETY: nine bytes.
    let sum = || unsafe { crc32(0, c"123456789".as_ptr().cast(), 9) };
    // The check value of CRC-32.
    assert_eq!(sum(), 0xcbf4_3926);
    // SAFETY: the signature is that of crc32.
    let placed = unsafe { dobby.place(&request("crc32", target, flipped as *const ())) }.unwrap();
    assert_eq!(sum(), 0xcbf4_3927);
    // SAFETY: zlib is loaded.
    unsafe { dobby.remove(placed) }.unwrap();
    assert_eq!((sum(), code(target)), (0xcbf4_3926, before));

    let sqlite = Library::open(Path::new("libsqlite3.so.0"));
    let target = sqlite.address("sqlite3_libversion_number");
    let before = code(target);
    // SAFETY: SQLite's signature.
    let number: unsafe extern "C" fn() -> c_int = unsafe { std::mem::transmute(target) };
    // SAFETY: as above.
    let plain = unsafe { number() };
    let hook = request("sqlite3_libversion_number", target, version as *const ());
    // SAFETY: the signature is the same.
    let placed = unsafe { dobby.place(&hook) }.unwrap();
    // SAFETY: as above.
    assert_eq!(unsafe { number() }, -plain);
    // SAFETY: SQLite is loaded.
    unsafe { dobby.remove(placed) }.unwrap();
    // SAFETY: as above.
    assert_eq!((unsafe { number() }, code(target)), (plain, before));
}

/// The hook comes and goes while threads call the function: each call runs all of the old code, or all of the
/// new one. The jump takes the place of one instruction (`lea 1(%rdi), %eax`): a thread that lost its
/// processor between two of them would go on in the middle of the jump.
fn under_threads(dobby: &Dobby, made: &Library) {
    let target = made.address("whole");
    // SAFETY: it takes and gives an int.
    let function: Int = unsafe { std::mem::transmute(target) };
    let before = code(target);
    let stop = AtomicBool::new(false);
    let (hooked, plain) = (AtomicU64::new(0), AtomicU64::new(0));
    let mut rounds = 0;
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    // SAFETY: as above.
                    match unsafe { function(41) } {
                        42 => plain.fetch_add(1, Ordering::Relaxed),
                        1042 => hooked.fetch_add(1, Ordering::Relaxed),
                        other => panic!("{other}"),
                    };
                }
            });
        }
        let end = Instant::now() + Duration::from_secs(60);
        let seen = |count: &AtomicU64| count.load(Ordering::Relaxed) >= 1000;
        while Instant::now() < end && !(rounds >= 300 && seen(&hooked) && seen(&plain)) {
            let hook = request("whole", target, thousand_more as *const ());
            // SAFETY: the signature is the same, and the library stays.
            let placed = unsafe { dobby.place(&hook) }.unwrap();
            thread::yield_now();
            // SAFETY: as above.
            unsafe { dobby.remove(placed) }.unwrap();
            thread::yield_now();
            rounds += 1;
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(code(target), before);
    let calls = (
        hooked.load(Ordering::Relaxed),
        plain.load(Ordering::Relaxed),
    );
    assert!(calls.0 >= 1000 && calls.1 >= 1000, "{rounds} {calls:?}");
}
