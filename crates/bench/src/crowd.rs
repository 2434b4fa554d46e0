//! The whole box with very many flows: 64-byte packets of 1000 flows and of 1 000 000, each flow in turn, in random
//! order. The flows are written into the gateway's table as if they had been confirmed long ago.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use anabranch_policy::abi::{self, BePort, Flow, FlowKey};
use anabranch_policy::{Family, trace};
use anyhow::{Context, Result};
use aya::maps::{HashMap, Map, MapData};
use nix::time::{ClockId, clock_gettime};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;

use crate::measure::{Span, packets_of_flows};
use crate::program::first_remote;
use crate::testbed::{LAN_DEVICE, SERVER, Testbed, external};

const HOSTS: u32 = 250;
const FIRST_PORT: u32 = 10_000;
const UDP: u8 = 17;
const SEED: u64 = 1;

/// Flows that send in turn.
pub struct Crowd {
    flows: Vec<SocketAddrV4>,
}

impl Crowd {
    pub fn new(count: u32) -> Self {
        let mut flows: Vec<_> = (0..count).map(endpoint).collect();
        flows.shuffle(&mut SmallRng::seed_from_u64(SEED));
        Crowd { flows }
    }

    /// Enters the flows into the gateway's table, if the contender has one: in another order than they send in, or they would
    /// send in the order of memory.
    pub fn enter(&self, bed: &Testbed) -> Result<()> {
        let Some(path) = bed.map("flows") else {
            return Ok(());
        };
        let map =
            MapData::from_pin(&path).with_context(|| format!("opening {}", path.display()))?;
        let mut table = HashMap::<_, FlowKey, Flow>::try_from(Map::HashMap(map))?;
        let lan_ifindex = lan_ifindex(bed)?;
        let now_ns = now_ns()?;
        for flow in 0..self.flows.len() as u32 {
            let key = key(endpoint(flow));
            table
                .insert(key, entry(&key, lan_ifindex, now_ns), 0)
                .context("filling the gateway's flow table")?;
        }
        Ok(())
    }

    pub fn measure(&self, bed: &Testbed, span: Span) -> Result<f64> {
        packets_of_flows(&bed.network, &self.flows, span)
    }
}

/// A port of one of the LAN's hosts.
fn endpoint(flow: u32) -> SocketAddrV4 {
    let host = Ipv4Addr::new(10, 0, 0, (2 + flow % HOSTS) as u8);
    SocketAddrV4::new(host, (FIRST_PORT + flow / HOSTS) as u16)
}

fn key(local: SocketAddrV4) -> FlowKey {
    FlowKey {
        local: (*local.ip()).into(),
        local_port: BePort::new(local.port()),
        proto: UDP,
        side: abi::SIDE_LAN,
        ..Default::default()
    }
}

/// Where the flows' hosts are: a packet from elsewhere would have its source examined.
fn lan_ifindex(bed: &Testbed) -> Result<u32> {
    let gateway = &bed.network.gateway;
    Ok(gateway.run(|| nix::net::if_::if_nametoindex(LAN_DEVICE))??)
}

/// Fresh, so that no sweep takes it away meanwhile.
fn entry(lan_key: &FlowKey, lan_ifindex: u32, now_ns: u64) -> Flow {
    Flow {
        opened_ns: now_ns,
        seen_ns: now_ns,
        other_local: external(Family::V4, 0).into(),
        tcp: first_remote(SERVER.into()),
        state: abi::STATE_REPLIED | abi::STATE_CONFIRMED | trace(lan_key),
        lan_ifindex,
        other_port: BePort::new(1024),
        ..Default::default()
    }
}

fn now_ns() -> Result<u64> {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC)?;
    Ok(Duration::from(now).as_nanos() as u64)
}
