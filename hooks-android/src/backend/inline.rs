//! The backends that put a jump at a function's begin, as far as this build and this app have them.

use super::HookBackend;

/// In the order in which they are tried: ShadowHook where the app carries it and it is made for the
/// processor, then Dobby. The first call loads what they need.
pub fn backends() -> Vec<&'static dyn HookBackend> {
    // Where there is none.
    #[allow(unused_mut)]
    let mut all: Vec<&'static dyn HookBackend> = Vec::new();
    #[cfg(all(
        target_os = "android",
        any(target_arch = "arm", target_arch = "aarch64")
    ))]
    {
        use super::shadowhook::{LIBRARY, ShadowHook};
        use std::sync::LazyLock;
        // SAFETY: an app has no other library of this name.
        static SHADOWHOOK: LazyLock<Option<ShadowHook>> =
            LazyLock::new(|| unsafe { ShadowHook::load(LIBRARY) }.ok());
        all.extend(
            SHADOWHOOK
                .as_ref()
                .map(|backend| backend as &dyn HookBackend),
        );
    }
    #[cfg(all(
        feature = "dobby",
        any(
            target_os = "android",
            all(target_os = "linux", target_arch = "x86_64")
        )
    ))]
    {
        use super::dobby::Dobby;
        static DOBBY: std::sync::LazyLock<Dobby> = std::sync::LazyLock::new(Dobby::new);
        all.push(&*DOBBY);
    }
    all
}
