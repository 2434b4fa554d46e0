//! Slow start: servers that have come up are given more of their weights step by step.

use anabranch_core::slow_start::{WHOLE, parts};

use super::config::Service;
use super::{Placed, PlacedServer, ServicesRole};

/// How many parts of its weight a server has now.
pub(super) fn parts_of(service: &Service, server: &PlacedServer) -> u32 {
    let rising = service.slow_start.zip(server.up_since);
    rising.map_or(WHOLE, |(lasts, since)| parts(since.elapsed(), lasts))
}

/// Whether the weight of a server is about to rise.
fn is_rising(placed: &Placed) -> bool {
    let mut servers = placed.servers.values();
    servers.any(|server| server.up_since.is_some())
}

impl ServicesRole {
    /// Writes the weights that have risen.
    pub(super) fn raise_weights(&mut self) -> anyhow::Result<()> {
        let services = self.config.services.iter();
        let services = services.filter(|one| one.slow_start.is_some());
        let rising = services.filter(|one| self.placed.get(&one.name).is_some_and(is_rising));
        for service in rising.cloned().collect::<Vec<_>>() {
            self.tell_choices_again(&service)?;
            let Some(placed) = self.placed.get_mut(&service.name) else {
                continue;
            };
            for server in placed.servers.values_mut() {
                // What has risen just now is written the next time.
                if parts_of(&service, server) == WHOLE {
                    server.up_since = None;
                }
            }
        }
        Ok(())
    }
}
