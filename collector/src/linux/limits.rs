//! What the control group allows, how close the program is to it, and how long tasks waited for
//! processor, memory and disk (pressure stall information). cgroup v2 and v1; what is not there is not
//! read again.

use std::fs;
use std::path::{Path, PathBuf};

use stackbeat_core::ids::Pid;

use crate::host::Limits;

/// A limit of version 1 that is none (`PAGE_COUNTER_MAX` in bytes) lies beyond this.
const NO_LIMIT: u64 = 1 << 60;

/// How the text of a file becomes a value.
#[derive(Clone, Copy, Debug)]
enum Content {
    /// A number of bytes; `max` is no limit.
    Bytes,
    /// `quota period` of cpu.max, as percent of a processor.
    CpuMax,
    /// A quota in µs; the period is in the file beside it.
    Quota,
    /// The line with this name grows; its unit in ns.
    Grows(&'static str, u64),
    /// `some … total=µs`, which grows.
    Pressure,
}

/// A file that is read.
#[derive(Debug)]
struct Source {
    name: &'static str,
    unit: &'static str,
    path: PathBuf,
    content: Content,
    /// Value and time of what grows; the last value said of the others.
    last: Option<(u64, u64)>,
}

/// Everything that there is for one process.
#[derive(Debug)]
pub(super) struct OfGroup {
    sources: Vec<Source>,
}

impl OfGroup {
    /// Finds the group of a process.
    pub(super) fn of(pid: Pid) -> OfGroup {
        let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        OfGroup::in_folders(
            &groups,
            Path::new("/sys/fs/cgroup"),
            Path::new("/proc/pressure"),
        )
    }

    fn in_folders(groups: &str, root: &Path, pressure: &Path) -> OfGroup {
        let mut sources = Vec::new();
        let mut add = |name, unit, path: PathBuf, content| {
            let is_there = fs::read(&path).is_ok();
            if is_there {
                sources.push(Source {
                    name,
                    unit,
                    path,
                    content,
                    last: None,
                });
            }
            is_there
        };
        let mut has_pressure = false;
        for line in groups.lines() {
            let mut parts = line.splitn(3, ':');
            let (Some(id), Some(kinds), Some(group)) = (parts.next(), parts.next(), parts.next())
            else {
                continue;
            };
            let below = |folder: PathBuf| folder.join(group.trim_start_matches('/'));
            if id == "0" {
                let mut at = below(root.to_path_buf());
                if !at.join("cgroup.procs").exists() {
                    at = below(root.join("unified"));
                }
                add(
                    "cgroup memory",
                    "bytes",
                    at.join("memory.current"),
                    Content::Bytes,
                );
                add(
                    "cgroup memory limit",
                    "bytes",
                    at.join("memory.max"),
                    Content::Bytes,
                );
                add("cgroup CPU limit", "%", at.join("cpu.max"), Content::CpuMax);
                let throttled = Content::Grows("throttled_usec", 1000);
                add(
                    "cgroup CPU throttled",
                    "us/s",
                    at.join("cpu.stat"),
                    throttled,
                );
                let some = Content::Pressure;
                has_pressure |= add("CPU pressure", "us/s", at.join("cpu.pressure"), some);
                add("memory pressure", "us/s", at.join("memory.pressure"), some);
                add("I/O pressure", "us/s", at.join("io.pressure"), some);
            }
            for kind in kinds.split(',') {
                let at = below(root.join(kind));
                match kind {
                    "memory" => {
                        let usage = at.join("memory.usage_in_bytes");
                        add("cgroup memory", "bytes", usage, Content::Bytes);
                        let limit = at.join("memory.limit_in_bytes");
                        add("cgroup memory limit", "bytes", limit, Content::Bytes);
                    }
                    "cpu" => {
                        let quota = at.join("cpu.cfs_quota_us");
                        add("cgroup CPU limit", "%", quota, Content::Quota);
                        let throttled = Content::Grows("throttled_time", 1);
                        add(
                            "cgroup CPU throttled",
                            "us/s",
                            at.join("cpu.stat"),
                            throttled,
                        );
                    }
                    _ => {}
                }
            }
        }
        if !has_pressure {
            for (name, file) in [
                ("machine CPU pressure", "cpu"),
                ("machine memory pressure", "memory"),
                ("machine I/O pressure", "io"),
            ] {
                add(name, "us/s", pressure.join(file), Content::Pressure);
            }
        }
        OfGroup { sources }
    }
}

impl Limits for OfGroup {
    fn read(&mut self, now_ns: u64) -> Vec<(&'static str, &'static str, i64)> {
        let sources = self.sources.iter_mut();
        let read = |source: &mut Source| Some((source.name, source.unit, source.read(now_ns)?));
        sources.filter_map(read).collect()
    }
}

impl Source {
    /// A value that says something new.
    fn read(&mut self, now_ns: u64) -> Option<i64> {
        let text = fs::read_to_string(&self.path).ok()?;
        let (value, grows) = self.content.value(&text, &self.path)?;
        let last = self.last.replace((value, now_ns));
        match (grows, last) {
            (false, Some((before, _))) if before == value => None,
            (false, _) => Some(value as i64),
            (true, None) => None,
            (true, Some((before, at_ns))) => {
                let grown = u128::from(value.saturating_sub(before));
                let elapsed_ns = u128::from(now_ns.saturating_sub(at_ns).max(1));
                // ns in ns, as µs in a second.
                Some((grown * 1_000_000 / elapsed_ns) as i64)
            }
        }
    }
}

impl Content {
    /// The value, and whether it only grows (then in ns).
    fn value(self, text: &str, path: &Path) -> Option<(u64, bool)> {
        let first = text.split_whitespace().next()?;
        match self {
            Content::Bytes => {
                let bytes = first.parse().ok().filter(|bytes| *bytes < NO_LIMIT)?;
                Some((bytes, false))
            }
            Content::CpuMax => {
                let period: u64 = text.split_whitespace().nth(1)?.parse().ok()?;
                Some((first.parse::<u64>().ok()? * 100 / period.max(1), false))
            }
            Content::Quota => {
                let period = fs::read_to_string(path.with_file_name("cpu.cfs_period_us")).ok()?;
                let period: u64 = period.trim().parse().ok()?;
                Some((first.parse::<u64>().ok()? * 100 / period.max(1), false))
            }
            Content::Grows(name, unit_ns) => {
                let mut lines = text.lines();
                let value = lines.find_map(|l| l.strip_prefix(name)?.strip_prefix(' '))?;
                Some((
                    value.trim().parse::<u64>().ok()?.checked_mul(unit_ns)?,
                    true,
                ))
            }
            Content::Pressure => {
                let line = text.lines().find(|l| l.starts_with("some "))?;
                let total = line.rsplit_once("total=")?.1;
                Some((total.trim().parse::<u64>().ok()?.checked_mul(1000)?, true))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(limits: &mut OfGroup, now_ns: u64) -> Vec<(String, i64)> {
        let read = limits.read(now_ns).into_iter();
        let mut values: Vec<_> = read
            .map(|(name, _, value)| (name.to_owned(), value))
            .collect();
        values.sort();
        values
    }

    #[test]
    fn version_2_has_limits_throttling_and_pressure() {
        let folder = tempfile::tempdir().expect("a folder");
        let group = folder.path().join("app");
        fs::create_dir(&group).expect("a folder");
        let file = |name: &str, text: &str| fs::write(group.join(name), text).expect("writes");
        file("cgroup.procs", "");
        file("memory.current", "1000\n");
        file("memory.max", "max\n");
        file("cpu.max", "150000 100000\n");
        file(
            "cpu.stat",
            "usage_usec 5\nnr_throttled 1\nthrottled_usec 100\n",
        );
        let some = "some avg10=0.00 avg60=0.00 avg300=0.00 total=500\nfull total=9\n";
        file("cpu.pressure", some);
        let mut limits = OfGroup::in_folders("0::/app\n", folder.path(), Path::new("/nowhere"));
        let pairs = |list: &[(&str, i64)]| -> Vec<(String, i64)> {
            list.iter().map(|(n, v)| ((*n).to_owned(), *v)).collect()
        };
        assert_eq!(
            values(&mut limits, 1_000_000_000),
            pairs(&[("cgroup CPU limit", 150), ("cgroup memory", 1000)])
        );
        file("memory.max", "4096\n");
        file("cpu.stat", "throttled_usec 50100\n");
        file("cpu.pressure", "some avg10=0.00 total=250500\n");
        assert_eq!(
            values(&mut limits, 1_500_000_000),
            pairs(&[
                ("CPU pressure", 500_000),
                ("cgroup CPU throttled", 100_000),
                ("cgroup memory limit", 4096),
            ])
        );
    }

    #[test]
    fn version_1_and_the_machine() {
        let folder = tempfile::tempdir().expect("a folder");
        let group = folder.path().join("memory/app");
        fs::create_dir_all(&group).expect("a folder");
        let file = |name: &str, text: &str| fs::write(group.join(name), text).expect("writes");
        file("memory.usage_in_bytes", "5");
        file("memory.limit_in_bytes", "9223372036854771712");
        let pressure = folder.path().join("pressure");
        fs::create_dir(&pressure).expect("a folder");
        fs::write(pressure.join("io"), "some total=1").expect("writes");
        let groups = "4:memory:/app\n2:cpuacct:/\nnonsense\n";
        let mut limits = OfGroup::in_folders(groups, folder.path(), &pressure);
        let first = values(&mut limits, 0);
        fs::write(pressure.join("io"), "some total=3").expect("writes");
        assert_eq!(first, [("cgroup memory".to_owned(), 5)]);
        assert_eq!(
            values(&mut limits, 1_000_000_000),
            [("machine I/O pressure".to_owned(), 2)]
        );
    }
}
