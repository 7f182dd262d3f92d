//! An interval as text.

/// An interval of a share: `1.2 … 4.5 %`; empty when there is none.
pub(crate) fn text(interval: Option<(f64, f64)>) -> String {
    interval.map_or_else(String::new, |(low, high)| {
        format!("{:.1} … {:.1} %", low * 100.0, high * 100.0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_says_both_ends() {
        assert_eq!(text(Some((0.0123, 0.5))), "1.2 … 50.0 %");
        assert_eq!(text(None), "");
    }
}
