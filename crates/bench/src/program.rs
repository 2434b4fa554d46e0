//! The established path by itself: nanoseconds per packet of the loaded programs under `BPF_PROG_TEST_RUN`, with few
//! and with very many flows, and what a flow costs in kernel memory.
//!
//! A test run repeats the program on one packet, as the last repetition left it. So the flows are chained: flow k
//! turns the packet's address into that of flow k + 1, in random order around the whole table, and every repetition
//! translates a packet of another flow. The packet's TTL bounds the walk; where it ends, its address and TTL show that
//! every step was a translation.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use anabranch_dataplane::gateway_object;
use anabranch_frames::{sent_by, tcp, udp};
use anabranch_policy::Family;
use anabranch_policy::abi::{self, Addr, BePort, Flow, FlowKey};
use anabranch_testbed::pins::PinFolder;
use anyhow::{Context, Result, ensure};
use aya::maps::{Array, HashMap};
use aya::programs::SchedClassifier;
use aya::{Ebpf, EbpfLoader};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;

use crate::memory;
use crate::ratios::{median, sorted};
use crate::test_run::test_run;
use crate::testbed::{LOOPBACK, Redirect};

pub const FEW_FLOWS: u32 = 1_000;
pub const MANY_FLOWS: u32 = 1_000_000;

const LOCAL_PORT: u16 = 40_000;
const REMOTE_PORT: u16 = 443;
const STEPS: usize = 250;
const TTL: u8 = 255;
const WALKS: usize = 2_000;
const SEED: u64 = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proto {
    Tcp,
    Udp,
}

/// What the flows are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    pub family: Family,
    pub proto: Proto,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Out,
    In,
}

pub struct Programs {
    bpf: Ebpf,
    /// Which flow follows which around the table.
    order: Vec<u32>,
}

impl Programs {
    /// The programs with `flows` confirmed flows of `kind`, and the kernel memory of all that in bytes.
    pub fn load(flows: u32, kind: Kind) -> Result<(Self, f64)> {
        let before = memory::settled()?;
        let pins = PinFolder::name("bench");
        fs::create_dir_all(&pins).with_context(|| format!("making {}", pins.display()))?;
        let bpf = EbpfLoader::new()
            .default_map_pin_directory(&pins)
            .map_max_entries("flows", 2 * flows)
            .map_max_entries("hosts", 16)
            .load(&gateway_object())
            .context("loading the gateway's programs")?;
        let mut order: Vec<u32> = (0..flows).collect();
        order.shuffle(&mut SmallRng::seed_from_u64(SEED));
        let mut programs = Programs { bpf, order };
        programs.configure()?;
        programs.fill(kind)?;
        let memory = memory::used()?.saturating_sub(before);
        for name in ["lan", "wan"] {
            programs.program(name)?.load()?;
        }
        Ok((programs, memory as f64))
    }

    fn program(&mut self, name: &str) -> Result<&mut SchedClassifier> {
        let program = self.bpf.program_mut(name);
        Ok(program
            .with_context(|| format!("program {name}"))?
            .try_into()?)
    }

    fn configure(&mut self) -> Result<()> {
        let link = |external: IpAddr, gateway: IpAddr| abi::Link {
            external: external.into(),
            gateway: gateway.into(),
            ifindex: LOOPBACK,
            mtu: 1500,
            flags: abi::LINK_PRESENT,
            ..abi::Link::default()
        };
        let device = abi::Device {
            ifindex: LOOPBACK,
            role: abi::Role::Link.into(),
            mtu: 1500,
            ..Default::default()
        };
        let mut links =
            Array::<_, abi::Link>::try_from(self.bpf.map_mut("links").context("links")?)?;
        for (family, [external, gateway]) in LINK {
            links.set(abi::link_place(0, family), link(external, gateway), 0)?;
        }
        let mut devices =
            Array::<_, abi::Device>::try_from(self.bpf.map_mut("devices").context("devices")?)?;
        devices.set(LOOPBACK, device, 0)?;
        Ok(())
    }

    fn fill(&mut self, kind: Kind) -> Result<()> {
        let mut flows =
            HashMap::<_, FlowKey, Flow>::try_from(self.bpf.map_mut("flows").context("flows")?)?;
        let followers = self.order.iter().skip(1).chain(self.order.first());
        for (&this, &next) in self.order.iter().zip(followers) {
            for side in [abi::SIDE_LAN, abi::side_of_link(0)] {
                flows
                    .insert(key(kind, side, this), entry(kind, next), 0)
                    .context("filling the flow table")?;
            }
        }
        Ok(())
    }

    /// Nanoseconds per packet.
    pub fn measure(&mut self, kind: Kind, way: Way) -> Result<f64> {
        let flows = self.order.len();
        median_of_walks(|walk| self.walk(kind, way, walk * STEPS % flows))
    }

    /// From the flow at `start` in the order over `STEPS` flows; the average per packet.
    fn walk(&mut self, kind: Kind, way: Way, start: usize) -> Result<Duration> {
        let flows = self.order.len();
        let (first, last) = (self.order[start], self.order[(start + STEPS) % flows]);
        let packet = packet(kind, way, first);
        let name = match way {
            Way::Out => "lan",
            Way::In => "wan",
        };
        let ran = test_run(self.program(name)?, &packet, STEPS as u32)?;
        ensure!(
            local(kind.family, way, &ran.packet) == address(kind.family, last),
            "{kind:?} {way:?}: the packet did not pass through every flow"
        );
        Ok(ran.took)
    }
}

/// Redirect alone on the same packets, nanoseconds per packet.
pub fn measure_redirect(redirect: &mut Redirect, kind: Kind, way: Way) -> Result<f64> {
    let packet = packet(kind, way, 0);
    median_of_walks(|_| Ok(redirect.run(&packet, STEPS as u32)?.took))
}

fn median_of_walks(mut walk: impl FnMut(usize) -> Result<Duration>) -> Result<f64> {
    let durations: Result<Vec<_>> = (0..WALKS).map(&mut walk).collect();
    let nanoseconds = durations?.into_iter().map(|took| took.as_nanos() as f64);
    Ok(median(&sorted(nanoseconds)))
}

/// Of the link and its gateway.
const LINK: [(Family, [IpAddr; 2]); 2] = [
    (
        Family::V4,
        [
            IpAddr::V4(Ipv4Addr::new(100, 64, 0, 2)),
            IpAddr::V4(Ipv4Addr::new(100, 64, 0, 1)),
        ],
    ),
    (
        Family::V6,
        [
            IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0x64, 0, 0, 0, 0, 2)),
            IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0x64, 0, 0, 0, 0, 1)),
        ],
    ),
];

fn remote(family: Family) -> IpAddr {
    match family {
        Family::V4 => Ipv4Addr::new(203, 0, 113, 1).into(),
        Family::V6 => Ipv6Addr::new(0x2001, 0xdb8, 0x113, 0, 0, 0, 0, 1).into(),
    }
}

/// Of the LAN host whose flow it is.
fn address(family: Family, flow: u32) -> IpAddr {
    match family {
        Family::V4 => Ipv4Addr::from_bits(Ipv4Addr::new(10, 0, 0, 0).to_bits() + flow).into(),
        Family::V6 => {
            let first = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 0);
            Ipv6Addr::from_bits(first.to_bits() + u128::from(flow)).into()
        }
    }
}

fn key(kind: Kind, side: u8, flow: u32) -> FlowKey {
    let (remote, remote_port) = match kind.proto {
        Proto::Tcp => (remote(kind.family).into(), BePort::new(REMOTE_PORT)),
        Proto::Udp => Default::default(),
    };
    FlowKey {
        local: address(kind.family, flow).into(),
        remote,
        local_port: BePort::new(LOCAL_PORT),
        remote_port,
        proto: number(kind.proto),
        side,
        zero: 0,
    }
}

fn entry(kind: Kind, next: u32) -> Flow {
    Flow {
        other_local: address(kind.family, next).into(),
        tcp: if kind.proto == Proto::Udp {
            first_remote(remote(kind.family))
        } else {
            Default::default()
        },
        state: abi::STATE_REPLIED | abi::STATE_CONFIRMED,
        lan_ifindex: LOOPBACK,
        other_port: BePort::new(LOCAL_PORT),
        first_remote_port: BePort::new(REMOTE_PORT),
        ..Default::default()
    }
}

/// The remote address of a UDP mapping, where TCP keeps its sequence numbers.
pub fn first_remote(remote: IpAddr) -> abi::FlowTcp {
    let Addr(bytes) = remote.into();
    let word = |i: usize| u32::from_ne_bytes([bytes[i], bytes[i + 1], bytes[i + 2], bytes[i + 3]]);
    abi::FlowTcp {
        isn: word(0),
        ack: word(4),
        end: word(8),
        tries: word(12),
    }
}

fn number(proto: Proto) -> u8 {
    match proto {
        Proto::Tcp => 6,
        Proto::Udp => 17,
    }
}

/// The flow's local address, as the packet names it.
fn local(family: Family, way: Way, frame: &[u8]) -> IpAddr {
    let bytes = |at: usize, length: usize| &frame[at..at + length];
    match (family, way) {
        (Family::V4, Way::Out) => ipv4(bytes(26, 4)),
        (Family::V4, Way::In) => ipv4(bytes(30, 4)),
        (Family::V6, Way::Out) => ipv6(bytes(22, 16)),
        (Family::V6, Way::In) => ipv6(bytes(38, 16)),
    }
}

fn ipv4(bytes: &[u8]) -> IpAddr {
    <[u8; 4]>::try_from(bytes).map_or(Ipv4Addr::UNSPECIFIED.into(), IpAddr::from)
}

fn ipv6(bytes: &[u8]) -> IpAddr {
    <[u8; 16]>::try_from(bytes).map_or(Ipv6Addr::UNSPECIFIED.into(), IpAddr::from)
}

/// A full TCP data segment, or a UDP datagram: of IPv4, of 64 bytes on the wire.
fn packet(kind: Kind, way: Way, flow: u32) -> Vec<u8> {
    let local = SocketAddr::new(address(kind.family, flow), LOCAL_PORT);
    let remote = SocketAddr::new(remote(kind.family), REMOTE_PORT);
    let (from, to) = match way {
        Way::Out => (local, remote),
        Way::In => (remote, local),
    };
    let packet = match (kind.proto, kind.family) {
        (Proto::Tcp, family) => {
            let headers = if family == Family::V4 { 54 } else { 74 };
            let segment = tcp(from, to, "PA", 256, 256);
            segment.payload(&vec![0; 1514 - headers]).ip()
        }
        (Proto::Udp, _) => udp(from, to, &[0; 18]),
    };
    sent_by([0; 6], packet.ttl(TTL).frame())
}
