//! Whether servers' packets tell for which virtual endpoints they answer.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use anabranch_core::ServerAt;
use anabranch_dataplane::services::{Answers, Forwarding, Listen, ServerId, ServiceId};
use anabranch_policy::abi::ALIASES_MAX;

/// A service whose servers answer through this host.
pub(super) struct Answering<'a> {
    pub name: &'a str,
    pub listen: &'a [Listen],
    pub servers: Vec<SocketAddr>,
    /// Some of its packets have no entry that tells their endpoint.
    pub goes_without_entries: bool,
}

/// For which endpoint a server answers cannot be told by its packets.
#[derive(Debug)]
pub(super) struct Ambiguous {
    /// Name of the service.
    pub service: String,
    /// Of the service: what should be written otherwise.
    pub key: &'static str,
    pub server: IpAddr,
    /// Why.
    pub problem: String,
}

fn answers(services: &[Answering<'_>]) -> Answers {
    let mut answers = Answers::default();
    let mut virtuals = BTreeMap::new();
    for (id, service) in (0..).map(ServiceId).zip(services) {
        virtuals.extend(service.listen.iter().map(|listen| (*listen, id)));
        for (place, server) in (0..).map(ServerId).zip(&service.servers) {
            answers.set_server((id, place), Some((*server, Forwarding::Nat)));
        }
    }
    answers.set_virtuals(&virtuals);
    answers
}

/// A server answers for few virtual endpoints, and for one if packets may have no entry.
pub(super) fn check(services: &[Answering<'_>]) -> Result<(), Ambiguous> {
    let answers = answers(services);
    let service = |id: ServiceId| &services[usize::from(id.0)];
    for (from, endpoints) in answers.addresses().flat_map(|server| answers.of(server)) {
        let server = match from.ports {
            [port, last] if port == last => SocketAddr::new(from.address, port),
            _ => SocketAddr::new(from.address, 0),
        };
        let refused = |id, key, problem| {
            Err(Ambiguous {
                service: service(id).name.to_owned(),
                key,
                server: from.address,
                problem,
            })
        };
        let without = endpoints
            .iter()
            .map(|(id, _)| *id)
            .find(|id| service(*id).goes_without_entries);
        if let Some(id) = without
            && endpoints.len() > 1
        {
            let other = endpoints.iter().find(|(other, _)| *other != id);
            let problem = match other {
                Some((other, _)) => format!(
                    "{} is a server of service.{}, too",
                    from.address,
                    service(*other).name
                ),
                None => format!(
                    "{} answers for several virtual endpoints, which its packets do not tell apart",
                    ServerAt(server)
                ),
            };
            return refused(id, "unknown", problem);
        }
        if endpoints.len() > ALIASES_MAX {
            let problem = format!(
                "{} answers for more than {ALIASES_MAX} virtual endpoints, which its packets do not tell apart: leave out its port",
                ServerAt(server)
            );
            return refused(endpoints[0].0, "servers", problem);
        }
    }
    Ok(())
}
