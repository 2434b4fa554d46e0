//! Quantities as people read them: three significant digits and a unit.

/// A rate, such as 96.4 Mbit/s.
pub fn bps(rate_bps: f64) -> String {
    scaled(rate_bps, 1000.0, &["bit/s", "kbit/s", "Mbit/s", "Gbit/s"])
}

/// An amount of data in powers of 1000, such as 50.2 kB.
pub fn bytes(bytes: u64) -> String {
    scaled(bytes as f64, 1000.0, &["B", "kB", "MB", "GB", "TB"])
}

/// A duration given in seconds, such as 12.3 ms.
pub fn seconds(time_s: f64) -> String {
    if time_s != 0.0 && time_s.abs() < 1.0 {
        scaled(time_s * 1e6, 1000.0, &["µs", "ms", "s"])
    } else {
        with_unit(time_s, "s")
    }
}

/// A ratio as a percentage: 0.042 is 4.20 %.
pub fn percent(ratio: f64) -> String {
    with_unit(ratio * 100.0, "%")
}

fn scaled(value: f64, step: f64, units: &[&str]) -> String {
    let mut value = value;
    let mut unit = 0;
    while value.abs() >= step && unit + 1 < units.len() {
        value /= step;
        unit += 1;
    }
    with_unit(value, units[unit])
}

fn with_unit(value: f64, unit: &str) -> String {
    let decimals = match value.abs() {
        0.0 => 0,
        hundreds if hundreds >= 100.0 => 0,
        tens if tens >= 10.0 => 1,
        _ => 2,
    };
    format!("{value:.decimals$}\u{202f}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_keep_three_digits_and_carry_their_unit() {
        assert_eq!(bps(96_430_000.0), "96.4\u{202f}Mbit/s");
        assert_eq!(bytes(50_250), "50.2\u{202f}kB");
        assert_eq!(bytes(0), "0\u{202f}B");
        assert_eq!(seconds(0.0123), "12.3\u{202f}ms");
        assert_eq!(seconds(371.5), "372\u{202f}s");
        assert_eq!(percent(0.042), "4.20\u{202f}%");
    }
}
