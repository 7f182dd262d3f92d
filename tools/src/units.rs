//! Durations, sizes and counts as users write and read them.

/// Parses `1ms`, `100us`, `100µs`, `50000ns`, `0.5s` into nanoseconds.
pub(crate) fn parse_duration_ns(text: &str) -> Result<u64, String> {
    const HINT: &str = "write a number with its unit: 1ms, 100us, 50000ns, 1s";
    let (number, unit) = split_unit(text);
    let factor = match unit {
        "ns" => 1.0,
        "us" | "µs" | "μs" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "" => return Err(format!("the unit is missing; {HINT}")),
        other => return Err(format!("`{other}` is not a unit of time; {HINT}")),
    };
    let value: f64 = number
        .parse()
        .map_err(|_| format!("`{number}` is not a number; {HINT}"))?;
    let ns = value * factor;
    if !(ns.is_finite() && (1.0..=1e18).contains(&ns)) {
        return Err(format!("out of range; {HINT}"));
    }
    Ok(ns.round() as u64)
}

/// Parses `8MiB`, `8M`, `512k`, `1GiB`, `8388608` into bytes. All units are powers of 1024.
pub(crate) fn parse_size_bytes(text: &str) -> Result<u64, String> {
    const HINT: &str = "write a number of bytes or 512KiB, 8MiB, 1GiB";
    let (number, unit) = split_unit(text);
    let shift = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        _ => return Err(format!("`{unit}` is not a unit of size; {HINT}")),
    };
    let value: f64 = number
        .parse()
        .map_err(|_| format!("`{number}` is not a number; {HINT}"))?;
    let bytes = value * (1u64 << shift) as f64;
    if !(bytes.is_finite() && (1.0..=1e15).contains(&bytes)) {
        return Err(format!("out of range; {HINT}"));
    }
    Ok(bytes.round() as u64)
}

fn split_unit(text: &str) -> (&str, &str) {
    let text = text.trim();
    let end = text
        .find(|c: char| !(c.is_ascii_digit() || c == '.'))
        .unwrap_or(text.len());
    (&text[..end], text[end..].trim())
}

/// `1.23 s`, `45.6 ms`, `789 µs`, `12 ns`: three significant digits.
pub(crate) fn duration(ns: u64) -> String {
    let ns_f = ns as f64;
    match ns {
        0 => "0".into(),
        1..1_000 => format!("{ns} ns"),
        1_000..999_500 => three_digits(ns_f / 1e3, "µs"),
        999_500..999_500_000 => three_digits(ns_f / 1e6, "ms"),
        _ if ns_f < 999.5e9 => three_digits(ns_f / 1e9, "s"),
        _ => {
            let seconds = ns / 1_000_000_000;
            format!(
                "{}:{:02}:{:02} h",
                seconds / 3600,
                seconds / 60 % 60,
                seconds % 60
            )
        }
    }
}

/// `12 B`, `3.40 KiB`, `1.20 GiB`.
pub(crate) fn bytes(n: u64) -> String {
    const K: f64 = 1024.0;
    let f = n as f64;
    if n == 0 {
        "0".into()
    } else if f < K {
        format!("{n} B")
    } else if f < 999.5 * K {
        three_digits(f / K, "KiB")
    } else if f < 999.5 * K * K {
        three_digits(f / K / K, "MiB")
    } else if f < 999.5 * K * K * K {
        three_digits(f / K / K / K, "GiB")
    } else {
        three_digits(f / K / K / K / K, "TiB")
    }
}

/// `1234`, `45.6 k`, `7.89 M`.
pub(crate) fn count(n: u64) -> String {
    let f = n as f64;
    if n < 10_000 {
        n.to_string()
    } else if f < 999.5e3 {
        three_digits(f / 1e3, "k")
    } else if f < 999.5e6 {
        three_digits(f / 1e6, "M")
    } else {
        three_digits(f / 1e9, "G")
    }
}

/// A share in percent: `12.3 %`; empty when the whole is zero.
pub(crate) fn percent(part: u64, whole: u64) -> String {
    if whole == 0 {
        return String::new();
    }
    format!("{:.1} %", part as f64 * 100.0 / whole as f64)
}

/// The same in a sentence: all and nothing are no measurements.
pub(crate) fn share(part: u64, whole: u64) -> String {
    match part {
        _ if whole == 0 => String::new(),
        0 => "0 %".to_owned(),
        _ if part == whole => "100 %".to_owned(),
        _ => percent(part, whole),
    }
}

fn three_digits(value: f64, unit: &str) -> String {
    if value < 9.995 {
        format!("{value:.2} {unit}")
    } else if value < 99.95 {
        format!("{value:.1} {unit}")
    } else {
        format!("{value:.0} {unit}")
    }
}

/// `1 thread`, `12.3 k threads`.
pub(crate) fn plural(n: u64, one: &str, many: &str) -> String {
    format!("{} {}", count(n), if n == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_parsed() {
        for (text, ns) in [
            ("1ms", 1_000_000),
            ("100us", 100_000),
            ("100µs", 100_000),
            ("50000ns", 50_000),
            ("0.5 s", 500_000_000),
        ] {
            assert_eq!(parse_duration_ns(text), Ok(ns), "{text}");
        }
        for text in ["", "1", "ms", "1 year", "-1ms", "0ms", "1e99s", "..ms"] {
            assert!(parse_duration_ns(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_are_parsed() {
        for (text, n) in [
            ("8MiB", 8 << 20),
            ("512k", 512 << 10),
            ("1.5G", 3 << 29),
            ("4096", 4096),
        ] {
            assert_eq!(parse_size_bytes(text), Ok(n), "{text}");
        }
        for text in ["", "MiB", "1 acre", "0", "-8M"] {
            assert!(parse_size_bytes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn amounts_are_short_and_do_not_jump_at_the_edges() {
        for (ns, text) in [
            (0, "0"),
            (999, "999 ns"),
            (1_000, "1.00 µs"),
            (99_960, "100 µs"),
            (999_499, "999 µs"),
            (999_500, "1.00 ms"),
            (45_600_000, "45.6 ms"),
            (999_499_999, "999 ms"),
            (999_500_000, "1.00 s"),
            (3_723_000_000_000, "1:02:03 h"),
        ] {
            assert_eq!(duration(ns), text);
        }
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1024), "1.00 KiB");
        assert_eq!(bytes(5 << 30), "5.00 GiB");
        assert_eq!(count(9_999), "9999");
        assert_eq!(count(12_345), "12.3 k");
        assert_eq!(percent(1, 8), "12.5 %");
        assert_eq!(percent(1, 0), "");
        assert_eq!(
            [share(0, 8), share(1, 8), share(8, 8)],
            ["0 %", "12.5 %", "100 %"]
        );
    }
}
