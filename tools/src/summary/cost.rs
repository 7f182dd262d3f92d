//! What a recording cost, from the figures that its recorder kept.

use serde::Serialize;

/// Parts of the program's CPU time, in percent.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Cost {
    pub percent: f64,
    pub captures_percent: f64,
    /// Hooks that captured nothing: an estimate.
    pub hooks_percent: f64,
    pub recorder_percent: f64,
    /// CPU time of the recorder after the program's end, ns, which is no part of the others.
    pub after_cpu_ns: u64,
    /// All of it in ns, and the program's CPU time.
    #[serde(skip)]
    pub parts_ns: (u64, u64),
}

/// The cost by the recorder's figures; `None` where they do not say it.
pub(crate) fn cost<'a>(figures: impl Iterator<Item = (&'a str, u64)> + Clone) -> Option<Cost> {
    let figure = |name: &str| {
        let found = figures.clone().find(|(figure, _)| *figure == name);
        found.map_or(0, |(_, value)| value) as f64
    };
    let of_ns = figure("cost_of_ns");
    let percent = |ns: f64| ns * 100.0 / of_ns;
    let (captures_ns, hooks_ns) = (figure("cost_captures_ns"), figure("cost_hooks_ns"));
    (of_ns > 0.0).then(|| Cost {
        percent: percent(figure("cost_ns")),
        captures_percent: percent(captures_ns),
        hooks_percent: percent(hooks_ns),
        recorder_percent: percent(figure("cost_ns") - captures_ns - hooks_ns),
        after_cpu_ns: figure("after_cpu_ns") as u64,
        parts_ns: (figure("cost_ns") as u64, of_ns as u64),
    })
}
