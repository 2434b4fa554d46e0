//! Plain forwarding: one default route there, one route back, no translation, no choice.

use anyhow::Result;

use anabranch_policy::Family;

use super::{Network, isp};

pub fn configure(network: &Network) -> Result<()> {
    for family in Family::ALL {
        let next_hop = isp(family, 0);
        network
            .gateway
            .ip(&format!("route add default via {next_hop}"))?;
    }
    network.route_back()
}
