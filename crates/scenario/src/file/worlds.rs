//! What a world can do: the laboratory less than the simulator.

use anabranch_config::{BadInput, Source};

use super::{At, ScenarioFile};
use crate::{Line, LinkPlan, Network, Policy, World};

/// What the laboratory's emulator promises to carry, all lines and directions together.
const LAB_RATE_MAX_BPS: u64 = 500_000_000;

impl ScenarioFile {
    /// Whether `world` can run every point of the file.
    pub fn fits(&self, world: World) -> Result<(), BadInput> {
        match world {
            World::Sim => Ok(()),
            World::Lab => self.points.iter().try_for_each(|at| self.fits_lab(at)),
        }
    }

    fn fits_lab(&self, at: &At) -> Result<(), BadInput> {
        let source = Source::parse(&self.path, &at.text)?.numbered();
        let Network::Site(site) = &at.scenario.network else {
            return Err(source.bad(
                &["trunk"],
                "the laboratory runs links; run a trunk with `anabranch sim run`",
            ));
        };
        if at.scenario.policies.contains(&Policy::Packet) {
            return Err(source.bad(
                &["policies"],
                "the laboratory's gateway chooses per connection or session; leave packet out",
            ));
        }
        let rate_bps: u64 = site
            .links
            .iter()
            .flat_map(lines)
            .map(|line| line.rate_bps)
            .sum();
        if rate_bps > LAB_RATE_MAX_BPS {
            let problem = format!(
                "{} Mbit/s over all lines and directions; the laboratory carries 500 at most",
                rate_bps / 1_000_000
            );
            return Err(source.bad(&["link"], problem));
        }
        for link in &site.links {
            let bad = |problem: &str| Err(source.bad(&["link", &link.name], problem));
            if lines(link).any(|line| line.red.is_some()) {
                return bad("the laboratory has drop-tail queues; leave red out");
            }
        }
        Ok(())
    }
}

fn lines(link: &LinkPlan) -> impl Iterator<Item = &Line> {
    let beyond = link
        .beyond
        .iter()
        .flat_map(|beyond| [&beyond.down, &beyond.up]);
    [&link.down, &link.up].into_iter().chain(beyond)
}
