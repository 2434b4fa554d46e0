//! A million established connections of one service, written into its table as if they had been opened long ago.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use anabranch_policy::abi::{self, BePort, Connection, FlowKey};
use anyhow::{Context, Result};
use aya::maps::{HashMap, Map, MapData};
use nix::time::{ClockId, clock_gettime};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;

use super::site::{Contender, Site, server};
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

/// Writes them into the table of a service of ours. What answers to `direct` would need is not there.
pub fn enter(site: &Site) -> Result<()> {
    let table = Map::HashMap(site.table()?);
    let mut table = HashMap::<_, FlowKey, Connection>::try_from(table)?;
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC)?;
    let way = way(site, Duration::from(now).as_nanos() as u64)?;
    for flow in 0..CROWD {
        enter_one(&mut table, site.contender, end(flow), way)
            .context("filling the table of connections")?;
    }
    Ok(())
}

fn enter_one(
    table: &mut HashMap<MapData, FlowKey, Connection>,
    contender: Contender,
    from: SocketAddrV4,
    way: Connection,
) -> Result<()> {
    let place = from.port() % u16::from(super::site::SERVERS);
    let [service, server] = [SERVER, server(place as u8)];
    let key = |local: Ipv4Addr, side| FlowKey {
        local: local.into(),
        remote: (*from.ip()).into(),
        local_port: BePort::new(PORT),
        remote_port: BePort::new(from.port()),
        proto: UDP,
        side,
        ..Default::default()
    };
    let entry = |other: Ipv4Addr| Connection {
        other_local: other.into(),
        server: place,
        ..way
    };
    if contender == Contender::Direct {
        let direct = Connection {
            state: way.state | abi::CONNECTION_DIRECT,
            ..entry(server)
        };
        return Ok(table.insert(key(service, abi::SIDE_CLIENT), direct, 0)?);
    }
    table.insert(key(server, abi::SIDE_SERVER), entry(service), 0)?;
    Ok(table.insert(key(service, abi::SIDE_CLIENT), entry(server), 0)?)
}

/// What all entries have in common: the way by which the client's packets come.
fn way(site: &Site, now_ns: u64) -> Result<Connection> {
    let (client, gateway) = (&site.network.client, &site.network.gateway);
    let mut ethernet = [0; 12];
    ethernet[..6].copy_from_slice(&client.mac(CLIENT_DEVICE)?);
    ethernet[6..].copy_from_slice(&gateway.mac(LAN_DEVICE)?);
    Ok(Connection {
        opened_ns: now_ns,
        seen_ns: now_ns,
        other_port: BePort::new(PORT),
        ifindex: gateway.run(|| nix::net::if_::if_nametoindex(LAN_DEVICE))??,
        state: abi::CONNECTION_ANSWERED | abi::CONNECTION_ESTABLISHED,
        ethernet,
        ..Default::default()
    })
}
