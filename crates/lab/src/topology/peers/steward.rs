//! Peers that ask over their links and change routes by what they hear.
//!
//! They decide as in the simulator, by [`Control`]. Here its questions are echo requests to a link's next hop, or over the link to
//! the web server, and what it decides are routes of the kernel.

use std::io::{self, Read};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anabranch_core::Time;
use anabranch_peers::{Control, Journey, Prefix, Sent};
use anabranch_scenario::{Family, Peer, Tally};
use anabranch_testbed::netns::Namespace;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use socket2::{Domain, Protocol, Socket, Type};

use super::{METRIC, accesses, flag};
use crate::topology::{Access, LabSpec, Result, SERVERS, io_error, server_network, wan};

/// Somebody who wants it to end waits no longer.
const HEEDS: Duration = Duration::from_millis(50);
/// Type, code, checksum, identifier and number of an echo; behind them is the token.
const ECHO_BYTES: usize = 8;
const TOKEN_BYTES: usize = 4;

/// A peer at work. Ends on drop.
#[derive(Debug)]
pub struct Steward {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    ends: AtomicBool,
    packets: AtomicU64,
    bytes: AtomicU64,
    failed: OnceLock<String>,
}

impl Steward {
    /// Its first questions are asked at once.
    pub(super) fn start(peer: Peer, gateway: &Namespace, spec: &LabSpec) -> Result<Self> {
        // Echo sockets are for those of this group (icmp(7)).
        gateway.set_sysctl("net/ipv4/ping_group_range", "0 0")?;
        let shared = Arc::new(Shared::default());
        let families = spec.families.list().iter();
        let minds = families.map(|&family| gateway.run(|| Mind::new(peer, family, spec))?);
        let mut minds = minds.collect::<Result<Vec<_>>>()?;
        let mut lead = || minds.iter_mut().try_for_each(Mind::lead);
        gateway
            .run(&mut lead)?
            .map_err(io_error("leading to a link"))?;
        let theirs = Arc::clone(&shared);
        // A thread that is started inside stays inside, and what it starts, too.
        let thread = gateway.run(|| thread::spawn(move || work(minds, &theirs)))?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    /// What it has asked.
    pub fn asked(&self) -> Tally {
        Tally {
            packets: self.shared.packets.load(Ordering::Relaxed),
            bytes: self.shared.bytes.load(Ordering::Relaxed),
        }
    }

    /// Why it has ended, if it has.
    pub fn failure(&self) -> Option<&str> {
        self.shared.failed.get().map(String::as_str)
    }
}

impl Drop for Steward {
    fn drop(&mut self) {
        self.shared.ends.store(true, Ordering::Relaxed);
        if let Some(Err(panic)) = self.thread.take().map(JoinHandle::join) {
            std::panic::resume_unwind(panic);
        }
    }
}

/// Until it is told to end, or the kernel refuses a route.
fn work(mut minds: Vec<Mind>, shared: &Shared) {
    while !shared.ends.load(Ordering::Relaxed) {
        let turned = minds.iter_mut().try_for_each(|mind| mind.turn(shared));
        if let Err(error) = turned {
            // It fails once.
            let _ = shared
                .failed
                .set(format!("the peer changed a route in vain: {error}"));
            return;
        }
        let next = minds.iter().map(Mind::waits).min().unwrap_or(HEEDS);
        wait(&minds, next);
    }
}

/// For an answer, or for so long.
fn wait(minds: &[Mind], longest: Duration) {
    let sockets = minds.iter().flat_map(|mind| &mind.sockets);
    let mut waiting: Vec<_> = sockets
        .map(|socket| PollFd::new(socket.as_fd(), PollFlags::POLLIN))
        .collect();
    let longest = longest.min(HEEDS).as_millis() as u16 + 1;
    // Interrupted is as good as over.
    let _ = poll(&mut waiting, PollTimeout::from(longest));
}

/// What is done in one address family.
struct Mind {
    family: Family,
    control: Control,
    began: Instant,
    /// By link.
    accesses: Vec<Access>,
    sockets: Vec<Socket>,
    /// What it changes the route of: everything, or the servers' network.
    way_to: String,
    /// By which link the route is.
    leads: Option<usize>,
}

impl Mind {
    /// Opens its sockets where the calling thread is.
    fn new(peer: Peer, family: Family, spec: &LabSpec) -> Result<Self> {
        let accesses = accesses(spec, family)?;
        let routed = spec.isps.iter().all(|isp| isp.routed);
        let control = Control::new(
            peer,
            accesses.len(),
            routed,
            vec![servers(family)],
            &mut undrawn,
        );
        let sockets = (0..accesses.len()).map(|index| open(family, &wan(index)));
        Ok(Self {
            family,
            control,
            began: Instant::now(),
            sockets: sockets
                .collect::<io::Result<_>>()
                .map_err(io_error("opening an echo socket"))?,
            accesses,
            way_to: match peer {
                Peer::DeadGateway { .. } => format!("default metric {METRIC}"),
                _ => server_network(family),
            },
            leads: None,
        })
    }

    fn now(&self) -> Time {
        Time::from_nanos(self.began.elapsed().as_nanos() as u64)
    }

    fn waits(&self) -> Duration {
        let next = self.control.next_turn();
        next.map_or(HEEDS, |next| next.since(self.now()))
    }

    fn turn(&mut self, shared: &Shared) -> io::Result<()> {
        for token in self.answers() {
            let sent = self.control.arrive(self.now(), token, &mut undrawn);
            self.send(&sent, shared);
        }
        let sent = self.control.turn(self.now(), &mut undrawn);
        self.send(&sent, shared);
        self.lead()
    }

    fn answers(&self) -> Vec<u32> {
        let mut tokens = Vec::new();
        for mut socket in &self.sockets {
            let mut packet = [0; ECHO_BYTES + TOKEN_BYTES];
            while let Ok(length) = socket.read(&mut packet) {
                if let Some(token) = packet[..length].get(ECHO_BYTES..) {
                    tokens.extend(token.try_into().map(u32::from_be_bytes));
                }
            }
        }
        tokens
    }

    fn send(&self, sent: &[Sent], shared: &Shared) {
        for one in sent {
            let link = one.link.index();
            let to = match one.journey {
                Journey::Neighbour => self.accesses[link].next_hop,
                _ => SERVERS.address(self.family, 0),
            };
            let packet = request(self.family, one.token);
            let socket = &self.sockets[link];
            // What cannot be sent is lost, as any packet may be.
            if socket
                .send_to(&packet, &SocketAddr::new(to, 0).into())
                .is_ok()
            {
                let header = if to.is_ipv6() { 40 } else { 20 };
                shared.packets.fetch_add(1, Ordering::Relaxed);
                let bytes = header + packet.len() as u64;
                shared.bytes.fetch_add(bytes, Ordering::Relaxed);
            }
        }
    }

    /// Changes the route, if another link is the way now.
    fn lead(&mut self) -> io::Result<()> {
        let table = self.control.table().expect("those that ask have routes");
        let link = table.link(0, servers(self.family)).index();
        if self.leads == Some(link) {
            return Ok(());
        }
        self.leads = Some(link);
        let next_hop = self.accesses[link].next_hop;
        let (flag, way_to, device) = (flag(self.family), &self.way_to, wan(link));
        let line = format!("{flag} route replace {way_to} via {next_hop} dev {device}");
        ip(&line).map(drop)
    }
}

/// Nobody here does anything at random.
fn undrawn() -> u64 {
    0
}

/// Of the calling thread's namespace.
pub(super) fn ip(line: &str) -> io::Result<String> {
    let output = Command::new("ip").args(line.split_whitespace()).output()?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(io::Error::other(
            String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        )),
    }
}

/// All servers are in one prefix.
fn servers(family: Family) -> Prefix {
    Prefix::of(SERVERS.address(family, 0))
}

fn open(family: Family, device: &str) -> io::Result<Socket> {
    let (domain, protocol) = match family {
        Family::V4 => (Domain::IPV4, Protocol::ICMPV4),
        Family::V6 => (Domain::IPV6, Protocol::ICMPV6),
    };
    let socket = Socket::new(domain, Type::DGRAM, Some(protocol))?;
    socket.set_nonblocking(true)?;
    socket.bind_device(Some(device.as_bytes()))?;
    Ok(socket)
}

/// An echo request (RFC 792, RFC 4443). The kernel fills in identifier and checksum.
fn request(family: Family, token: u32) -> [u8; ECHO_BYTES + TOKEN_BYTES] {
    let mut packet = [0; ECHO_BYTES + TOKEN_BYTES];
    packet[0] = match family {
        Family::V4 => 8,
        Family::V6 => 128,
    };
    packet[ECHO_BYTES..].copy_from_slice(&token.to_be_bytes());
    packet
}
