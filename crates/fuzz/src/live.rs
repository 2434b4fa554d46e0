//! Packets for the product itself: `anabranch run` between hosts and ISPs in namespaces, with the kernel's own forwarding
//! and the rules of nftables behind the programs. Whatever comes out at an ISP is judged.

use std::net::{IpAddr, Ipv6Addr};
use std::path::Path;
use std::time::{Duration, Instant};

use anabranch_frames::frame_socket;
use anabranch_lab::topology::Anabranch;
use anabranch_testbed::netns::Namespace;
use anyhow::{Context, Result, bail};
use socket2::Socket;

use crate::build::{self, GATEWAY_MAC, mac_of};
use crate::capture::{Capture, Seen};
use crate::check::{self, Verdict};
use crate::read::{ETHERNET, Ip, UDP};
use crate::round::Violation;
use crate::script::{Script, Shot};
use crate::site::*;
use crate::sum;

/// Links of the live site: those with an Ethernet header.
const LIVE_LINKS: u16 = BARE_LINK;
const READY: Duration = Duration::from_secs(30);
const BATCH: usize = 16;
/// Where the packet goes that tells that all before it have gone.
const SENTINEL_PORT: u16 = 9;

/// How many frames went in, and came out at the ISPs and on the LAN.
#[derive(Clone, Copy, Debug, Default)]
pub struct Passed {
    /// Into the gateway.
    pub sent: usize,
    /// Out of its links.
    pub at_isps: usize,
    /// Out of its LAN devices.
    pub on_lan: usize,
}

/// One end of a cable to the gateway.
struct Far {
    port: Port,
    /// What frames are sent by.
    cable: Socket,
    capture: Capture,
    _namespace: Namespace,
}

/// The product between namespaces, and the far ends of its cables.
pub struct Live {
    fars: Vec<Far>,
    sentinels: u16,
    _product: Anabranch,
    _gateway: Namespace,
}

fn ports() -> impl Iterator<Item = Port> {
    (0..LANS)
        .map(Port::Lan)
        .chain((0..LIVE_LINKS).map(Port::Link))
}

impl Live {
    /// Starts the product `binary` and waits until it forwards.
    pub fn start(binary: &Path) -> Result<Self> {
        let gateway = Namespace::create("gateway")?;
        let fars = ports()
            .map(|port| lay(port, &gateway))
            .collect::<Result<_>>()?;
        for site in FAMILIES {
            let ((network, length), router) = (site.behind_router, site.router);
            gateway.ip(&format!(
                "route add {network}/{length} via {router} dev lan0"
            ))?;
        }
        let product = Anabranch::start(&gateway, binary, &configuration())?;
        let mut live = Live {
            fars,
            sentinels: 0,
            _product: product,
            _gateway: gateway,
        };
        live.settle(&mut Passed::default())?
            .map_err(anyhow::Error::msg)?;
        Ok(live)
    }

    /// Sends all, in their order, and judges what comes out meanwhile.
    pub fn send(&mut self, shots: &[Shot]) -> Result<(Passed, Option<Violation>)> {
        let mut passed = Passed::default();
        for batch in shots.chunks(BATCH) {
            for shot in batch {
                let far = self.fars.iter().find(|far| far.port == shot.port);
                let far = far.context("a port of the live site")?;
                let sent = far.cable.send(&shot.frame);
                sent.with_context(|| shot.port.to_string())?;
                passed.sent += 1;
            }
            if let Err(words) = self.settle(&mut passed)? {
                let script = Script {
                    told: Told::default(),
                    shots: batch.to_vec(),
                };
                return Ok((passed, Some(Violation::repeating(words, script))));
            }
        }
        Ok((passed, None))
    }

    /// Until a datagram that was sent now has come out at an ISP, so that what was sent before has as well.
    fn settle(&mut self, passed: &mut Passed) -> Result<Verdict> {
        let until = Instant::now() + READY;
        while Instant::now() < until {
            self.sentinels = self.sentinels.wrapping_add(1);
            let number = self.sentinels;
            let site = FAMILIES[usize::from(number) % FAMILIES.len()];
            let ends = ((site.hosts[0].0, 2000), (site.servers[0], SENTINEL_PORT));
            let packet = build::udp(ends.0, ends.1, 1, &number.to_be_bytes());
            let shot = build::arriving(Port::Lan(0), packet);
            self.fars[0].cable.send(&shot.frame)?;
            let next = Instant::now() + Duration::from_millis(200);
            while Instant::now() < next {
                match self.drain(number, passed)? {
                    Ok(false) => std::thread::yield_now(),
                    Ok(true) => return Ok(Ok(())),
                    Err(words) => return Ok(Err(words)),
                }
            }
        }
        bail!("nothing comes out of the gateway")
    }

    /// Judges what has come out. Whether the sentinel has.
    fn drain(&mut self, number: u16, passed: &mut Passed) -> Result<Result<bool, String>> {
        let (mut seen, mut verdict) = (false, Ok(()));
        for Far { port, capture, .. } in &mut self.fars {
            capture.drain(|_, frame| {
                if let Some(ip) = Ip::of_frame(frame) {
                    seen |= is_sentinel(&ip, number);
                    match port {
                        Port::Link(_) => passed.at_isps += 1,
                        Port::Lan(_) => passed.on_lan += 1,
                    }
                }
                if verdict.is_ok() {
                    verdict = judge(*port, frame);
                }
            })?;
        }
        Ok(verdict.map(|()| seen))
    }
}

fn is_sentinel(ip: &Ip, number: u16) -> bool {
    let is_it = ip.proto() == UDP && ip.ports().is_some_and(|(_, to)| to == SENTINEL_PORT);
    is_it && ip.body()[8..].starts_with(&number.to_be_bytes())
}

/// Wrong sums stay wrong; here only right ones go in, so that every wrong one is the gateway's.
pub fn is_sendable(shot: &Shot) -> bool {
    let is_live = shot.port.header() > 0;
    let fits = shot.frame.len() <= 1500 + ETHERNET;
    let ip = Ip::of_frame(&shot.frame);
    let is_right = ip
        .and_then(|ip| sum::transport(&ip))
        .is_none_or(|sum| sum == 0xffff);
    let is_part = ip.is_some_and(|ip| ip.is_fragment());
    is_live && fits && (is_right || is_part)
}

fn judge(port: Port, frame: &[u8]) -> Verdict {
    if let Some([0x81, 0] | [0x88, 0xa8]) = frame.get(12..14) {
        let frame = crate::script::to_hex(frame);
        return Err(format!("{port}: a VLAN tag has left: {frame}"));
    }
    let Some(ip) = Ip::of_frame(frame) else {
        return Ok(());
    };
    check::check_clone(port, frame)?;
    let is_right = ip.is_fragment() || sum::transport(&ip).is_none_or(|sum| sum == 0xffff);
    match is_right {
        true => Ok(()),
        false => Err(format!(
            "{port}: a wrong transport checksum: {}",
            crate::script::to_hex(frame)
        )),
    }
}

/// Whom the product asks over each link.
const IPV6_TARGETS: [IpAddr; LIVE_LINKS as usize] = [first_of(0xa), first_of(0xb)];

const fn first_of(network: u16) -> IpAddr {
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, network, 0, 0, 0, 0, 1))
}

/// How long the prefix of a device's address is.
fn with_lengths() -> impl Iterator<Item = (&'static Addresses, u8)> {
    FAMILIES.into_iter().zip([24, 64])
}

/// A cable from the gateway's device to a namespace of its own.
fn lay(port: Port, gateway: &Namespace) -> Result<Far> {
    let far = Namespace::create(&port.to_string())?;
    let device = port.to_string();
    gateway.veth(&device, &far, "far")?;
    gateway.set_offloads(&device, false)?;
    far.set_offloads("far", false)?;
    gateway.ip(&format!(
        "link set {device} address {}",
        build::words(GATEWAY_MAC)
    ))?;
    match port {
        Port::Lan(lan) => {
            for (site, length) in with_lengths() {
                gateway.add_address(&device, site.gateway[usize::from(lan)], length)?;
            }
            let on_it = |site: &'static Addresses| {
                let near = |host| !is_within(host, site.behind_router);
                let hosts = site.hosts.iter().filter(move |&&(_, on)| on == lan);
                let hosts = hosts.map(|&(host, _)| host).filter(move |&host| near(host));
                hosts.chain((lan == 0).then_some(site.router))
            };
            for host in FAMILIES.into_iter().flat_map(on_it) {
                let mac = build::words(mac_of(host));
                gateway.ip(&format!(
                    "neigh replace {host} lladdr {mac} dev {device} nud permanent"
                ))?;
            }
        }
        Port::Link(link) => {
            let (nth, metric) = (usize::from(link), 100 + u32::from(link));
            far.add_address("far", IPV6_TARGETS[nth], 64)?;
            for (site, length) in with_lengths() {
                let isp = site.isp[nth];
                gateway.add_address(&device, site.external[nth], length)?;
                if isp != IPV6_TARGETS[nth] {
                    far.add_address("far", isp, length)?;
                }
                gateway.ip(&format!(
                    "route add default via {isp} dev {device} metric {metric}"
                ))?;
            }
        }
    }
    let (capture, cable) =
        far.run(|| -> Result<_> { Ok((Capture::new(Seen::Arriving)?, frame_socket("far")?)) })??;
    Ok(Far {
        port,
        cable,
        capture,
        _namespace: far,
    })
}

fn configuration() -> String {
    let links = (0..LIVE_LINKS).map(|link| {
        let targets = [IPV4.isp[usize::from(link)], IPV6_TARGETS[usize::from(link)]];
        let [isp, isp6] = targets.map(|target| format!("\"icmp:{target}\""));
        format!("link.isp{link} = {{ device = \"wan{link}\", down = \"100mbit\", probe = [{isp}, {isp6}] }}\n")
    });
    format!("lan = [\"lan0\", \"lan1\"]\n{}", links.collect::<String>())
}
