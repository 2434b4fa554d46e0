//! The established path by itself: nanoseconds per packet of the loaded programs under `BPF_PROG_TEST_RUN`, with few
//! and with very many flows, and what a flow costs in kernel memory.
//!
//! A test run repeats the program on one packet, as the last repetition left it. So the flows are chained: flow k
//! turns the packet's address into that of flow k + 1, in random order around the whole table, and every repetition
//! translates a packet of another flow. The packet's TTL bounds the walk; where it ends, its address and TTL show that
//! every step was a translation.

use std::fs;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use anabranch_dataplane::gateway_object;
use anabranch_policy::abi::{self, Addr, BePort, Flow, FlowKey};
use anyhow::{Context, Result, ensure};
use aya::maps::{Array, HashMap};
use aya::programs::{SchedClassifier, TestRun, TestRunOptions};
use aya::{Ebpf, EbpfLoader};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;

use crate::frame::Ends;
use crate::memory;
use crate::pins::PinFolder;
use crate::ratios::{median, sorted};
use crate::testbed::{LOOPBACK, Redirect};

pub const FEW_FLOWS: u32 = 1_000;
pub const MANY_FLOWS: u32 = 1_000_000;

const REMOTE: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);
const LOCAL_PORT: u16 = 40_000;
const REMOTE_PORT: u16 = 443;
const STEPS: usize = 250;
const TTL: u8 = 255;
const WALKS: usize = 2_000;
const TC_ACT_REDIRECT: u32 = 7;
const TTL_AT: usize = 22;
const SEED: u64 = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proto {
    Tcp,
    Udp,
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
    /// The programs with `flows` confirmed flows of `proto`, and the kernel memory of all that in bytes.
    pub fn load(flows: u32, proto: Proto) -> Result<(Self, f64)> {
        let before = memory::settled()?;
        let pins = PinFolder::name();
        fs::create_dir_all(pins.path())
            .with_context(|| format!("making {}", pins.path().display()))?;
        let bpf = EbpfLoader::new()
            .default_map_pin_directory(pins.path())
            .map_max_entries("flows", 2 * flows)
            .map_max_entries("embryos", 1024)
            .map_max_entries("hosts", 16)
            .load(&gateway_object())
            .context("loading the gateway's programs")?;
        let mut order: Vec<u32> = (0..flows).collect();
        order.shuffle(&mut SmallRng::seed_from_u64(SEED));
        let mut programs = Programs { bpf, order };
        programs.configure()?;
        programs.fill(proto)?;
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
        let link = abi::Link {
            external: Ipv4Addr::new(100, 64, 0, 2).into(),
            gateway: Ipv4Addr::new(100, 64, 0, 1).into(),
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
        links.set(0, link, 0)?;
        let mut devices =
            Array::<_, abi::Device>::try_from(self.bpf.map_mut("devices").context("devices")?)?;
        devices.set(LOOPBACK, device, 0)?;
        Ok(())
    }

    fn fill(&mut self, proto: Proto) -> Result<()> {
        let mut flows =
            HashMap::<_, FlowKey, Flow>::try_from(self.bpf.map_mut("flows").context("flows")?)?;
        let followers = self.order.iter().skip(1).chain(self.order.first());
        for (&this, &next) in self.order.iter().zip(followers) {
            for side in [abi::SIDE_LAN, abi::side_of_link(0)] {
                flows
                    .insert(key(proto, side, this), entry(proto, next), 0)
                    .context("filling the flow table")?;
            }
        }
        Ok(())
    }

    /// Nanoseconds per packet.
    pub fn measure(&mut self, proto: Proto, way: Way) -> Result<f64> {
        let flows = self.order.len();
        median_of_walks(|walk| self.walk(proto, way, walk * STEPS % flows))
    }

    /// From the flow at `start` in the order over `STEPS` flows; the average per packet.
    fn walk(&mut self, proto: Proto, way: Way, start: usize) -> Result<Duration> {
        let flows = self.order.len();
        let (first, last) = (self.order[start], self.order[(start + STEPS) % flows]);
        let packet = packet(proto, way, address(first))?;
        let name = match way {
            Way::Out => "lan",
            Way::In => "wan",
        };
        let ran = test_run(self.program(name)?, &packet, STEPS as u32)?;
        let at = local_offset(way);
        ensure!(
            ran.packet[at..at + 4] == address(last).octets(),
            "{proto:?} {way:?}: the packet did not pass through every flow"
        );
        Ok(ran.took)
    }
}

/// Redirect alone on the same packets, nanoseconds per packet.
pub fn measure_redirect(redirect: &mut Redirect, proto: Proto, way: Way) -> Result<f64> {
    let packet = packet(proto, way, address(0))?;
    median_of_walks(|_| Ok(redirect.run(&packet, STEPS as u32)?.took))
}

fn median_of_walks(mut walk: impl FnMut(usize) -> Result<Duration>) -> Result<f64> {
    let durations: Result<Vec<_>> = (0..WALKS).map(&mut walk).collect();
    let nanoseconds = durations?.into_iter().map(|took| took.as_nanos() as f64);
    Ok(median(&sorted(nanoseconds)))
}

/// What a program made of a packet that it sent on each time.
pub struct Run {
    packet: Vec<u8>,
    /// Mean of the repetitions.
    pub took: Duration,
}

/// Runs `program` on a frame, and on what it made of that, `repeat` times.
pub fn test_run(program: &mut SchedClassifier, frame: &[u8], repeat: u32) -> Result<Run> {
    let mut packet = vec![0; frame.len()];
    let options = TestRunOptions {
        data_in: Some(frame),
        data_out: Some(&mut packet),
        repeat,
        ..TestRunOptions::new()
    };
    let ran = program.test_run(options)?;
    ensure!(
        ran.return_value == TC_ACT_REDIRECT,
        "the program answered {}",
        ran.return_value
    );
    ensure!(
        u32::from(packet[TTL_AT]) + repeat == u32::from(frame[TTL_AT]),
        "the packet was not sent on each time"
    );
    Ok(Run {
        packet,
        took: ran.duration,
    })
}

fn address(flow: u32) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 0, 0, 0)) + flow)
}

fn key(proto: Proto, side: u8, flow: u32) -> FlowKey {
    let (remote, remote_port) = match proto {
        Proto::Tcp => (REMOTE.into(), BePort::new(REMOTE_PORT)),
        Proto::Udp => Default::default(),
    };
    FlowKey {
        local: address(flow).into(),
        remote,
        local_port: BePort::new(LOCAL_PORT),
        remote_port,
        proto: number(proto),
        side,
        zero: 0,
    }
}

fn entry(proto: Proto, next: u32) -> Flow {
    Flow {
        other_local: address(next).into(),
        tcp: if proto == Proto::Udp {
            first_remote(REMOTE)
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
pub fn first_remote(remote: Ipv4Addr) -> abi::FlowTcp {
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

/// Where the packet names the flow's local address.
fn local_offset(way: Way) -> usize {
    match way {
        Way::Out => 26,
        Way::In => 30,
    }
}

/// A full TCP data segment, or a UDP datagram of 64 bytes on the wire.
fn packet(proto: Proto, way: Way, local: Ipv4Addr) -> Result<Vec<u8>> {
    let local = SocketAddrV4::new(local, LOCAL_PORT);
    let remote = SocketAddrV4::new(REMOTE, REMOTE_PORT);
    let (from, to) = match way {
        Way::Out => (local, remote),
        Way::In => (remote, local),
    };
    let ends = Ends {
        from_mac: [0; 6],
        to_mac: [0; 6],
        from,
        to,
        ttl: TTL,
    };
    match proto {
        Proto::Tcp => ends.segment(1514),
        Proto::Udp => ends.udp(60),
    }
}
