//! Redirect alone: a program that takes a hop off each packet and sends it to one neighbour. No gateway that stands where
//! ours does can do less.

use std::net::IpAddr;

use anabranch_policy::abi::Addr;
use anabranch_policy::{Family, PerFamily};
use anyhow::{Context, Result};
use aya::programs::tc::TcAttachOptions;
use aya::programs::{LinkOrder, SchedClassifier, TcAttachType};
use aya::{Ebpf, EbpfLoader, include_bytes_aligned};

use crate::test_run::{Run, test_run};

use super::{LAN_DEVICE, Network, client, ifindex, isp, wan_device};

static OBJECT: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/redirect.bpf.o"));

/// The program, loaded for one way.
pub struct Redirect(Ebpf);

impl Redirect {
    /// To a next hop of the packet's family out of the device `ifindex`.
    pub fn load(ifindex: u32, next_hop: PerFamily<IpAddr>) -> Result<Self> {
        let octets = next_hop.map(|address| Addr::from(address).0);
        // An address of IPv4 is the last of those that are mapped to it (RFC 4291 section 2.5.5.2).
        let [.., a, b, c, d] = octets[Family::V4];
        let bpf = EbpfLoader::new()
            .override_global("device", &ifindex, true)
            .override_global("next_hop_ipv4", &[a, b, c, d], true)
            .override_global("next_hop_ipv6", &octets[Family::V6], true)
            .load(OBJECT)?;
        let mut redirect = Redirect(bpf);
        redirect.program()?.load()?;
        Ok(redirect)
    }

    fn program(&mut self) -> Result<&mut SchedClassifier> {
        let program = self.0.program_mut("redirect");
        Ok(program.context("program redirect")?.try_into()?)
    }

    /// On a frame of one's own, `repeat` times.
    pub fn run(&mut self, frame: &[u8], repeat: u32) -> Result<Run> {
        test_run(self.program()?, frame, repeat)
    }

    /// At the ingress of a device of the thread's namespace, for as long as the value lives.
    fn attach(&mut self, device: &str) -> Result<()> {
        let options = TcAttachOptions::TcxOrder(LinkOrder::default());
        let program = self.program()?;
        program.attach_with_options(device, TcAttachType::Ingress, options)?;
        Ok(())
    }
}

/// Both ways over the first link; the internet knows the way back to the client.
pub fn start(network: &Network) -> Result<[Redirect; 2]> {
    network.route_back()?;
    network.gateway.run(|| {
        let wan = wan_device(0);
        let mut out = Redirect::load(ifindex(&wan)?, PerFamily::from_fn(|family| isp(family, 0)))?;
        out.attach(LAN_DEVICE)?;
        let mut back = Redirect::load(ifindex(LAN_DEVICE)?, PerFamily::from_fn(client))?;
        back.attach(&wan)?;
        Ok([out, back])
    })?
}
