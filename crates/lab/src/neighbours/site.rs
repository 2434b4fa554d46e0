//! The whole site: the ground, the links and who gives them addresses, the gateway, and who stands beside it.

use std::path::Path;

use anabranch_api::LinkState;

use super::ground::{Ground, LAN, PORT, servers, until};
use super::links::{Links, give_access};
use super::plan::{Choices, LINKS, NAMES};
use super::services::Services;
use crate::daemon::Daemon;
use crate::topology::{Anabranch, Result, wan};

/// A running site. Dropping it ends its processes, then removes its namespaces: in the order of the fields.
pub(super) struct Site {
    pub links: Links,
    pub services: Services,
    pub ground: Ground,
}

impl Site {
    /// Builds everything and waits until every link has answered a probe.
    pub fn build(binary: &Path, choices: Choices) -> Result<Self> {
        let ground = Ground::build()?;
        let accesses = (0..LINKS).map(|link| give_access(link, &ground, choices));
        let accesses = accesses.collect::<Result<Vec<_>>>()?;
        until("every link has an address", || {
            let present: Result<Vec<_>> = (0..LINKS).map(|link| ground.present(link)).collect();
            Ok(present?.iter().all(Option::is_some))
        })?;
        let services = Services::start(&ground, choices)?;
        until(
            "hosts are told a router, and one has the virtual address",
            || Ok(ground.hears_router()? && ground.is_master()?),
        )?;
        let gateway = Anabranch::start(&ground.the_box, binary, &configuration(choices))?;
        let site = Self {
            links: Links { gateway, accesses },
            services,
            ground,
        };
        until("every link up", || {
            let status = Daemon::connect(site.links.gateway.instance())?.gateway_status()?;
            Ok(status
                .links
                .iter()
                .all(|link| link.state == LinkState::Up && link.probe.round_trip_ms.is_some()))
        })?;
        Ok(site)
    }
}

fn configuration(choices: Choices) -> String {
    let forwards = if choices.published { "kernel" } else { "drop" };
    let mut text = format!("lan = [\"{LAN}\"]\nnat.forwards = \"{forwards}\"\n");
    for (link, name) in NAMES.iter().enumerate() {
        let device = wan(link);
        text += &format!(
            "link.{name} = {{ device = \"{device}\", down = \"100mbit\", up = \"100mbit\" }}\n"
        );
    }
    let [v4, v6] = servers(PORT);
    // There are few servers: sessions that stay where they are would not come back to a link that has failed.
    text += "default.stick = false\n";
    // Links of this site fail every few seconds, and the gateway is to use all that work.
    text += "availability = { hold_down = \"1s\", hold_down_max = \"2s\" }\n";
    text + &format!(
        "probe.targets = [\"icmp:{}\", \"tcp:{}\", \"icmp:{}\", \"tcp:{}\"]\n",
        v4[0].ip(),
        v4[1],
        v6[0].ip(),
        v6[1]
    )
}
