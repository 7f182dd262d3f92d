//! The numbers of processes and threads. All four are plain words in the mapping and in the trace file; as
//! types of their own none can be taken for another.
//!
//! | type | whose number | reused |
//! |---|---|---|
//! | [`Pid`], [`Tid`] | the system's, in the pid namespace of whoever named it | when the process or thread has ended |
//! | [`Upid`], [`Utid`] | a recording's; exec makes a new process | never |

use core::fmt;

macro_rules! ids {
    ($($(#[$what:meta])* $name:ident;)*) => {$(
        $(#[$what])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u32);

        /// The number alone.
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    )*};
}

ids! {
    /// The system's number of a process. 0: none, or not known.
    Pid;
    /// The system's number of a thread. 0: none, or not known.
    Tid;
    /// A recording's number of a program image in a process, from 1 on in the order in which agents
    /// registered. 0: none; in a counter, the machine.
    Upid;
    /// A recording's number of a thread, from 1 on. 0: none.
    Utid;
}

impl Pid {
    /// The process' main thread: Linux gives it the same number.
    pub const fn main_thread(self) -> Tid {
        Tid(self.0)
    }
}
