//! Placing hooks: inline by ShadowHook or Dobby, else in the tables of imported functions.
//!
//! A [`HookBackend`] puts a function of ours in front of one of the app's or the system's, given by its
//! address. [`place_all`] takes a list of them and the backends in the order in which they are to be tried.
//! What none of them can place is in its report, with the reason of each; the rest works.
//!
//! Hooks are placed and removed by one thread at a time (each backend has a lock). Other threads may call the
//! function meanwhile; what each backend guarantees them is in its module. Placing allocates and takes locks:
//! it never happens on a hook's way.

#[cfg(all(
    feature = "dobby",
    any(
        target_os = "android",
        all(target_os = "linux", target_arch = "x86_64")
    )
))]
mod code_change;
#[cfg(all(
    feature = "dobby",
    any(
        target_os = "android",
        all(target_os = "linux", target_arch = "x86_64")
    )
))]
pub mod dobby;
pub mod inline;
#[cfg(all(feature = "dobby", target_arch = "x86_64"))]
mod moved;
mod own_code;
pub mod shadowhook;
#[cfg(target_pointer_width = "64")]
pub mod slots;

use core::ffi::c_void;
use core::fmt;
use core::sync::atomic::AtomicPtr;

/// A function to be hooked.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// Its name, for messages.
    pub name: &'static str,
    /// Its first instruction. On 32-bit arm the lowest bit says Thumb.
    pub target: *mut c_void,
    /// How many bytes of code it has, 0: not known. An inline backend refuses a function that is too short
    /// for its jump.
    pub size: usize,
    /// What runs instead. It has the same signature.
    pub replacement: *mut c_void,
    /// Gets what the replacement calls to reach the function. It is set before the first call of the
    /// replacement.
    pub original: &'static AtomicPtr<c_void>,
}

// SAFETY: addresses of code, which all threads have in common.
unsafe impl Send for Request {}

impl Request {
    /// What a backend answers that has placed it, or refused.
    fn answer(
        &self,
        backend: &'static str,
        placed: Result<(), Refusal>,
    ) -> Result<Placed, HookError> {
        let hook = Placed {
            name: self.name,
            backend,
            target: self.target.addr(),
        };
        placed.map_err(|why| hook.refused(why)).map(|()| hook)
    }
}

/// A hook in its place. Dropping it leaves the hook there.
#[must_use = "a hook whose value is gone cannot be removed"]
#[derive(Debug)]
pub struct Placed {
    /// The function's name.
    pub name: &'static str,
    /// The name of the backend that placed it: it alone can remove it.
    pub backend: &'static str,
    /// The function's address.
    target: usize,
}

impl Placed {
    /// The address of the function that is hooked.
    pub fn target(&self) -> usize {
        self.target
    }

    /// What its backend has against it.
    fn refused(&self, why: Refusal) -> HookError {
        HookError::Refused {
            name: self.name,
            backend: self.backend,
            why,
        }
    }
}

/// Why a hook is not placed, or not removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HookError {
    /// The backend cannot be used at all: its library is missing, or cannot be initialized.
    Unavailable {
        /// The backend's name.
        backend: &'static str,
        /// What it lacks.
        why: String,
    },
    /// This function cannot be hooked.
    Refused {
        /// The function's name.
        name: &'static str,
        /// The backend's name.
        backend: &'static str,
        /// The reason.
        why: Refusal,
    },
}

/// What stands against one hook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No function, or no replacement, was given.
    NoAddress,
    /// The address is in no executable mapping.
    NotCode,
    /// The function has fewer bytes than the jump that would stand there.
    TooShort {
        /// Its bytes.
        size: usize,
        /// Those of the jump.
        needed: usize,
    },
    /// There is a hook of ours.
    AlreadyHooked,
    /// There is none of ours.
    NotHooked,
    /// Somebody has changed the code since: taking ours out would take theirs out too.
    ChangedByOthers,
    /// The first instructions cannot be moved elsewhere.
    NotRelocatable,
    /// The memory cannot be made writable: mprotect's errno.
    Protected(i32),
    /// No module imports the function.
    NoSlots,
    /// The hook is gone, but the code is not what it was before.
    NotRestored,
    /// The backend's own error.
    Backend {
        /// Its number.
        code: i32,
        /// In its words.
        message: String,
    },
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::NoAddress => f.write_str("its address is not known"),
            Refusal::NotCode => f.write_str("its address is in no executable memory"),
            Refusal::TooShort { size, needed } => {
                write!(f, "it has {size} bytes, and the jump needs {needed}")
            }
            Refusal::AlreadyHooked => f.write_str("it is hooked already; remove that hook first"),
            Refusal::NotHooked => f.write_str("it has no hook of ours"),
            Refusal::ChangedByOthers => {
                f.write_str("somebody else has changed its code since; remove their hook first")
            }
            Refusal::NotRelocatable => f.write_str("its first instructions cannot be moved"),
            Refusal::Protected(errno) => write!(
                f,
                "its memory cannot be made writable: {}",
                std::io::Error::from_raw_os_error(*errno)
            ),
            Refusal::NoSlots => f.write_str("no loaded library imports it"),
            Refusal::NotRestored => f.write_str("its code is not what it was before the hook"),
            Refusal::Backend { code, message } => write!(f, "error {code}: {message}"),
        }
    }
}

impl fmt::Display for HookError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HookError::Unavailable { backend, why } => write!(f, "{backend} cannot be used: {why}"),
            HookError::Refused { name, backend, why } => {
                write!(f, "{backend} cannot hook {name}: {why}")
            }
        }
    }
}

impl std::error::Error for HookError {}

impl HookError {
    /// The backend that has a hook there already, if that is why.
    pub fn hooked_already(&self) -> Option<&'static str> {
        match self {
            HookError::Refused {
                backend,
                why: Refusal::AlreadyHooked,
                ..
            } => Some(backend),
            _ => None,
        }
    }
}

/// A way of placing hooks.
pub trait HookBackend: Send + Sync {
    /// Its name, in messages and in `doctor`.
    fn name(&self) -> &'static str;

    /// Places a hook.
    ///
    /// # Safety
    ///
    /// `target` is the first instruction of a function that nobody unloads while the hook is there.
    /// `replacement` has its signature and calling convention, and stays for good: a thread may be in it
    /// after the hook is removed.
    unsafe fn place(&self, request: &Request) -> Result<Placed, HookError>;

    /// Places several, as far as that goes. The results are in the order of the requests.
    ///
    /// # Safety
    ///
    /// As [`HookBackend::place`], for each.
    unsafe fn place_many(&self, requests: &[Request]) -> Vec<Result<Placed, HookError>> {
        // SAFETY: as the caller says.
        let place = |request| unsafe { self.place(request) };
        requests.iter().map(place).collect()
    }

    /// Removes a hook: the code is again what it was, byte for byte. Whether a thread may still be in the
    /// original meanwhile, the backend says. After an error the hook is still there, except after
    /// [`Refusal::NotRestored`].
    ///
    /// # Safety
    ///
    /// The hooked function is still loaded.
    unsafe fn remove(&self, hook: Placed) -> Result<(), HookError>;
}

/// What [`place_all`] did.
#[must_use]
#[derive(Debug, Default)]
pub struct Report {
    /// The hooks that are there.
    pub placed: Vec<Placed>,
    /// Functions that no backend could hook, with the reason of each backend.
    pub refused: Vec<(&'static str, Vec<HookError>)>,
}

/// Places hooks, each by the first backend that can.
///
/// # Safety
///
/// As [`HookBackend::place`], for each request.
pub unsafe fn place_all(backends: &[&dyn HookBackend], requests: &[Request]) -> Report {
    let mut report = Report::default();
    let mut left: Vec<(Request, Vec<HookError>)> = requests.iter().map(|r| (*r, vec![])).collect();
    for backend in backends {
        let asked: Vec<Request> = left.iter().map(|(request, _)| *request).collect();
        // SAFETY: as the caller says.
        let results = unsafe { backend.place_many(&asked) };
        let mut refused = Vec::new();
        for ((request, mut reasons), result) in left.into_iter().zip(results) {
            match result {
                Ok(placed) => report.placed.push(placed),
                Err(reason) => {
                    reasons.push(reason);
                    refused.push((request, reasons));
                }
            }
        }
        left = refused;
    }
    let refused = left.into_iter();
    report.refused = refused
        .map(|(request, reasons)| (request.name, reasons))
        .collect();
    report
}

/// Removes hooks, the last one first. What cannot be removed is given back as errors.
///
/// # Safety
///
/// As [`HookBackend::remove`], for each hook.
pub unsafe fn remove_all(backends: &[&dyn HookBackend], hooks: Vec<Placed>) -> Vec<HookError> {
    let mut errors = Vec::new();
    for hook in hooks.into_iter().rev() {
        let backend = backends.iter().find(|b| b.name() == hook.backend);
        let removed = match backend {
            // SAFETY: as the caller says.
            Some(backend) => unsafe { backend.remove(hook) },
            None => Err(HookError::Unavailable {
                backend: hook.backend,
                why: format!("it is not among those that could remove {}", hook.name),
            }),
        };
        errors.extend(removed.err());
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::ptr;
    use std::sync::atomic::Ordering;

    struct OnlyEven(&'static str, usize);

    impl HookBackend for OnlyEven {
        fn name(&self) -> &'static str {
            self.0
        }

        unsafe fn place(&self, request: &Request) -> Result<Placed, HookError> {
            if !request.target.addr().is_multiple_of(self.1) {
                return Err(HookError::Refused {
                    name: request.name,
                    backend: self.0,
                    why: Refusal::NotRelocatable,
                });
            }
            request.original.store(request.target, Ordering::Release);
            Ok(Placed {
                name: request.name,
                backend: self.0,
                target: request.target.addr(),
            })
        }

        unsafe fn remove(&self, _: Placed) -> Result<(), HookError> {
            Ok(())
        }
    }

    #[test]
    fn each_backend_gets_its_turn_and_what_none_places_is_reported() {
        static ORIGINAL: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
        let request = |name, target| Request {
            name,
            target: ptr::without_provenance_mut(target),
            size: 0,
            replacement: ptr::without_provenance_mut(1),
            original: &ORIGINAL,
        };
        let (first, second) = (OnlyEven("first", 4), OnlyEven("second", 2));
        let requests = [request("four", 4), request("odd", 5), request("two", 6)];
        // SAFETY: these backends write nothing.
        let report = unsafe { place_all(&[&first, &second], &requests) };
        let placed: Vec<_> = report.placed.iter().map(|p| (p.name, p.backend)).collect();
        assert_eq!(placed, [("four", "first"), ("two", "second")]);
        let [(name, reasons)] = &report.refused[..] else {
            panic!("{:?}", report.refused);
        };
        assert_eq!((*name, reasons.len()), ("odd", 2));
        assert_eq!(
            reasons[0].to_string(),
            "first cannot hook odd: its first instructions cannot be moved"
        );
        // SAFETY: as above.
        let errors = unsafe { remove_all(&[&first], report.placed) };
        assert_eq!(
            errors[0].to_string(),
            "second cannot be used: it is not among those that could remove two"
        );
        assert_eq!(errors.len(), 1);
    }
}
