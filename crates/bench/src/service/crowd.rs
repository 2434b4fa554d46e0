//! A million established connections of one service, written into its table as if they had been opened long ago.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use anabranch_policy::abi::{self, BePort, Connection, Direct, FlowKey};
use anyhow::{Context, Result};
use aya::Pod;
use aya::maps::{HashMap, Map};
use nix::time::{ClockId, clock_gettime};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;

use super::site::{SERVERS, Site};
use crate::testbed::{CLIENT_DEVICE, LAN_DEVICE, SERVER};

pub const CROWD: u32 = 1_000_000;
const HOSTS: u32 = 250;
const FIRST_PORT: u32 = 10_000;
/// Of the frames that `measure::packets` makes.
const PORT: u16 = 9;
const UDP: u8 = 17;
const SEED: u64 = 1;

/// The client's ends, in another order than they are written in: or packets in turn would be in the order of memory.
pub fn flows() -> Vec<SocketAddrV4> {
    let mut flows: Vec<_> = (0..CROWD).map(end).collect();
    flows.shuffle(&mut SmallRng::seed_from_u64(SEED));
    flows
}

fn end(flow: u32) -> SocketAddrV4 {
    let host = Ipv4Addr::new(10, 1, 0, (1 + flow % HOSTS) as u8);
    SocketAddrV4::new(host, (FIRST_PORT + flow / HOSTS) as u16)
}

/// Writes them into the table of a service of ours.
pub fn enter(site: &Site) -> Result<()> {
    let now: Duration = clock_gettime(ClockId::CLOCK_MONOTONIC)?.into();
    let now_ns = now.as_nanos() as u64;
    let state = abi::CONNECTION_ANSWERED | abi::CONNECTION_ESTABLISHED;
    if site.contender.is_direct() {
        return fill(site, abi::SIDE_DIRECT, |place| Direct {
            seen_ns: now_ns,
            state: state | u32::from(place) << abi::DIRECT_SERVER_SHIFT,
            ..Default::default()
        });
    }
    let way = Connection {
        state,
        ..way(site, now_ns)?
    };
    fill(site, abi::SIDE_NAT, |server| Connection { server, ..way })
}

/// Each with an entry by the place of its server.
fn fill<E: Pod>(site: &Site, side: u8, entry: impl Fn(u16) -> E) -> Result<()> {
    let table = Map::HashMap(site.table()?);
    let mut table = HashMap::<_, FlowKey, E>::try_from(table)?;
    for from in (0..CROWD).map(end) {
        let key = FlowKey {
            local: SERVER.into(),
            remote: (*from.ip()).into(),
            local_port: BePort::new(PORT),
            remote_port: BePort::new(from.port()),
            proto: UDP,
            side,
            ..Default::default()
        };
        let place = from.port() % u16::from(SERVERS);
        let set = table.insert(key, entry(place), 0);
        set.context("filling the table of connections")?;
    }
    Ok(())
}

/// What all entries have in common: the way by which the client's packets come.
fn way(site: &Site, now_ns: u64) -> Result<Connection> {
    let (client, gateway) = (&site.network.client, &site.network.gateway);
    let mut ethernet = [0; 12];
    ethernet[..6].copy_from_slice(&gateway.mac(LAN_DEVICE)?);
    ethernet[6..].copy_from_slice(&client.mac(CLIENT_DEVICE)?);
    Ok(Connection {
        ifindex: gateway.run(|| nix::net::if_::if_nametoindex(LAN_DEVICE))??,
        ethernet,
        client_seen_ns: now_ns,
        server_seen_ns: now_ns,
        ..Default::default()
    })
}
