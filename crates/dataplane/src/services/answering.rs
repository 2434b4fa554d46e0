//! For which virtual endpoints each server answers: `find_answered` of `bpf/lib/service/connection.h`.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::{IpAddr, SocketAddr},
};

use anabranch_core::Family;
use anabranch_policy::abi::{ALIASES_MAX, Alias, Answering, BePort, Virtual};

use super::{Forwarding, Listen, Protocol, ServerId, ServiceId};

type Place = (ServiceId, ServerId);
/// A virtual endpoint; port 0: the one from which the server answers.
type Endpoint = (ServiceId, SocketAddr);

/// The servers, and the virtual endpoints of their services. A server that answers its clients itself is among them: it may have
/// connections from when it did not.
#[derive(Clone, Debug, Default)]
pub struct Answers {
    listens: BTreeMap<ServiceId, Vec<Listen>>,
    servers: BTreeMap<Place, (SocketAddr, Forwarding)>,
    by_address: BTreeMap<IpAddr, BTreeSet<Place>>,
}

impl Answers {
    /// These are all virtual endpoints from now on.
    pub fn set_virtuals(&mut self, virtuals: &BTreeMap<Listen, ServiceId>) {
        self.listens.clear();
        for (listen, service) in virtuals {
            self.listens.entry(*service).or_default().push(*listen);
        }
    }

    /// Which server is at a place of a service from now on, if any. Returns the addresses of which other answers may come now.
    pub fn set_server(
        &mut self,
        place: Place,
        server: Option<(SocketAddr, Forwarding)>,
    ) -> Vec<IpAddr> {
        let known = match server {
            Some(server) => self.servers.insert(place, server),
            None => self.servers.remove(&place),
        };
        if known == server {
            return Vec::new();
        }
        let [known, endpoint] = [known, server].map(|one| one.map(|(endpoint, _)| endpoint));
        if let Some(known) = known
            && let Some(here) = self.by_address.get_mut(&known.ip())
        {
            here.remove(&place);
        }
        if let Some(endpoint) = endpoint {
            self.by_address
                .entry(endpoint.ip())
                .or_default()
                .insert(place);
        }
        let changed = [known, endpoint].into_iter().flatten();
        changed.map(|endpoint| endpoint.ip()).collect()
    }

    /// The addresses of servers.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.by_address.keys().copied()
    }

    /// The virtual endpoints for which each endpoint of a server with this address answers: one more than [`ALIASES_MAX`] if they are
    /// too many.
    pub fn of(&self, server: IpAddr) -> BTreeMap<Listen, Vec<Endpoint>> {
        let places = self.by_address.get(&server).into_iter().flatten();
        let here: Vec<(ServiceId, u16)> = places
            .map(|place| (place.0, self.servers[place].0.port()))
            .collect();
        let mut all = BTreeMap::new();
        for protocol in Protocol::ALL {
            for (_, port) in &here {
                let ports = match port {
                    0 => [0, u16::MAX],
                    port => [*port; 2],
                };
                let from = Listen {
                    address: server,
                    ports,
                    protocol,
                };
                let endpoints = self.called_by(&here, protocol, SocketAddr::new(server, *port));
                if !endpoints.is_empty() {
                    all.insert(from, endpoints);
                }
            }
        }
        all
    }

    /// Those of a server's endpoint, of which `here` are all services and ports.
    fn called_by(
        &self,
        here: &[(ServiceId, u16)],
        protocol: Protocol,
        server: SocketAddr,
    ) -> Vec<Endpoint> {
        let mut endpoints: Vec<Endpoint> = Vec::new();
        // The longest prefix hides the others.
        let answered = here
            .iter()
            .filter(|(_, port)| [0, server.port()].contains(port));
        for (service, port) in answered {
            for endpoint in self.called(*service, protocol, server.ip().into(), *port) {
                if endpoints.len() > ALIASES_MAX {
                    return endpoints;
                }
                if endpoints.iter().all(|(_, known)| *known != endpoint) {
                    endpoints.push((*service, endpoint));
                }
            }
        }
        endpoints
    }

    /// The virtual endpoints of a service from which clients of a family come to a server's port; 0: to the one that they called.
    fn called(
        &self,
        service: ServiceId,
        protocol: Protocol,
        family: Family,
        port: u16,
    ) -> impl Iterator<Item = SocketAddr> {
        let listens = self.listens.get(&service).into_iter().flatten();
        listens
            .filter(move |one| (one.protocol, one.address.into()) == (protocol, family))
            .flat_map(move |one| {
                let ports = match port {
                    0 => [0; 2],
                    _ => one.ports,
                };
                (ports[0]..=ports[1]).map(|port| SocketAddr::new(one.address, port))
            })
    }

    /// The same as entries of the kernel's table, of too many the first.
    pub(super) fn entries(&self, server: IpAddr) -> HashMap<(u32, Virtual), Answering> {
        let answers = self.of(server);
        let is_direct = |service: ServiceId| {
            let places = self.by_address.get(&server).into_iter().flatten();
            let mut servers = places.filter(|place| place.0 == service);
            servers.all(|place| self.servers[place].1 != Forwarding::Nat)
        };
        let entry = |endpoints: &[Endpoint]| {
            let mut answering = Answering {
                count: endpoints.len().min(ALIASES_MAX) as u32,
                ..Answering::default()
            };
            for (to, (service, endpoint)) in answering.alias.iter_mut().zip(endpoints) {
                *to = Alias {
                    address: endpoint.ip().into(),
                    port: BePort::new(endpoint.port()),
                    service: service.0 as u8,
                    is_direct: is_direct(*service).into(),
                };
            }
            answering
        };
        let keyed = answers
            .iter()
            .flat_map(|(from, endpoints)| from.keys().map(move |key| (key, entry(endpoints))));
        keyed.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without a port: at port 0.
    fn nat(server: &str) -> Option<(SocketAddr, Forwarding)> {
        let endpoint = server.parse();
        let endpoint = endpoint.unwrap_or_else(|_| SocketAddr::new(server.parse().unwrap(), 0));
        Some((endpoint, Forwarding::Nat))
    }

    /// Services of these virtual endpoints and servers, in order.
    fn answers(services: &[(&[&str], &[&str])]) -> Answers {
        let mut answers = Answers::default();
        let mut virtuals = BTreeMap::new();
        for (id, (listens, servers)) in (0..).map(ServiceId).zip(services) {
            for listen in *listens {
                virtuals.insert(listen.parse().unwrap(), id);
            }
            for (place, server) in (0..).map(ServerId).zip(*servers) {
                answers.set_server((id, place), nat(server));
            }
        }
        answers.set_virtuals(&virtuals);
        answers
    }

    fn told(answers: &Answers, server: &str) -> Vec<(String, Vec<String>)> {
        let all = answers.of(server.parse().unwrap());
        let told = |(from, to): (&Listen, &Vec<Endpoint>)| {
            let to = to.iter().map(|(_, endpoint)| endpoint.to_string());
            (from.to_string(), to.collect())
        };
        all.iter().map(told).collect()
    }

    fn expected(rows: &[(&str, &[&str])]) -> Vec<(String, Vec<String>)> {
        let row = |(from, to): &(&str, &[&str])| {
            let to = to.iter().map(ToString::to_string);
            ((*from).to_owned(), to.collect())
        };
        rows.iter().map(row).collect()
    }

    #[test]
    fn a_server_answers_for_the_endpoints_of_its_services_and_family() {
        let mut answers = answers(&[
            (
                &[
                    "203.0.113.10:80",
                    "203.0.113.11:80",
                    "udp:203.0.113.10:53",
                    "[2001:db8::10]:80",
                ],
                &["10.0.0.11:8080", "[fd00::11]:8080"],
            ),
            (&["203.0.113.12:90-91"], &["10.0.0.11", "10.0.0.12"]),
        ]);
        let of_port = ["203.0.113.10:80", "203.0.113.11:80", "203.0.113.12:0"];
        let before = expected(&[
            ("10.0.0.11:0-65535", &["203.0.113.12:0"]),
            ("10.0.0.11:8080", &of_port),
            ("udp:10.0.0.11:8080", &["203.0.113.10:53"]),
        ]);
        assert_eq!(told(&answers, "10.0.0.11"), before);
        assert_eq!(
            told(&answers, "fd00::11"),
            expected(&[("[fd00::11]:8080", &["[2001:db8::10]:80"])])
        );
        let moved = answers.set_server((ServiceId(1), ServerId(0)), nat("10.0.0.13"));
        assert_eq!(moved.len(), 2, "{moved:?}");
        assert_eq!(
            told(&answers, "10.0.0.11")[0],
            (
                before[1].0.clone(),
                of_port[..2].iter().map(ToString::to_string).collect()
            )
        );
        assert_eq!(
            told(&answers, "10.0.0.13"),
            expected(&[("10.0.0.13:0-65535", &["203.0.113.12:0"])])
        );
    }

    #[test]
    fn of_many_endpoints_one_more_than_fit_is_told() {
        let answers = answers(&[(&["203.0.113.10:8000-8099"], &["10.0.0.11:80", "10.0.0.12"])]);
        let many = answers.of("10.0.0.11".parse().unwrap());
        let [endpoints] = many.values().collect::<Vec<_>>()[..] else {
            panic!("one entry: {many:?}");
        };
        assert_eq!(endpoints.len(), ALIASES_MAX + 1);
        for entry in answers.entries("10.0.0.11".parse().unwrap()).values() {
            assert_eq!(entry.count as usize, ALIASES_MAX);
        }
        assert_eq!(told(&answers, "10.0.0.12")[0].1, ["203.0.113.10:0"]);
    }
}
