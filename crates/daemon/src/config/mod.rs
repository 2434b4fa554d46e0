//! The configuration: three lines of TOML, and what else may be said.
//!
//! Reading has two steps. `file` holds the keys as written and refuses unknown ones; a file for each section makes of them what stands in a
//! [`Config`], whose values make sense together. What depends on the host (do the devices exist?) is asked of [`crate::observe`] and
//! [`crate::preflight`]. Every error is one line with the file, the key, the value as written, and what is allowed.
//!
//! A file has a section for each role that the instance is to have ([`Configuration`]): the keys of a gateway stand at its top, those
//! of services in `[service.NAME]`, those of a trunk in `[trunk]`. Each role reads its own section; what they claim together is looked at here.

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
pub(crate) use claims::{Claim, check_claims, claim};
pub use gateway::Config;
pub use link::Link;
pub use nat::{Limits, Nat};
pub use words::{Fallback, Forwards, Inbound, LanSources, UdpFilter};

/// What messages call the roles; of all but the gateway, their sections, too.
pub const GATEWAY: &str = "gateway";
/// As above.
pub const SERVICE: &str = "service";
/// As above.
pub const TRUNK: &str = "trunk";

/// The roles that a file gives to an instance: one at least, and none that stands in another's way.
#[derive(Debug, Clone)]
pub struct Configuration {
    /// Of several links.
    pub gateway: Option<Box<Config>>,
    /// Of servers.
    pub services: Option<services::Config>,
    /// Of parallel sublinks.
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
        // Keys that no role knows are a gateway's, misspelled; so is a file without any.
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

    /// What each role has for itself.
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

    /// Of the roles, as messages name them.
    pub fn roles(&self) -> Vec<&'static str> {
        self.devices().into_iter().map(|(role, _)| role).collect()
    }

    /// What comes for a trunk arrives on its sublinks. At the trunk's device a gateway would hear nothing, and at a sublink it
    /// would drop what is of no flow of its own, which is what comes for the trunk.
    fn check_claims(&self, source: &Source<'_>) -> Result<(), BadInput> {
        let gateway = self.gateway.iter().flat_map(|config| config.claims());
        let trunk = self.trunk.iter().flat_map(|config| config.claims());
        check_claims(
            source,
            gateway.chain(trunk),
            "what comes for a trunk arrives on its sublinks and nowhere else, so no device is both the gateway's and the trunk's",
        )?;
        // Services may stand at a gateway's devices, before it.
        let services = self.services.iter().flat_map(|config| config.own_claims());
        let trunk = self.trunk.iter().flat_map(|config| config.claims());
        check_claims(
            source,
            trunk.chain(services),
            "what comes for a trunk is the trunk's, so no service stands there",
        )
    }
}

/// Whether a key at the top of a file is no other role's.
fn is_gateways(key: &str) -> bool {
    key != SERVICE && key != TRUNK
}

#[cfg(test)]
mod tests;
