use std::time::{SystemTime, UNIX_EPOCH};

use anabranch_core::rules::Moment;

/// The time of the week, by the clock and time zone of this host.
pub fn moment() -> Moment {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let seconds = since.map_or(0, |since| since.as_secs()) as libc::time_t;
    // SAFETY: a structure of integers and a pointer, for which zero is valid.
    let mut local: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: both outlive the call, which fails only for years of more than 32 bits.
    unsafe { libc::localtime_r(&raw const seconds, &raw mut local) };
    let from_monday = (local.tm_wday + 6) % 7;
    Moment::new(
        from_monday as u8,
        (local.tm_hour * 60 + local.tm_min) as u16,
    )
}
