//! Which processors a program runs on.

use std::{fmt, io};

/// More processors than this nobody can name (glibc's and bionic's `CPU_SETSIZE`).
const MOST: usize = 1024;

/// Why a text is no list of processors.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CpuListError {
    /// The number of a processor that no system of this kind can have.
    #[error("there is no processor {0}; {HINT}")]
    NoSuchCpu(usize),
    /// A part of the list that is neither a number nor a range.
    #[error("`{0}` is not a number; {HINT}")]
    NotANumber(String),
    /// A range whose end is before its begin.
    #[error("`{0}` is an empty range; {HINT}")]
    EmptyRange(String),
}

const HINT: &str = "write numbers and ranges: 1, 0-3,6";

/// Processors by number, ascending, at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuList(Vec<usize>);

impl CpuList {
    /// Reads what `taskset -c` reads: numbers and ranges, `1` or `0-3,6`.
    ///
    /// # Errors
    ///
    /// Names the part that is wrong.
    pub fn parse(text: &str) -> Result<CpuList, CpuListError> {
        let number = |text: &str| match text.trim().parse::<usize>() {
            Ok(number) if number < MOST => Ok(number),
            Ok(number) => Err(CpuListError::NoSuchCpu(number)),
            Err(_) => Err(CpuListError::NotANumber(text.to_owned())),
        };
        let mut all = Vec::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (number(first)?, number(last)?);
            if first > last {
                return Err(CpuListError::EmptyRange(part.to_owned()));
            }
            all.extend(first..=last);
        }
        all.sort_unstable();
        all.dedup();
        Ok(CpuList(all))
    }

    /// Those that this process may run on.
    pub fn allowed() -> io::Result<CpuList> {
        affinity::get()
    }

    /// The one of them with the highest number.
    pub fn last(&self) -> CpuList {
        CpuList(self.0.last().copied().into_iter().collect())
    }

    /// Runs `start` with this thread, and so what it starts, on these processors, whichever it runs on
    /// otherwise. An error names the first one that the system does not give to this process (cpuset(7)).
    pub fn run<T>(&self, start: impl FnOnce() -> T) -> io::Result<T> {
        let before = affinity::get()?;
        // Those that it may not have are left out, an error only if that leaves none.
        let given = affinity::set(self).and_then(|()| affinity::get());
        let given = given.map_or_else(|_| Vec::new(), |given| given.0);
        let started = match self.0.iter().find(|cpu| !given.contains(cpu)) {
            None => Ok(start()),
            Some(cpu) => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("processor {cpu} is not one that this process may run on"),
            )),
        };
        // What was started is not given up because this thread stays where it is.
        let _ = affinity::set(&before);
        started
    }
}

/// The calling thread's processors.
#[cfg(any(target_os = "linux", target_os = "android"))]
mod affinity {
    use std::io;

    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

    use super::{CpuList, MOST};

    pub(super) fn get() -> io::Result<CpuList> {
        let set = sched_getaffinity(None)?;
        let all = 0..MOST.min(CpuSet::MAX_CPU);
        Ok(CpuList(all.filter(|cpu| set.is_set(*cpu)).collect()))
    }

    pub(super) fn set(cpus: &CpuList) -> io::Result<()> {
        let mut set = CpuSet::new();
        for cpu in &cpus.0 {
            set.set(*cpu);
        }
        Ok(sched_setaffinity(None, &set)?)
    }
}

/// Apple's systems let nobody choose: threads have a quality of service instead.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod affinity {
    use std::io;
    use std::thread::available_parallelism;

    use super::CpuList;

    pub(super) fn get() -> io::Result<CpuList> {
        Ok(CpuList((0..available_parallelism()?.get()).collect()))
    }

    pub(super) fn set(_: &CpuList) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// As `CpuList::parse` reads it.
impl fmt::Display for CpuList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ranges = self.0.chunk_by(|a, b| a + 1 == *b);
        for (at, range) in ranges.enumerate() {
            let separator = if at > 0 { "," } else { "" };
            match range {
                [one] => write!(f, "{separator}{one}")?,
                [first, .., last] => write!(f, "{separator}{first}-{last}")?,
                [] => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_and_written() {
        for (text, same) in [
            ("1", "1"),
            ("0-3,6", "0-3,6"),
            ("6,2,1,0,2", "0-2,6"),
            ("4-4", "4"),
        ] {
            assert_eq!(CpuList::parse(text).map(|l| l.to_string()), Ok(same.into()));
        }
        for (text, reason) in [
            ("", "`` is not a number"),
            ("1,", "`` is not a number"),
            ("-1", "`` is not a number"),
            ("x", "`x` is not a number"),
            ("3-1", "`3-1` is an empty range"),
            ("999999999", "no processor 999999999"),
        ] {
            let error = CpuList::parse(text).expect_err(text).to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }

    #[test]
    fn what_is_started_stays_on_them_and_nothing_else() {
        let allowed = CpuList::allowed().expect("known");
        let one = allowed.last();
        let inside = one.run(CpuList::allowed).expect("allowed").expect("known");
        assert_eq!(inside, one);
        assert_eq!(CpuList::allowed().expect("known"), allowed);
        let foreign = CpuList(vec![MOST - 1]);
        let error = foreign.run(|| ()).expect_err("not allowed").to_string();
        assert!(error.contains("is not one that"), "{error}");
        assert_eq!(CpuList::allowed().expect("known"), allowed);
    }
}
