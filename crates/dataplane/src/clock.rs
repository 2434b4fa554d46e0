//! The clock of the programs.

use std::{sync::LazyLock, time::Duration};

use nix::time::{ClockId, clock_gettime};

/// What time it is, since the machine was started.
pub type Clock = Box<dyn Fn() -> Duration + Send + Sync>;

/// That of programs which ask the kernel: of no time namespace (time_namespaces(7)).
pub fn monotonic_now() -> Duration {
    static OFFSET_NS: LazyLock<i128> = LazyLock::new(|| {
        let offsets = std::fs::read_to_string("/proc/self/timens_offsets");
        offsets.map_or(0, |offsets| monotonic_offset_ns(&offsets))
    });
    let here = clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(Duration::ZERO, Duration::from);
    let kernels = here.as_nanos() as i128 - *OFFSET_NS;
    Duration::from_nanos(kernels.clamp(0, i128::from(u64::MAX)) as u64)
}

/// What a time namespace adds to the kernel's clock. A kernel without such has no file of offsets.
fn monotonic_offset_ns(offsets: &str) -> i128 {
    let lines = offsets.lines().map(str::split_whitespace);
    let mut monotonic = lines.filter_map(|mut words| match words.next() {
        Some("monotonic") => {
            let seconds: i128 = words.next()?.parse().ok()?;
            let ns: i128 = words.next()?.parse().ok()?;
            Some(seconds * 1_000_000_000 + ns)
        }
        _ => None,
    });
    monotonic.next().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_namespace_tells_how_far_its_clock_is_from_the_kernels() {
        let offset = monotonic_offset_ns;
        assert_eq!(offset("monotonic 0 0\nboottime 7 0\n"), 0);
        assert_eq!(
            offset("monotonic           -86400         5\nboottime 0 0\n"),
            -86_399_999_999_995
        );
        assert_eq!(offset(""), 0);
    }
}
