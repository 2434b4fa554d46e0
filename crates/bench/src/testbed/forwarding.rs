//! Plain forwarding: one default route there, one route back, no translation, no choice.

use anyhow::Result;

use super::{CONGESTION_CONTROL, Network, external, isp};

pub fn configure(network: &Network) -> Result<()> {
    network
        .gateway
        .ip(&format!("route add default via {}", isp(0)))?;
    network.internet.ip(&format!(
        "route add 10.0.0.0/24 via {} congctl {CONGESTION_CONTROL}",
        external(0)
    ))?;
    Ok(())
}
