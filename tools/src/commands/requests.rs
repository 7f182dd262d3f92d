//! What can be asked of a recording before it begins and while it runs.

use anyhow::{Context, Result, anyhow, bail};
use stackbeat_core::probe::Category;
use stackbeat_core::shm::layout::Mode;

use crate::cli::ModeArg;
use crate::units;

/// Shortest interval that can be kept (50 µs: below it, captures would mostly measure themselves).
const MIN_INTERVAL_NS: u64 = 50_000;

impl From<ModeArg> for Mode {
    fn from(mode: ModeArg) -> Mode {
        match mode {
            ModeArg::Endless => Mode::Endless,
            ModeArg::Ring => Mode::Ring,
            ModeArg::Startup => Mode::Startup,
        }
    }
}

pub(crate) fn interval(flag: &str, ns: u64) -> Result<u64> {
    if ns < MIN_INTERVAL_NS {
        bail!(
            "{flag} {}: too short; {} is the shortest that can be kept",
            units::duration(ns),
            units::duration(MIN_INTERVAL_NS)
        );
    }
    Ok(ns)
}

/// The mask for `alloc,lock`, `all` or `none`.
pub(crate) fn parse_probes(text: &str) -> Result<u64> {
    let mut mask = 0;
    for name in text.split(',').map(str::trim).filter(|n| !n.is_empty()) {
        mask |= match name {
            "all" => Category::SELECTABLE.iter().fold(0, |m, c| m | c.bit()),
            "none" => 0,
            name => Category::from_name(name)
                .with_context(|| {
                    let known: Vec<_> = Category::SELECTABLE.iter().map(|c| c.name()).collect();
                    format!(
                        "--probes {name}: no such group; known are {}, all, none",
                        known.join(", ")
                    )
                })?
                .bit(),
        };
    }
    if text.trim().is_empty() {
        return Err(anyhow!("--probes: no group given; write `none` for none"));
    }
    Ok(mask)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probe_groups_are_named_and_unknown_ones_list_the_known() {
        assert_eq!(
            parse_probes("alloc, lock").expect("parses"),
            Category::Alloc.bit() | Category::Lock.bit()
        );
        assert_eq!(parse_probes("none").expect("parses"), 0);
        let all = parse_probes("all").expect("parses");
        assert!(Category::SELECTABLE.iter().all(|c| all & c.bit() != 0));
        let error = parse_probes("alloc,disk").expect_err("is unknown");
        assert!(
            error
                .to_string()
                .starts_with("--probes disk: no such group")
                && error.to_string().contains("alloc, memory, lock"),
            "{error}"
        );
        parse_probes(" ").expect_err("is empty");
    }
}
