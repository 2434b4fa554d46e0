//! How many segments leave at once where departures are paced.

use super::TcpConfig;

/// A burst is what passes in this part of a second (`sk_pacing_shift`), and no more than one buffer of the kernel's holds.
const BURSTS_PER_SECOND: f64 = 1024.;
const BURST_MOST_BYTES: u32 = 1 << 16;
/// `net.ipv4.tcp_min_tso_segs`.
pub const BURST_LEAST: u32 = 2;

/// How many segments leave together, of which there are `least` at least.
pub fn burst(rate_pps: f64, least: u32, config: &TcpConfig) -> u32 {
    let most = (BURST_MOST_BYTES / config.mss_bytes).max(1);
    ((rate_pps / BURSTS_PER_SECOND) as u32).clamp(least, most.max(least))
}
