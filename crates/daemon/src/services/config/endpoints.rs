//! The keys of a service that say where clients call it, where its servers are, and how packets reach them.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use anabranch_core::ServerAt;
use anabranch_core::catalogue::TargetKind;
use anabranch_dataplane::services::{Forwarding, Listen};

use super::{ForwardingWord, Refused, ServiceTable};
use crate::config::is_of_one_host;

/// The virtual endpoints and the forwarding, which suit each other and the servers.
pub(super) fn endpoints(table: &ServiceTable) -> Result<(Vec<Listen>, Forwarding), Refused> {
    let listen = table.listen.to_vec();
    let servers: Vec<SocketAddr> = table.servers.iter().map(|server| server.at).collect();
    some_of_each(&listen, &servers)?;
    of_one_host(&listen, &servers)?;
    let forwarding = forwarding(table).map_err(|problem| ("gue_port", problem.to_owned()))?;
    no_server_twice(&listen, &servers, forwarding)?;
    a_server_for_each(&listen, &servers, forwarding)?;
    ports_that_stay(&listen, &servers, forwarding)?;
    Ok((listen, forwarding))
}

fn some_of_each(listen: &[Listen], servers: &[SocketAddr]) -> Result<(), Refused> {
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

fn no_server_twice(
    listen: &[Listen],
    servers: &[SocketAddr],
    forwarding: Forwarding,
) -> Result<(), Refused> {
    for (i, server) in servers.iter().enumerate() {
        let at = ServerAt(*server);
        if servers[..i].contains(server) {
            return Err(("servers", format!("{at} is there twice")));
        }
        if !listen.iter().any(|one| serves(server, one, forwarding)) {
            let problem = format!("{at} is of another family than every endpoint of `listen`");
            return Err(("servers", problem));
        }
    }
    Ok(())
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
    servers: &[SocketAddr],
    forwarding: Forwarding,
) -> Result<(), Refused> {
    if forwarding == Forwarding::Nat {
        return Ok(());
    }
    let ports: BTreeSet<[u16; 2]> = listen.iter().map(|one| one.ports).collect();
    let keeps_port =
        |server: &SocketAddr| server.port() == 0 || ports.iter().eq([&[server.port(); 2]]);
    match servers.iter().find(|server| !keeps_port(server)) {
        None => Ok(()),
        Some(server) => Err((
            "servers",
            format!(
                "{server}: {} leaves the port that clients called: write \"{}\"",
                in_file(forwarding),
                ServerAt(SocketAddr::new(server.ip(), 0))
            ),
        )),
    }
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
