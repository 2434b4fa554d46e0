//! What the programs are told of packets without an entry.

use std::num::NonZeroU32;
use std::time::Duration;

use anabranch_core::{Family, Member};
use anabranch_dataplane::services::ServiceId;
use anabranch_policy::abi::{self, ServiceSettings};

use super::ServicesRole;
use super::config::Service;

/// How long the owners of rows before the last change get packets of unknown connections: most connections are shorter.
const FORMER_LASTS: Duration = Duration::from_secs(600);

impl ServicesRole {
    /// Writes what becomes of packets without an entry, but for when the former owners of rows cease to count.
    pub(super) fn tell_settings(&mut self, id: ServiceId, service: &Service) -> anyhow::Result<()> {
        let known = self.plane.settings(id)?;
        let settings = ServiceSettings {
            insert_limit: service.insert_limit.unwrap_or(0),
            client_limit: service.client_limit.map_or(0, NonZeroU32::get),
            unknown: abi::Unknown::from(service.unknown) as u16,
            ..known
        };
        if settings != known {
            self.plane.set_settings(id, settings)?;
        }
        Ok(())
    }

    /// Writes where the hashes of packets without an entry lead, if they go by their hashes.
    pub(super) fn tell_rows(
        &mut self,
        (id, family): (ServiceId, Family),
        service: &Service,
        members: &[Option<Member>],
    ) -> anyhow::Result<()> {
        let by_rows = service.unknown.goes_by_rows();
        let members = by_whole_weights(service, members);
        let rows = by_rows.then(|| service.policy.rows(&members)).flatten();
        let set = self
            .plane
            .set_rows(id, family, rows.as_deref(), FORMER_LASTS);
        Ok(set?)
    }
}

/// As the file has their weights: if rows changed while weights rise, connections without an entry would move at each step.
fn by_whole_weights(service: &Service, members: &[Option<Member>]) -> Vec<Option<Member>> {
    let whole = |member: Member| {
        let mut servers = service.servers.iter();
        let written = servers.find(|one| one.endpoint == member.endpoint);
        let weight = written.map_or(member.weight, |one| one.weight);
        Member { weight, ..member }
    };
    members.iter().map(|member| member.map(whole)).collect()
}

#[cfg(test)]
mod tests;
