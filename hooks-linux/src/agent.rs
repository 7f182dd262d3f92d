//! Stands in for the engine, which does nothing yet.
#![allow(unused)]
use stackbeat_core::probe::Probe;
#[inline(always)]
pub fn hit(p: Probe, a: u64) {}
#[inline(always)]
pub fn allocated(p: Probe, a: usize) {}
#[inline(always)]
pub fn freed() {}
pub struct Wait;
#[inline(always)]
pub fn begin_wait(p: Probe, a: u64) -> Wait {
    Wait
}
impl Wait {
    #[inline(always)]
    pub fn end(self, r: i64) {}
}
pub fn force(p: Probe, a: u64) {}
pub fn thread_started(stack: Option<(usize, usize)>, c: Creator) {}
pub fn thread_exiting() {}
pub fn fork_child() {}
pub fn vfork_child() {}
pub fn vfork_parent() {}
pub fn before_exec() {}
pub fn exec_failed() {}
pub fn process_exiting() {}
pub fn on_signal(i: *mut libc::siginfo_t, c: *mut core::ffi::c_void) -> bool {
    false
}
pub fn modules_changed() {}
pub fn follow_children() -> bool {
    true
}
pub fn init(p: &core::ffi::CStr) -> bool {
    true
}
pub struct Creator;
pub fn creating_thread() -> Creator {
    Creator
}
