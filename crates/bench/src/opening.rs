//! Opening a flow by itself: nanoseconds of `lan` under `BPF_PROG_TEST_RUN` for the first packet of a flow, from admission
//! and choice to the translated packet. Every packet is run once, since a second would be of a flow that is known: the
//! clock's own part is in the figure, and in that of redirect alone beside it.

use std::net::Ipv4Addr;

use anabranch_core::DataPlane;
use anabranch_dataplane::{Gateway, Role, Sizes};
use anabranch_frames::{sent_by, tcp, udp};
use anabranch_policy::PerFamily;
use anabranch_testbed::netns::Namespace;
use anabranch_testbed::pins::PinFolder;
use anyhow::{Context, Result, ensure};

use crate::program::Proto;
use crate::ratios::{median, sorted};
use crate::test_run::test_run;
use crate::testbed::{GATEWAY, LINKS, LOOPBACK, Redirect, SERVER, describe, isp};

const HOSTS: u16 = 64;
const FLOWS: u16 = 4096;
const FIRST_PORT: u16 = 10_000;
const HTTPS: u16 = 443;
const MTU: u32 = 1500;
/// What Linux offers in a SYN: a segment size of 1460, selective acknowledgements, a timestamp, a window scale of 7.
const SYN_OPTIONS: [u8; 20] = [
    2, 4, 0x05, 0xb4, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0, 1, 3, 3, 7,
];

/// Nanoseconds per packet, medians.
pub struct Cost {
    pub opening: f64,
    pub redirect: f64,
}

/// The first packets of many flows of many hosts, through tables that are empty when they begin.
pub fn measure(proto: Proto) -> Result<Cost> {
    let namespace = Namespace::create("opening")?;
    let _inside = namespace.enter()?;
    let pins = PinFolder::name("bench");
    let mut gateway = open(&namespace, &pins)?;
    let mut redirect = Redirect::load(LOOPBACK, PerFamily::from_fn(|family| isp(family, 0)))?;
    let (mut opening, mut alone) = (Vec::new(), Vec::new());
    for flow in 0..FLOWS {
        let frame = first_packet(proto, flow);
        let ran = test_run(gateway.program("lan")?, &frame, 1)?;
        opening.push(ran.took.as_nanos() as f64);
        alone.push(redirect.run(&frame, 1)?.took.as_nanos() as f64);
    }
    let counters = gateway.counters()?;
    let opened: u64 = counters.iter().map(|link| link.flows.opened).sum();
    ensure!(opened == u64::from(FLOWS), "{opened} of {FLOWS} flows");
    gateway.close().context("closing the gateway")?;
    Ok(Cost {
        opening: median(&sorted(opening.into_iter())),
        redirect: median(&sorted(alone.into_iter())),
    })
}

/// All devices are the loopback device, on which test runs take place.
fn open(namespace: &Namespace, pins: &PinFolder) -> Result<Gateway> {
    let (mut gateway, _) = Gateway::open(pins, Sizes::default())?;
    describe(
        &mut gateway,
        namespace,
        LOOPBACK,
        [LOOPBACK; LINKS as usize],
    )?;
    let role = Role::lan([GATEWAY.into()]);
    gateway.attach(LOOPBACK, role, false, MTU)?;
    Ok(gateway)
}

fn first_packet(proto: Proto, flow: u16) -> Vec<u8> {
    let host = (flow % HOSTS) as u8;
    let from = (Ipv4Addr::new(10, 0, 0, 2 + host), FIRST_PORT + flow);
    let to = (SERVER, HTTPS);
    let packet = match proto {
        Proto::Tcp => tcp(from, to, "S", 256, 0).options(&SYN_OPTIONS).ip(),
        Proto::Udp => udp(from, to, &[0; 18]),
    };
    sent_by([2, 0, 0, 0, 1, host], packet.frame())
}
