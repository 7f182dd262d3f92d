//! The window in which a thread is suspended. What runs in it marks it, so that tests notice what is called
//! there that may not be.

/// The window, until dropped. Outside of tests nothing.
#[derive(Debug)]
pub(crate) struct Window(());

/// The calling thread is about to suspend another one.
pub(crate) fn enter() -> Window {
    #[cfg(test)]
    super::tripwire::set(true);
    Window(())
}

impl Drop for Window {
    fn drop(&mut self) {
        #[cfg(test)]
        super::tripwire::set(false);
    }
}
