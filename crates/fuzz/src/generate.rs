//! The traffic of a round: flows that live as flows do, and what is done to their packets.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use rand::seq::{IndexedRandom, IteratorRandom};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::build::{self, ACK, End, FIN, RST, SYN, Says};
use crate::mutate::{self, write_address};
use crate::read::{ICMP, ICMP6, Ip, TCP, UDP};
use crate::rig::{FRAME_MAX, FRAME_MIN, IPV6_FRAME_MIN, Outcome};
use crate::script::Shot;
use crate::site::*;

/// Flows of which packets are drawn.
const FOLLOWED: usize = 64;
const REMEMBERED: usize = 256;
const CALLS_MAX: usize = 32;
/// Of the packets of a round with a flood.
const FLOODED: f64 = 0.7;

/// A flow as its two ends see it.
#[derive(Clone, Debug)]
struct Flow {
    proto: u8,
    local: End,
    lan: u8,
    remote: End,
    /// The link it took, and its end there: learned from what left.
    external: Option<(u16, End)>,
    /// A probe left in its SYN's place.
    waits: bool,
    local_seq: u32,
    remote_seq: u32,
    step: u32,
}

/// A LAN host has sent to another's external end.
#[derive(Clone, Debug)]
struct Call {
    proto: u8,
    /// The link, and what stands for the caller there.
    external: (u16, End),
    called: End,
}

/// What most packets of a round are, so that limits are met.
#[derive(Clone, Copy, Debug)]
enum Flood {
    /// Segments of unknown flows, by one host.
    Segments,
    /// Datagrams, every one of a new flow, by one host.
    Datagrams,
    /// Of protocols that have no flows, by many hosts.
    Protocols,
    /// SYNs, every one by a new host.
    Hosts,
}

/// Draws packets until it is dropped.
pub struct Generator {
    rng: ChaCha8Rng,
    flood: Option<Flood>,
    calls: VecDeque<Call>,
    flows: Vec<Flow>,
    next_port: u16,
    pending: VecDeque<Shot>,
    remembered: Vec<Shot>,
}

impl Generator {
    /// The traffic and the settings of a round are its seed's alone, as far as the programs do not draw numbers.
    pub fn new(seed: u64) -> (Self, Told) {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let next_port = rng.random_range(1024..20_000);
        let floods = [
            Flood::Segments,
            Flood::Datagrams,
            Flood::Protocols,
            Flood::Hosts,
        ];
        let flood = seldom(&mut rng, &floods);
        let told = draw_told(&mut rng, next_port, flood.is_some());
        let generator = Generator {
            flood,
            calls: VecDeque::new(),
            rng,
            flows: Vec::new(),
            next_port,
            pending: VecDeque::new(),
            remembered: Vec::new(),
        };
        (generator, told)
    }

    /// The next packet, in the order in which they are to arrive.
    pub fn next_shot(&mut self) -> Shot {
        while self.pending.is_empty() {
            self.draw();
        }
        let mut shot = self.pending.pop_front().unwrap_or_else(|| unreachable!());
        shot.frame.truncate(FRAME_MAX);
        let is_ipv6 = shot.frame.get(12..14) == Some(&[0x86, 0xdd]);
        let least = if is_ipv6 { IPV6_FRAME_MIN } else { FRAME_MIN };
        shot.frame.resize(shot.frame.len().max(least), 0);
        if self.remembered.len() < REMEMBERED {
            self.remembered.push(shot.clone());
        } else {
            let place = self.rng.random_range(0..REMEMBERED);
            self.remembered[place] = shot.clone();
        }
        shot
    }

    /// What became of a packet tells where its flow went.
    pub fn learn(&mut self, shot: &Shot, outcome: &Outcome) {
        let is_out = matches!(shot.port, Port::Lan(_));
        let (came, left) = match (Ip::of_frame(&shot.frame), Ip::of_frame(&outcome.frame)) {
            (Some(came), Some(left)) if is_out => (came, left),
            _ => return,
        };
        let (Some(from), Some(to)) = (came.ports(), left.ports()) else {
            return;
        };
        let Some(link) = link_of(left.src()) else {
            return;
        };
        let (proto, local, remote) = (came.proto(), (came.src(), from.0), (came.dst(), from.1));
        if family_of(remote.0).external.contains(&remote.0) {
            self.calls.truncate(CALLS_MAX - 1);
            self.calls.push_front(Call {
                proto,
                external: (link, (left.src(), to.0)),
                called: remote,
            });
        }
        let is_it = |flow: &&mut Flow| {
            let is_remote = proto != TCP || flow.remote == remote;
            flow.proto == proto && flow.local == local && is_remote
        };
        if let Some(flow) = self.flows.iter_mut().find(is_it) {
            flow.external = Some((link, (left.src(), to.0)));
            flow.waits = came.flags() != left.flags();
        }
    }

    fn draw(&mut self) {
        if let Some(flood) = self.flood.filter(|_| self.rng.random_bool(FLOODED)) {
            return self.flood(flood);
        }
        let percent = self.rng.random_range(0..100);
        match percent {
            0..12 => self.open(),
            12..54 => self.go_on(),
            54..63 => self.fragments(),
            63..73 => self.error(),
            73..84 => self.hairpin(),
            84..88 => self.answer_call(),
            88..91 => self.stray(),
            91..93 => self.noise(),
            93..95 => self.foreign_neighbour(),
            _ => self.again(),
        }
    }

    /// Queues a packet, perhaps not as it was.
    fn send(&mut self, port: Port, packet: Vec<u8>) {
        let mut packet = packet;
        if self.rng.random_bool(0.5) {
            mutate::packet(&mut self.rng, &mut packet);
        }
        let mut shot = build::arriving(port, packet);
        if self.rng.random_bool(0.04) {
            mutate::frame(&mut self.rng, &mut shot);
        }
        if self.rng.random_bool(0.1) {
            shot.mark = mutate::mark(&mut self.rng);
        }
        self.pending.push_back(shot);
    }

    fn open(&mut self) {
        let site = self.family();
        let (host, lan) = *site.hosts.choose(&mut self.rng).unwrap_or(&site.hosts[0]);
        let server = *site
            .servers
            .choose(&mut self.rng)
            .unwrap_or(&site.servers[0]);
        self.next_port = self
            .next_port
            .wrapping_add(self.rng.random_range(1..5))
            .max(1);
        let proto = *[TCP, TCP, UDP, UDP, build::icmp_of(host)]
            .choose(&mut self.rng)
            .unwrap_or(&TCP);
        let server_port = *[80, 443, 53, 8080, 21].choose(&mut self.rng).unwrap_or(&80);
        let flow = Flow {
            proto,
            local: (host, self.next_port),
            lan,
            remote: (
                server,
                if is_icmp(proto) {
                    self.next_port
                } else {
                    server_port
                },
            ),
            external: None,
            waits: false,
            local_seq: self.rng.random(),
            remote_seq: self.rng.random(),
            step: 0,
        };
        if self.flows.len() < FOLLOWED {
            self.flows.push(flow);
        } else {
            let place = self.rng.random_range(0..FOLLOWED);
            self.flows[place] = flow;
        }
        let last = self.flows.len() - 1;
        self.step(last);
    }

    fn family(&mut self) -> &'static Addresses {
        FAMILIES[usize::from(self.rng.random_bool(0.5))]
    }

    fn any_flow(&mut self) -> Option<usize> {
        let count = self.flows.len();
        (count > 0).then(|| self.rng.random_range(0..count))
    }

    fn go_on(&mut self) {
        match self.any_flow() {
            Some(index) => self.step(index),
            None => self.open(),
        }
    }

    /// The next packet of a flow.
    fn step(&mut self, index: usize) {
        let mut flow = self.flows[index].clone();
        flow.step += 1;
        let answered = flow.answerable();
        let inward = match flow.proto {
            TCP if answered && flow.step == 2 => true,
            TCP if flow.step <= 3 => false,
            _ => answered && self.rng.random_bool(0.5),
        };
        let packet = match flow.proto {
            TCP if flow.step == 2 && inward && flow.waits => {
                (flow.step, flow.waits) = (1, false);
                flow.refuse_probe(self.rng.random())
            }
            TCP if flow.step == 2 && inward && self.rng.random_bool(0.25) => {
                flow.step = 1;
                flow.challenge(self.rng.random(), self.rng.random())
            }
            TCP => self.segment(&mut flow, inward),
            _ => {
                let payload = self.payload();
                flow.datagram(inward, self.rng.random(), &payload)
            }
        };
        let port = flow.port_of(inward);
        self.flows[index] = flow;
        self.send(port, packet);
    }

    fn segment(&mut self, flow: &mut Flow, inward: bool) -> Vec<u8> {
        let flags = match (flow.step, inward) {
            (1, _) => SYN,
            (2, true) => SYN | ACK,
            (_, _) if self.rng.random_bool(0.02) => RST | ACK,
            (_, _) if self.rng.random_bool(0.03) => FIN | ACK,
            (_, false) if flow.external.is_none() => SYN,
            _ => ACK,
        };
        let payload = match flags {
            ACK => self.payload(),
            _ => Vec::new(),
        };
        let mss = self.rng.random_range(400u16..9000).to_be_bytes();
        let with_mss = [2, 4, mss[0], mss[1], 1, 3, 3, 7];
        let odd_mss = [1, 2, 4, mss[0], mss[1], 4, 2, 1];
        let options: &[u8] = match (flags & SYN != 0, self.rng.random_bool(0.2)) {
            (true, false) => &with_mss,
            (true, true) => &odd_mss,
            _ => &[],
        };
        flow.segment(inward, self.rng.random(), flags, options, &payload)
    }

    fn payload(&mut self) -> Vec<u8> {
        let length = match self.rng.random_range(0..20) {
            0 => self.rng.random_range(400..600),
            1 => self.rng.random_range(1400..1600),
            2 => self.rng.random_range(0..3000),
            _ => self.rng.random_range(0..64),
        };
        let first: u8 = self.rng.random();
        (0..length).map(|at| first.wrapping_add(at as u8)).collect()
    }

    /// A datagram in pieces, in and out of order, some twice, some overlapping.
    fn fragments(&mut self) {
        let Some(index) = self.any_flow() else { return };
        let mut flow = self.flows[index].clone();
        let inward = flow.answerable() && self.rng.random_bool(0.5);
        let length = self.rng.random_range(24..1200);
        let payload: Vec<u8> = (0..length).map(|at| at as u8).collect();
        let id = self.rng.random();
        let whole = match flow.proto {
            TCP => flow.segment(inward, id, ACK, &[], &payload),
            _ => flow.datagram(inward, id, &payload),
        };
        let whole = build::may_fragment(whole);
        let body = build::fragmentable(&whole);
        let pieces = self.rng.random_range(2..5);
        let size = (body / pieces).max(8).next_multiple_of(8);
        let starts = (0..body).step_by(size);
        let ends = starts.map(|at| (at, at + size));
        let mut pieces: Vec<_> = ends
            .filter_map(|(from, to)| build::fragment(&whole, from, to))
            .collect();
        if self.rng.random_bool(0.2) {
            let from = self.rng.random_range(0..body / 8) * 8;
            pieces.extend(build::fragment(&whole, from, from + size));
        }
        if self.rng.random_bool(0.5) {
            let (one, other) = (
                self.rng.random_range(0..pieces.len()),
                self.rng.random_range(0..pieces.len()),
            );
            pieces.swap(one, other);
        }
        let port = flow.port_of(inward);
        for piece in pieces {
            self.send(port, piece);
        }
    }

    /// An ICMP error about a packet of a flow, as its receiver or a router would send it.
    fn error(&mut self) {
        let Some(index) = self.any_flow() else { return };
        let mut flow = self.flows[index].clone();
        let inward = flow.answerable() && self.rng.random_bool(0.6);
        let payload = self.payload();
        // Its subject went the other way, and is quoted as it was on this side.
        let subject = match flow.proto {
            TCP => flow.segment(!inward, self.rng.random(), ACK, &[], &payload),
            _ => flow.datagram(!inward, self.rng.random(), &payload),
        };
        let subject = flow.as_seen_by_sender_of_error(inward, subject);
        let is_ipv6 = flow.local.0.is_ipv6();
        let header = if is_ipv6 { 40 } else { 20 };
        let quoted = match self.rng.random_range(0..4) {
            0 => header + 8,
            1 => self.rng.random_range(header..header + 40),
            _ => 548,
        };
        let quote = &subject[..quoted.min(subject.len())];
        let kinds = [
            (3, 0),
            (3, 1),
            (3, 3),
            (3, 4),
            (3, 13),
            (11, 0),
            (11, 1),
            (12, 0),
        ];
        let kinds6 = [
            (1, 0),
            (1, 1),
            (1, 4),
            (2, 0),
            (3, 0),
            (3, 1),
            (4, 1),
            (4, 0),
        ];
        let kinds = if is_ipv6 { kinds6 } else { kinds };
        let (kind, code) = *kinds.choose(&mut self.rng).unwrap_or(&kinds[0]);
        let (src, dst) = match inward {
            true => (self.router(&flow), flow.external_end().0),
            false => (flow.local.0, flow.remote.0),
        };
        let packet = build::icmp(
            src,
            dst,
            (kind, code, self.rng.random_range(0..1600)),
            quote,
        );
        let port = flow.port_of(inward);
        self.send(port, packet);
    }

    fn router(&mut self, flow: &Flow) -> IpAddr {
        match flow.external {
            Some((BARE_LINK, _)) => near(flow.remote.0, self.rng.random()),
            Some((link, _)) if self.rng.random_bool(0.5) => {
                family_of(flow.local.0).isp[usize::from(link)]
            }
            _ => flow.remote.0,
        }
    }

    /// One LAN host speaks to another by its external address.
    fn hairpin(&mut self) {
        let to_tcp = self.rng.random_bool(0.75);
        // A connection is heard of once it is confirmed.
        let heard = |flow: &Flow| match to_tcp {
            true => flow.proto == TCP && flow.step > 3,
            false => flow.proto != TCP,
        };
        let Some(from) = self.any_flow() else { return };
        let mut flow = self.flows[from].clone();
        let is_ipv6 = flow.local.0.is_ipv6();
        let known = self.flows.iter().filter(|flow| heard(flow));
        let called: Vec<_> = known
            .filter(|flow| flow.external.is_some() && flow.local.0.is_ipv6() == is_ipv6)
            .map(|flow| (flow.proto, flow.external_end()))
            // What is behind a prefix is not asked for from here.
            .filter(|(_, end)| family_of(end.0).external.contains(&end.0))
            .collect();
        let Some(&(proto, called)) = called.choose(&mut self.rng) else {
            return;
        };
        flow.proto = proto;
        flow.remote = called;
        let payload = self.payload();
        let packet = match flow.proto {
            TCP => flow.segment(
                false,
                7,
                *[SYN, SYN, SYN, SYN | ACK, RST | ACK, ACK]
                    .choose(&mut self.rng)
                    .unwrap_or(&SYN),
                &[],
                &payload,
            ),
            _ => flow.datagram(false, 7, &payload),
        };
        self.send(Port::Lan(flow.lan), packet);
    }

    /// The host that was called answers, or somebody on the link in its name.
    fn answer_call(&mut self) {
        let Some(call) = self.calls.iter().choose(&mut self.rng).cloned() else {
            return;
        };
        let (link, caller) = call.external;
        let is_called =
            |flow: &&Flow| flow.proto == call.proto && flow.external_end() == call.called;
        let called = self.flows.iter().find(is_called);
        let (from, at) = match called.filter(|_| self.rng.random_bool(0.7)) {
            Some(flow) => (flow.local, Port::Lan(flow.lan)),
            None if link != BARE_LINK => (call.called, Port::Link(link)),
            None => return,
        };
        let packet = match call.proto {
            TCP => {
                let flags = [SYN | ACK, RST | ACK, RST, SYN];
                let says = Says {
                    flags: *flags.choose(&mut self.rng).unwrap_or(&SYN),
                    seq: self.rng.random(),
                    ack: 8,
                    options: &[],
                    payload: &[],
                };
                build::tcp(from, caller, 9, &says)
            }
            ICMP | ICMP6 => {
                let head = (reply_of(call.proto), 0, u32::from(caller.1) << 16);
                build::icmp(from.0, caller.0, head, b"answer")
            }
            _ => build::udp(from, caller, 9, b"answer"),
        };
        self.send(at, packet);
    }

    fn flood(&mut self, flood: Flood) {
        let site = self.family();
        let (host, lan) = site.hosts[0];
        let mut behind = |count: u32| nth_behind(site, self.rng.random_range(0..count));
        let server = (site.servers[0], 80);
        let syn = Says {
            flags: SYN,
            seq: 1,
            ack: 0,
            options: &[],
            payload: &[],
        };
        let packet = match flood {
            Flood::Hosts => build::tcp((behind(60_000), 1025), server, 1, &syn),
            Flood::Protocols => {
                let host = behind(512);
                let proto = self.rng.random_range(100..132);
                build::packet(proto, host, server.0, 1, b"flood of protocols")
            }
            Flood::Segments => {
                let ends = ((host, self.rng.random()), server);
                build::tcp(ends.0, ends.1, 1, &Says { flags: ACK, ..syn })
            }
            Flood::Datagrams => build::udp((host, self.rng.random()), server, 1, b"flood"),
        };
        self.pending
            .push_back(build::arriving(Port::Lan(lan), packet));
    }

    /// Of no flow, from anywhere to anywhere.
    fn stray(&mut self) {
        let ports = Port::all();
        let port = *ports.choose(&mut self.rng).unwrap_or(&ports[0]);
        let site = self.family();
        let (src, dst) = (
            mutate::address(&mut self.rng, site),
            mutate::address(&mut self.rng, site),
        );
        let ends = ((src, self.rng.random()), (dst, self.rng.random()));
        let packet = match self.rng.random_range(0..3) {
            0 => build::udp(ends.0, ends.1, 1, b"stray"),
            1 if src.is_ipv6() => {
                let kind = *NEIGHBOURLY.choose(&mut self.rng).unwrap_or(&0);
                let mut packet = build::icmp(src, dst, (kind, 0, 9), &[0xfe; 24]);
                packet[7] = if self.rng.random() { 255 } else { 64 };
                packet
            }
            1 => build::icmp(src, dst, (self.rng.random_range(0..20), 0, 9), b"stray"),
            _ => {
                let says = Says {
                    flags: self.rng.random(),
                    seq: self.rng.random(),
                    ack: self.rng.random(),
                    options: &[],
                    payload: &[],
                };
                build::tcp(ends.0, ends.1, 1, &says)
            }
        };
        self.send(port, packet);
    }

    /// A host that is none of ours speaks on a segment of ours, with an address of that or in anybody's name.
    fn foreign_neighbour(&mut self) {
        let site = self.family();
        let rng = &mut self.rng;
        let segments = [Port::Lan(0), Port::Lan(1), Port::Link(0), Port::Link(1)];
        let port = *segments.choose(rng).unwrap_or(&segments[0]);
        let src = match rng.random_bool(0.8) {
            true => unknown_on(port, site, rng.random()),
            false => mutate::address(rng, site),
        };
        let ends = (
            (src, rng.random()),
            (mutate::address(rng, site), rng.random()),
        );
        let mut shot = match rng.random_range(0..4) {
            0 if !src.is_ipv6() => asks_who_has(port, src, ends.1.0),
            0 => {
                let kind = *NEIGHBOURLY.choose(rng).unwrap_or(&135);
                let mut packet = build::icmp(src, ends.1.0, (kind, 0, 0), &[0xfe; 24]);
                packet[7] = 255;
                build::arriving(port, packet)
            }
            1 => build::arriving(port, build::udp(ends.0, ends.1, 1, b"neighbour")),
            2 => build::arriving(port, build::icmp(src, ends.1.0, (8, 0, 9), b"neighbour")),
            _ => {
                let says = Says {
                    flags: *[SYN, SYN | ACK, ACK, RST].choose(rng).unwrap_or(&SYN),
                    seq: rng.random(),
                    ack: rng.random(),
                    options: &[],
                    payload: &[],
                };
                build::arriving(port, build::tcp(ends.0, ends.1, 1, &says))
            }
        };
        let mac: [u8; 4] = rng.random();
        shot.frame[8..12].copy_from_slice(&mac);
        if rng.random_bool(0.2) {
            mutate::frame(rng, &mut shot);
        }
        self.pending.push_back(shot);
    }

    fn noise(&mut self) {
        let ports = Port::all();
        let port = *ports.choose(&mut self.rng).unwrap_or(&ports[0]);
        let length = self.rng.random_range(1..120);
        let mut packet: Vec<u8> = (0..length).map(|_| self.rng.random()).collect();
        if self.rng.random_bool(0.5) {
            packet[0] = *[0x45, 0x60].choose(&mut self.rng).unwrap_or(&0x45);
        }
        self.pending.push_back(build::arriving(port, packet));
    }

    /// An earlier packet comes once more, perhaps from elsewhere.
    fn again(&mut self) {
        let Some(mut shot) = self.remembered.choose(&mut self.rng).cloned() else {
            return;
        };
        let ports = Port::all();
        let elsewhere = *ports.choose(&mut self.rng).unwrap_or(&shot.port);
        if self.rng.random_bool(0.2) && elsewhere.header() == shot.port.header() {
            shot.port = elsewhere;
        }
        self.pending.push_back(shot);
    }
}

impl Flow {
    /// Whether the remote end can answer: on a layer-3 link only some remote addresses can be told (see [`SERVERS`]).
    fn answerable(&self) -> bool {
        let is_told = family_of(self.remote.0).servers[2..].contains(&self.remote.0);
        self.external
            .is_some_and(|(link, _)| link != BARE_LINK || is_told)
    }

    fn port_of(&self, inward: bool) -> Port {
        match self.external {
            Some((link, _)) if inward => Port::Link(link),
            _ => Port::Lan(self.lan),
        }
    }

    /// The end that the remote end knows.
    fn external_end(&self) -> End {
        self.external.map_or(self.local, |(_, end)| end)
    }

    fn ends(&self, inward: bool) -> (End, End) {
        match inward {
            true => (self.remote, self.external_end()),
            false => (self.local, self.remote),
        }
    }

    fn segment(
        &mut self,
        inward: bool,
        id: u16,
        flags: u8,
        options: &[u8],
        payload: &[u8],
    ) -> Vec<u8> {
        let (src, dst) = self.ends(inward);
        let (seq, ack) = match inward {
            true => (self.remote_seq, self.local_seq),
            false => (self.local_seq, self.remote_seq),
        };
        let occupied = payload.len() as u32 + u32::from(flags & (SYN | FIN) != 0);
        let own = if inward {
            &mut self.remote_seq
        } else {
            &mut self.local_seq
        };
        *own = own.wrapping_add(occupied);
        let ack = if flags & ACK != 0 { ack } else { 0 };
        let says = Says {
            flags,
            seq,
            ack,
            options,
            payload,
        };
        build::tcp(src, dst, id, &says)
    }

    /// A server knows nothing of a probe, which acknowledges the number of the SYN that waits (RFC 9293 section 3.10.7.2).
    fn refuse_probe(&self, id: u16) -> Vec<u8> {
        let mut server = Flow {
            remote_seq: self.local_seq.wrapping_sub(1),
            ..self.clone()
        };
        server.segment(true, id, RST, &[], &[])
    }

    /// The SYN meets an earlier connection of its ends, which has come to `number`.
    fn challenge(&self, id: u16, number: u32) -> Vec<u8> {
        let mut earlier = Flow {
            local_seq: number,
            ..self.clone()
        };
        earlier.segment(true, id, ACK, &[], &[])
    }

    fn datagram(&self, inward: bool, id: u16, payload: &[u8]) -> Vec<u8> {
        let (src, dst) = self.ends(inward);
        if is_icmp(self.proto) {
            let reply = reply_of(self.proto);
            let request = if self.proto == ICMP { 8 } else { 128 };
            let (kind, query) = if inward {
                (reply, dst.1)
            } else {
                (request, src.1)
            };
            return build::icmp(
                src.0,
                dst.0,
                (kind, 0, u32::from(query) << 16 | u32::from(id)),
                payload,
            );
        }
        build::udp(src, dst, id, payload)
    }

    /// A packet of this flow as it looked on the side that an error about it comes from.
    fn as_seen_by_sender_of_error(&self, inward: bool, subject: Vec<u8>) -> Vec<u8> {
        let mut seen = subject;
        let Some(ip) = Ip::of(&seen) else { return seen };
        let ((at, length), header) = (ip.addresses(), ip.header());
        let (at, end) = match inward {
            true => (at, self.external_end()),
            false => (at + length, self.local),
        };
        write_address(&mut seen, at, end.0);
        let port_at = match (self.proto, inward) {
            (ICMP | ICMP6, _) => header + 4,
            (_, true) => header,
            (_, false) => header + 2,
        };
        seen[port_at..port_at + 2].copy_from_slice(&end.1.to_be_bytes());
        crate::sum::mend_header(&mut seen);
        crate::sum::mend_transport(&mut seen);
        seen
    }
}

/// Types of ICMPv6 that are of the line alone, or mean nothing.
const NEIGHBOURLY: [u8; 10] = [130, 131, 133, 134, 135, 136, 137, 143, 5, 200];

fn is_icmp(proto: u8) -> bool {
    [ICMP, ICMP6].contains(&proto)
}

/// The type of an answer to an echo.
fn reply_of(proto: u8) -> u8 {
    if proto == ICMP { 0 } else { 129 }
}

/// Another address of a server's network.
fn near(server: IpAddr, subnet: u8) -> IpAddr {
    match server {
        IpAddr::V4(_) => Ipv4Addr::new(8, 0, subnet, 1).into(),
        IpAddr::V6(server) => {
            let network = server.to_bits() & !0xffff;
            Ipv6Addr::from_bits(network | 0x100 | u128::from(subnet)).into()
        }
    }
}

/// An address of a segment's network, most likely nobody's.
fn unknown_on(port: Port, site: &Addresses, number: u16) -> IpAddr {
    let known = match port {
        Port::Lan(lan) => site.gateway[usize::from(lan)],
        Port::Link(link) => site.isp[usize::from(link)],
    };
    match known {
        IpAddr::V4(known) => {
            Ipv4Addr::from_bits(known.to_bits() & !0xff | u32::from(number & 0xff)).into()
        }
        IpAddr::V6(known) => {
            Ipv6Addr::from_bits(known.to_bits() & !0xffff | u128::from(number)).into()
        }
    }
}

/// An ARP request (RFC 826): of IPv4 over Ethernet.
fn asks_who_has(port: Port, asker: IpAddr, asked: IpAddr) -> Shot {
    let mut packet = vec![0, 1, 8, 0, 6, 4, 0, 1];
    packet.resize(28, 2);
    write_address(&mut packet, 14, asker);
    write_address(&mut packet, 24, asked);
    let mut shot = build::arriving(port, packet);
    shot.frame[12..14].copy_from_slice(&[8, 6]);
    shot
}

/// One of the hosts behind the LAN router; of IPv6 each in a network of its own, as far as there are.
fn nth_behind(site: &Addresses, nth: u32) -> IpAddr {
    match site.behind_router.0 {
        IpAddr::V4(network) => Ipv4Addr::from_bits(network.to_bits() + 256 + nth).into(),
        IpAddr::V6(network) => {
            let subnet = u128::from(nth % 16) << 64;
            Ipv6Addr::from_bits(network.to_bits() + subnet + 256 + u128::from(nth)).into()
        }
    }
}

/// One of these, in every fourth round.
fn seldom<T: Copy>(rng: &mut ChaCha8Rng, values: &[T]) -> Option<T> {
    let drawn = values.choose(rng).copied();
    drawn.filter(|_| rng.random_bool(0.25))
}

/// Where the first LAN host has the source port `first_port`.
fn draw_told(rng: &mut ChaCha8Rng, first_port: u16, is_flooded: bool) -> Told {
    let sizes = [1500, 1500, 1492, 1280, 576];
    Told {
        fallback: is_flooded || rng.random_bool(0.5),
        udp_open: rng.random_bool(0.3),
        sessions: rng.random_bool(0.3),
        syn_retry: rng.random_bool(0.3),
        races: seldom(rng, &[10, 100_000]).unwrap_or(0),
        holds: rng.random_bool(0.5),
        forwards: rng.random_bool(0.3),
        loose: rng.random_bool(0.3),
        reserved: if rng.random_bool(0.3) {
            first_port + 8
        } else {
            0
        },
        device: seldom(rng, &[30, 100, 400]).unwrap_or(0),
        quota: seldom(rng, &[20]).unwrap_or(2000),
        ports: seldom(rng, &[4, 12]).unwrap_or(0),
        full: seldom(rng, &[10, 50]).unwrap_or(FLOWS_MAX),
        usable: seldom(rng, &[0, 1, 3, 6]).unwrap_or((1 << LINKS) - 1),
        prefix: seldom(rng, &[48, 52, 56]).unwrap_or(0),
        mtu: std::array::from_fn(|_| *sizes.choose(rng).unwrap_or(&1500)),
    }
}
