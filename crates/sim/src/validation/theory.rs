//! Closed formulas for the throughput of TCP under random loss.

/// Mathis 1997: segments per second at loss `p`, where each acknowledgement covers `b` segments and nothing times out.
pub fn mathis(p: f64, rtt_s: f64, b: f64) -> f64 {
    (3. / (2. * b * p)).sqrt() / rtt_s
}

/// Padhye, Firoiu, Towsley and Kurose 1998, equation 32, without a receiver's limit: segments per second.
pub fn pftk(p: f64, rtt_s: f64, b: f64, rto_s: f64) -> f64 {
    let timeouts = (3. * (3. * b * p / 8.).sqrt()).min(1.) * p * (1. + 32. * p * p);
    1. / (rtt_s * (2. * b * p / 3.).sqrt() + rto_s * timeouts)
}
