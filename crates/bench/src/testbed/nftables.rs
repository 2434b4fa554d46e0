//! What the kernel offers for the same job: a random mark per connection, a routing table per mark, masquerade.

use anabranch_policy::Family;
use anyhow::Result;

use super::{LAN_DEVICE, LINKS, Network, isp, wan_device};

pub fn configure(network: &Network) -> Result<()> {
    let gateway = &network.gateway;
    for (family, option) in [(Family::V4, "-4"), (Family::V6, "-6")] {
        gateway.ip(&format!("route add default via {}", isp(family, 0)))?;
        for i in 0..LINKS {
            let (mark, table) = (i + 1, 101 + u32::from(i));
            gateway.ip(&format!(
                "route add default via {} dev {} table {table}",
                isp(family, i),
                wan_device(i)
            ))?;
            gateway.ip(&format!("{option} rule add fwmark {mark} lookup {table}"))?;
        }
    }
    gateway.nft(&rules())?;
    Ok(())
}

fn rules() -> String {
    format!(
        "table inet balance {{
            chain choose {{
                type filter hook prerouting priority mangle
                iifname \"{LAN_DEVICE}\" ct state new ct mark set numgen random mod {LINKS} offset 1
                iifname \"{LAN_DEVICE}\" meta mark set ct mark
            }}
            chain translate {{
                type nat hook postrouting priority srcnat
                oifname \"wan*\" masquerade
            }}
        }}
        "
    )
}
