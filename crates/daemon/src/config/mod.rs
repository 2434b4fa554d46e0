//! The configuration: at least three lines of TOML.
//!
//! Reading has two steps. `file` has the keys as they are written, and refuses unknown ones. A file for each section converts them
//! into a [`Config`] whose values are consistent. What depends on the host (do the devices exist?) is checked by [`crate::observe`]
//! and [`crate::preflight`]. Every error is one line with the file, the key, the value as written, and what is allowed.
//!
//! A file has a section for each role of the instance ([`Configuration`]): the keys of a gateway are at its top, those of services
//! in `[service.NAME]`, those of a trunk in `[trunk]`, those of a member in `[member]`. Each role reads its own section; conflicts between roles are checked here.

mod addresses;
mod checks;
mod claims;
mod classes;
mod file;
mod gateway;
mod link;
mod nat;
mod targets;
mod words;

use std::collections::BTreeMap;
use std::path::Path;

use anabranch_config::{Source, read_text};

pub use anabranch_config::Rate;
pub use anabranch_core::OnReturn;

use crate::error::BadInput;
use crate::{member, services, trunk};
pub(crate) use addresses::is_of_one_host;
pub(crate) use checks::check;
pub(crate) use claims::{Claim, check_claims, claim};
pub(crate) use file::{CheckTable, ExpectTable, OneOrMore};
pub use gateway::Config;
pub use link::Link;
pub use nat::{Limits, Nat};
pub use words::{Fallback, Forwards, Inbound, LanSources, UdpFilter};

/// The names of roles in messages; except for the gateway, also of their sections.
pub const GATEWAY: &str = "gateway";
/// Likewise.
pub const SERVICE: &str = "service";
/// The section of what all services share.
pub(crate) const SERVICES: &str = "services";
/// Likewise.
pub const TRUNK: &str = "trunk";
/// Likewise.
pub const MEMBER: &str = "member";

/// The roles that a file gives to an instance: at least one, and without conflicts.
#[derive(Debug, Clone)]
pub struct Configuration {
    /// A gateway over several links.
    pub gateway: Option<Box<Config>>,
    /// Services with their servers.
    pub services: Option<services::Config>,
    /// A trunk of parallel sublinks.
    pub trunk: Option<trunk::Config>,
    /// A server of services.
    pub member: Option<member::Config>,
}

impl Configuration {
    /// Reads the file at `path`. An error is one line that names file, key, value and what is allowed.
    pub fn load(path: &Path) -> Result<Self, BadInput> {
        Self::parse(path, &read_text(path)?)
    }

    /// `path` is for messages only.
    pub fn parse(path: &Path, text: &str) -> Result<Self, BadInput> {
        let source = Source::parse(path, text)?;
        let has_services = source.span(&[SERVICE]).is_some();
        let has_trunk = source.span(&[TRUNK]).is_some();
        let has_member = source.span(&[MEMBER]).is_some();
        // Keys that no role knows count as misspelled keys of a gateway; so does a file without keys.
        let has_gateway =
            !(has_services || has_trunk || has_member) || source.keys().any(is_gateways);
        let gateway = has_gateway
            .then(|| Config::parse(path, text).map(Box::new))
            .transpose()?;
        let configuration = Self {
            services: has_services
                .then(|| services::Config::parse(path, text, gateway.as_deref()))
                .transpose()?,
            gateway,
            trunk: has_trunk
                .then(|| trunk::Config::parse(path, text))
                .transpose()?,
            member: has_member
                .then(|| member::Config::parse(path, text))
                .transpose()?,
        };
        configuration.check_claims(&source)?;
        configuration.check_addresses(&source)?;
        Ok(configuration)
    }

    /// The devices of each role that no other role may have.
    pub fn devices(&self) -> Vec<(&'static str, Vec<&str>)> {
        let gateway = self.gateway.iter();
        let services = self.services.iter();
        let trunk = self.trunk.iter();
        let member = self.member.iter();
        gateway
            .map(|config| (GATEWAY, config.devices()))
            .chain(services.map(|config| (SERVICE, config.device_names())))
            .chain(trunk.map(|config| (TRUNK, config.devices())))
            .chain(member.map(|config| (MEMBER, config.device_names())))
            .collect()
    }

    /// The names of the roles in messages.
    pub fn roles(&self) -> Vec<&'static str> {
        self.devices().into_iter().map(|(role, _)| role).collect()
    }

    /// Checks that no device has two roles. Packets for a trunk arrive on its sublinks. At the trunk's device a gateway would
    /// receive nothing, and at a sublink it would drop the packets for the trunk, because they belong to no flow of the gateway.
    fn check_claims(&self, source: &Source<'_>) -> Result<(), BadInput> {
        let gateway = self.gateway.iter().flat_map(|config| config.claims());
        let trunk = self.trunk.iter().flat_map(|config| config.claims());
        check_claims(
            source,
            gateway.chain(trunk),
            "what comes for a trunk arrives on its sublinks and nowhere else, so no device is both the gateway's and the trunk's",
        )?;
        // Services may be on a gateway's devices, because they come before it.
        let services = self.services.iter().flat_map(|config| config.own_claims());
        let trunk = self.trunk.iter().flat_map(|config| config.claims());
        check_claims(
            source,
            trunk.chain(services),
            "what comes for a trunk is the trunk's, so no service stands there",
        )?;
        // A member changes settings of its devices and undoes that, as the other roles do.
        let others = self.devices().into_iter();
        let others = others.filter(|(role, _)| *role != MEMBER);
        let others: BTreeMap<&str, &str> = others
            .flat_map(|(role, devices)| devices.into_iter().map(move |device| (device, role)))
            .collect();
        let mut member = self.member.iter().flat_map(|config| config.claims());
        let shared = member.find_map(|(key, device)| Some((key, others.get(device)?)));
        shared.map_or(Ok(()), |(key, role)| {
            let key: Vec<&str> = key.iter().map(String::as_str).collect();
            Err(source.bad(
                &key,
                format!("this device is the {role}'s already; a member has its devices alone"),
            ))
        })
    }

    /// Checks that this host is no member of its own services: a packet for one would be sent on by this host and received by it.
    fn check_addresses(&self, source: &Source<'_>) -> Result<(), BadInput> {
        let services = self.services.iter().flat_map(|config| &config.services);
        let addresses = self.member.iter().flat_map(|config| &config.addresses);
        for (i, address) in addresses.enumerate() {
            let mut services = services.clone();
            let is_at = |service: &&services::Service| {
                let mut listen = service.listen.iter();
                listen.any(|one| one.address == *address)
            };
            if let Some(service) = services.find(is_at) {
                let problem = format!(
                    "{SERVICE}.{} of this file listens there: a server is another host than its balancer",
                    service.name
                );
                return Err(source.bad(&[MEMBER, "addresses", &i.to_string()], problem));
            }
        }
        Ok(())
    }
}

/// Whether a key at the top of a file belongs to no other role.
fn is_gateways(key: &str) -> bool {
    ![SERVICE, SERVICES, TRUNK, MEMBER].contains(&key)
}

#[cfg(test)]
mod tests;
