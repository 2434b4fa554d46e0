//! What the examples pay.

/// CPU time of the main thread so far.
pub fn cpu_s() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/schedstat")
        .expect("Linux tells each thread's CPU time");
    let ns = stat
        .split(' ')
        .next()
        .and_then(|first| first.parse::<f64>().ok());
    ns.expect("schedstat begins with nanoseconds on the CPU") / 1e9
}
