//! Which virtual endpoint a server's packet answers for, if there is no entry that says so.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use anabranch_core::{Family, ServerAt};
use anabranch_dataplane::services::{Listen, Protocol};

/// A service whose servers answer through this host.
pub(super) struct Answering<'a> {
    pub name: &'a str,
    pub listen: &'a [Listen],
    pub servers: Vec<SocketAddr>,
    /// Some of its packets have no entry.
    pub needs_aliases: bool,
}

/// As which endpoint a server answers cannot be told by its packets.
#[derive(Debug)]
pub(super) struct Ambiguous {
    /// Name of the service.
    pub service: String,
    pub server: IpAddr,
    /// Why.
    pub problem: String,
}

/// As which virtual endpoint each server of a service answers that has packets without an entry; port 0: as its own.
fn aliases_of(service: &Answering<'_>) -> Result<Vec<(Listen, SocketAddr)>, Ambiguous> {
    let mut aliases = Vec::new();
    for protocol in Protocol::ALL {
        for family in Family::ALL {
            let called: Vec<&Listen> = service
                .listen
                .iter()
                .filter(|one| (one.protocol, one.address.into()) == (protocol, family))
                .collect();
            let Some(first) = called.first() else {
                continue;
            };
            let is_one_address = called.iter().all(|one| one.address == first.address);
            let is_one_port = called.len() == 1 && first.ports[0] == first.ports[1];
            let of_family = service.servers.iter().copied();
            for server in of_family.filter(|server| Family::from(server.ip()) == family) {
                let port = match server.port() {
                    0 if is_one_address => 0,
                    port if port != 0 && is_one_port => first.ports[0],
                    _ => {
                        let problem = format!(
                            "{} answers for several virtual endpoints, which its packets do not tell apart",
                            ServerAt(server)
                        );
                        return Err(service.ambiguous(server.ip(), problem));
                    }
                };
                let alias = SocketAddr::new(first.address, port);
                aliases.push((answering(server, protocol), alias));
            }
        }
    }
    Ok(aliases)
}

/// The endpoints from which a server answers: of any port if it has none of its own.
fn answering(server: SocketAddr, protocol: Protocol) -> Listen {
    let ports = match server.port() {
        0 => [0, u16::MAX],
        port => [port; 2],
    };
    Listen {
        ports,
        protocol,
        ..Listen::tcp(server)
    }
}

impl Answering<'_> {
    fn ambiguous(&self, server: IpAddr, problem: String) -> Ambiguous {
        Ambiguous {
            service: self.name.to_owned(),
            server,
            problem,
        }
    }
}

/// As which virtual endpoints the servers of all services answer, where there is no entry.
pub(super) fn aliases(
    services: &[Answering<'_>],
) -> Result<BTreeMap<Listen, SocketAddr>, Ambiguous> {
    let mut all = BTreeMap::new();
    for service in services.iter().filter(|service| service.needs_aliases) {
        let aliases = aliases_of(service)?;
        for other in services.iter().filter(|other| other.name != service.name) {
            let mut theirs = (other.servers.iter())
                .flat_map(|server| Protocol::ALL.map(|protocol| answering(*server, protocol)));
            let shared =
                theirs.find(|theirs| aliases.iter().any(|(ours, _)| ours.overlaps(theirs)));
            if let Some(Listen { address, .. }) = shared {
                let problem = format!("{address} is a server of service.{}, too", other.name);
                return Err(service.ambiguous(address, problem));
            }
        }
        all.extend(aliases);
    }
    Ok(all)
}
