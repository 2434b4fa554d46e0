//! The configuration: at least three lines of TOML.
//!
//! Reading has two steps. `file` has the keys as they are written, and refuses unknown ones. A file for each section converts them
//! into a [`Config`] whose values are consistent. What depends on the host (do the devices exist?) is checked by [`crate::observe`]
//! and [`crate::preflight`]. Every error is one line with the file, the key, the value as written, and what is allowed.
//!
//! A file has a section for each role of the instance ([`Configuration`]): the keys of a gateway are at its top, those of services
//! in `[service.NAME]`, those of a trunk in `[trunk]`. Each role reads its own section; conflicts between roles are checked here.

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

use std::path::Path;

use anabranch_config::{Source, read_text};

pub use anabranch_config::Rate;
pub use anabranch_core::OnReturn;

use crate::error::BadInput;
use crate::{services, trunk};
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
/// Likewise.
pub const TRUNK: &str = "trunk";

/// The roles that a file gives to an instance: at least one, and without conflicts.
#[derive(Debug, Clone)]
pub struct Configuration {
    /// A gateway over several links.
    pub gateway: Option<Box<Config>>,
    /// Services with their servers.
    pub services: Option<services::Config>,
    /// A trunk of parallel sublinks.
    pub trunk: Option<trunk::Config>,
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
        // Keys that no role knows count as misspelled keys of a gateway; so does a file without keys.
        let has_gateway = !(has_services || has_trunk) || source.keys().any(is_gateways);
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
        };
        configuration.check_claims(&source)?;
        Ok(configuration)
    }

    /// The devices of each role that no other role may have.
    pub fn devices(&self) -> Vec<(&'static str, Vec<&str>)> {
        let gateway = self.gateway.iter();
        let services = self.services.iter();
        let trunk = self.trunk.iter();
        gateway
            .map(|config| (GATEWAY, config.devices()))
            .chain(services.map(|config| (SERVICE, config.device_names())))
            .chain(trunk.map(|config| (TRUNK, config.devices())))
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
        )
    }
}

/// Whether a key at the top of a file belongs to no other role.
fn is_gateways(key: &str) -> bool {
    key != SERVICE && key != TRUNK
}

#[cfg(test)]
mod tests;
