//! Which server a client's connection has or would get.

use std::net::SocketAddr;

use anabranch_api::{Response, Served};
use anabranch_core::{Family, Proto};
use anabranch_dataplane::services::{Listen, Protocol};

use super::ServicesRole;
use super::config::Service;

impl ServicesRole {
    /// The program's answer, in the names of the configuration.
    pub(super) fn explain(
        &mut self,
        service: &str,
        client: SocketAddr,
        called: Option<SocketAddr>,
        proto: Proto,
    ) -> anyhow::Result<Response> {
        let refuse = |message| Ok(Response::Refused { message });
        let service = match self.config.of_name(service) {
            Ok(service) => service.clone(),
            Err(message) => return refuse(message),
        };
        let Some(called) = called.or_else(|| first_called(&service, client, proto)) else {
            let listen: Vec<_> = service.listen.iter().map(Listen::to_string).collect();
            return refuse(format!(
                "service {} is not called by such a client, but at: {}",
                service.name,
                listen.join(", ")
            ));
        };
        let served = self.plane.explain(client, called, proto)?;
        let placed = self.placed.get(&service.name);
        let Some(placed) = placed.filter(|placed| served.service == Some(placed.id)) else {
            return refuse(format!(
                "{called} is no endpoint of service {}",
                service.name
            ));
        };
        // One that is gone may still have the connection.
        let known = self.plane.servers(placed.id)?;
        let server = served.server.and_then(|server| known[server.index()]);
        Ok(Response::Served(Box::new(Served {
            called,
            server: server.map(|server| server.endpoint),
            why: served.why,
            bound: served.bound,
            service: self.service_status(&service)?,
        })))
    }
}

/// The first endpoint of a client's family and protocol.
fn first_called(service: &Service, client: SocketAddr, proto: Proto) -> Option<SocketAddr> {
    let protocol = match proto {
        Proto::Tcp => Protocol::Tcp,
        Proto::Udp => Protocol::Udp,
    };
    let wanted = (protocol, Family::from(client.ip()));
    let mut listen = service.listen.iter();
    let first = listen.find(|one| (one.protocol, Family::from(one.address)) == wanted)?;
    Some(SocketAddr::new(first.address, first.ports[0]))
}
