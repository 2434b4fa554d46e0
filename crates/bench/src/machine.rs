//! The machine that is measured on.

use std::fs;

/// As the kernel names it.
pub fn cpu_model() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split(": ").nth(1));
    model.unwrap_or("unknown").to_owned()
}

/// Over the last minute.
pub fn load_average() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let first = text
        .split(' ')
        .next()
        .and_then(|number| number.parse().ok());
    first.unwrap_or_default()
}
