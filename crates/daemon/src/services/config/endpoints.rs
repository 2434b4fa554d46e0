//! The keys of a service that say where clients call it, where its servers are, and how packets reach them.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use anabranch_core::ServerAt;
use anabranch_core::catalogue::TargetKind;
use anabranch_dataplane::services::{Forwarding, Listen};

use super::{ForwardingWord, Refused, ServiceTable};
use crate::config::is_of_one_host;
use crate::services::members::Place;

/// The virtual endpoints and the forwarding, which suit each other and the servers.
pub(super) fn endpoints(table: &ServiceTable) -> Result<(Vec<Listen>, Forwarding), Refused> {
    let listen = table.listen.to_vec();
    let places: Vec<&Place> = table.servers.iter().map(|server| &server.at).collect();
    let servers = places.iter().filter_map(|place| place.endpoint());
    let servers: Vec<SocketAddr> = servers.collect();
    some_of_each(&listen, &places)?;
    of_one_host(&listen, &servers)?;
    let forwarding = forwarding(table).map_err(|problem| ("gue_port", problem.to_owned()))?;
    no_server_twice(&places)?;
    a_family_of_each(&listen, &servers, forwarding)?;
    if servers.len() == places.len() {
        a_server_for_each(&listen, &servers, forwarding)?;
    }
    ports_that_stay(&listen, &places, forwarding)?;
    Ok((listen, forwarding))
}

fn some_of_each(listen: &[Listen], servers: &[&Place]) -> Result<(), Refused> {
    if listen.is_empty() {
        return Err(("listen", "one endpoint is wanted at least".to_owned()));
    }
    if servers.is_empty() {
        return Err(("servers", "one server is wanted at least".to_owned()));
    }
    let max = TargetKind::Server.row().max;
    match servers.len() {
        count if count > max => {
            let problem = format!("{count} servers; at most {max} are allowed");
            Err(("servers", problem))
        }
        _ => Ok(()),
    }
}

fn of_one_host(listen: &[Listen], servers: &[SocketAddr]) -> Result<(), Refused> {
    let is_called = |one: &Listen| is_of_one_host(one.address) && one.ports[0] != 0;
    if !listen.iter().all(is_called) {
        let allowed = "each must be the address of one host, and a port from 1 on";
        return Err(("listen", allowed.to_owned()));
    }
    match servers.iter().all(|server| is_of_one_host(server.ip())) {
        true => Ok(()),
        false => Err(("servers", "each must be the address of one host".to_owned())),
    }
}

fn forwarding(table: &ServiceTable) -> Result<Forwarding, &'static str> {
    let gue_port = table.gue_port;
    match (table.forwarding, gue_port) {
        (ForwardingWord::Tunnel, Some(0)) => Err("1 to 65535 are allowed"),
        (ForwardingWord::Tunnel, _) => Ok(Forwarding::Tunnel { gue_port }),
        (_, Some(_)) => Err("it is of forwarding = \"tunnel\"; leave it out"),
        (ForwardingWord::Nat, None) => Ok(Forwarding::Nat),
        (ForwardingWord::Direct, None) => Ok(Forwarding::Direct),
    }
}

fn no_server_twice(places: &[&Place]) -> Result<(), Refused> {
    let mut numbered = places.iter().enumerate();
    match numbered.find(|(i, place)| places[..*i].contains(place)) {
        None => Ok(()),
        Some((_, place)) => Err(("servers", format!("{place} is there twice"))),
    }
}

fn a_family_of_each(
    listen: &[Listen],
    servers: &[SocketAddr],
    forwarding: Forwarding,
) -> Result<(), Refused> {
    let is_called = |server: &&SocketAddr| listen.iter().any(|one| serves(server, one, forwarding));
    match servers.iter().find(|server| !is_called(server)) {
        None => Ok(()),
        Some(server) => {
            let at = ServerAt(*server);
            let problem = format!("{at} is of another family than every endpoint of `listen`");
            Err(("servers", problem))
        }
    }
}

fn a_server_for_each(
    listen: &[Listen],
    servers: &[SocketAddr],
    forwarding: Forwarding,
) -> Result<(), Refused> {
    let has_server = |one: &Listen| servers.iter().any(|server| serves(server, one, forwarding));
    match listen.iter().find(|one| !has_server(one)) {
        None => Ok(()),
        Some(lonely) => Err((
            "listen",
            format!("{lonely} is of another family than every server"),
        )),
    }
}

fn serves(server: &SocketAddr, listen: &Listen, forwarding: Forwarding) -> bool {
    is_tunnel(forwarding) || listen.address.is_ipv4() == server.is_ipv4()
}

/// Only NAT changes the port that clients called.
fn ports_that_stay(
    listen: &[Listen],
    places: &[&Place],
    forwarding: Forwarding,
) -> Result<(), Refused> {
    if forwarding == Forwarding::Nat {
        return Ok(());
    }
    let ports: BTreeSet<[u16; 2]> = listen.iter().map(|one| one.ports).collect();
    let is_called = |port| port == 0 || ports.iter().eq([&[port; 2]]);
    let keeps_port = |place: &&&Place| place.port().is_some_and(is_called);
    let Some(other) = places.iter().find(|place| !keeps_port(place)) else {
        return Ok(());
    };
    let alone = match other {
        Place::Endpoint(at) => at.ip().to_string(),
        Place::Host { name, .. } => name.clone(),
        Place::Service(_) => "NAME".to_owned(),
    };
    let word = in_file(forwarding);
    let problem = format!("{other}: {word} leaves the port that clients called: write \"{alone}\"");
    Err(("servers", problem))
}

/// Whether it carries either family in either.
pub(super) const fn is_tunnel(forwarding: Forwarding) -> bool {
    matches!(forwarding, Forwarding::Tunnel { .. })
}

/// As a file says it.
pub(super) const fn in_file(forwarding: Forwarding) -> &'static str {
    match forwarding {
        Forwarding::Nat => r#"forwarding = "nat""#,
        Forwarding::Direct => r#"forwarding = "direct""#,
        Forwarding::Tunnel { .. } => r#"forwarding = "tunnel""#,
    }
}
