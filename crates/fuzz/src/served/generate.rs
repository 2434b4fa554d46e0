//! The packets of clients and servers, half of them changed.

use std::net::{IpAddr, SocketAddr};

use anabranch_core::Family;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::rig::Left;
use super::shot::{ADDRESSES, Shot};
use super::world::{self, WAYS, Way};
use crate::build::{self, ACK, FIN, RST, SYN, Says};
use crate::mutate;
use crate::read::{ETHERNET, Ip};
use crate::site::FAMILIES;

/// `BPF_PROG_TEST_RUN` wants whole headers.
const LEAST: usize = 54;
const SAMPLES: usize = 16;
const CLIENT_PORTS: u16 = 12;

pub struct Generator {
    rng: ChaCha8Rng,
    /// Packets as they left lately.
    sent: Vec<Vec<u8>>,
    /// What is left of a datagram that was cut.
    rest: Vec<Vec<u8>>,
}

impl Generator {
    pub fn new(seed: u64) -> Self {
        Generator {
            rng: ChaCha8Rng::seed_from_u64(seed),
            sent: Vec::new(),
            rest: Vec::new(),
        }
    }

    /// What left is answered, or an error is about it.
    pub fn learn(&mut self, left: &Left) {
        let is_sent = left.why().is_some_and(|why| why.name.starts_with("TO_"));
        let packet = left.frame.get(ETHERNET..).filter(|_| is_sent);
        let Some(packet) = packet.filter(|packet| Ip::of(packet).is_some()) else {
            return;
        };
        if self.sent.len() == SAMPLES {
            self.sent.remove(0);
        }
        self.sent.push(packet.to_vec());
    }

    pub fn next_shot(&mut self) -> Shot {
        let mut packet = match self.rng.random_range(0..10) {
            0..5 => self.by_client(),
            5..8 => self.answer(),
            8 => self.error(),
            _ => self.rest.pop().unwrap_or_else(|| self.by_client()),
        };
        if self.rng.random_bool(0.1) {
            packet = self.cut(packet);
        }
        if self.rng.random_bool(0.5) {
            mutate::packet(&mut self.rng, &mut packet);
        }
        packet.resize(packet.len().max(LEAST), 0);
        self.framed(packet)
    }

    fn framed(&mut self, packet: Vec<u8>) -> Shot {
        let from = Ip::of(&packet).map(|ip| ip.src());
        let is_layer3 = from.is_some_and(world::is_beyond_layer3);
        let mut frame = packet;
        if !is_layer3 {
            let kind = crate::read::ether_type(frame[0] >> 4 == 6);
            frame = [&ADDRESSES[..], &kind, &frame].concat();
            if self.rng.random_bool(0.01) {
                frame[0] = 2;
            }
        }
        Shot {
            frame,
            is_layer3,
            after_ns: self.rng.random_range(0..20_000_000),
            random: self.rng.random(),
        }
    }

    fn family(&mut self) -> Family {
        *Family::ALL.choose(&mut self.rng).expect("two")
    }

    fn payload(&mut self) -> Vec<u8> {
        let length = *[0, 1, 4, 100, 1300, 1400, 1452, 1460, 1900]
            .choose(&mut self.rng)
            .expect("some");
        vec![7; length]
    }

    /// The same numbers for all: most are of the connection that they belong to.
    fn by_client(&mut self) -> Vec<u8> {
        let family = self.family();
        let way = *WAYS.choose(&mut self.rng).expect("some");
        let client = *world::clients(family).choose(&mut self.rng).expect("some");
        let port = 4000 + self.rng.random_range(0..CLIENT_PORTS);
        let to = way.endpoint(family);
        self.datagram_or_segment((client, port), to, |rng| match rng.random_range(0..8) {
            0..3 => (SYN, 1000),
            3..6 => (ACK, 1001),
            6 => (FIN | ACK, 1001),
            _ => (RST, 1001),
        })
    }

    /// By whom a packet reached, or by a server for anybody.
    fn answer(&mut self) -> Vec<u8> {
        let known = self.sent.choose(&mut self.rng).cloned();
        let ends = known.as_deref().and_then(Ip::of).and_then(|ip| {
            let (from, to) = ip.ports()?;
            Some(((ip.dst(), to), SocketAddr::new(ip.src(), from)))
        });
        let (from, to) = ends.unwrap_or_else(|| {
            let family = self.family();
            let server = Way::Hash.server(family, 0);
            let client = SocketAddr::new(world::clients(family)[0], 4000);
            ((server.ip(), server.port()), client)
        });
        self.datagram_or_segment(from, to, |rng| match rng.random_range(0..8) {
            0..4 => (SYN | ACK, 9000),
            4..6 => (ACK, 9001),
            6 => (FIN | ACK, 9001),
            _ => (RST | ACK, 9001),
        })
    }

    fn datagram_or_segment(
        &mut self,
        from: build::End,
        to: SocketAddr,
        says: impl Fn(&mut ChaCha8Rng) -> (u8, u32),
    ) -> Vec<u8> {
        let (to, payload) = ((to.ip(), to.port()), self.payload());
        let id = self.rng.random();
        if self.rng.random_bool(0.4) {
            let packet = build::udp(from, to, id, &payload);
            return match self.rng.random_bool(0.5) {
                true => build::may_fragment(packet),
                false => packet,
            };
        }
        let (flags, seq) = says(&mut self.rng);
        let is_syn = flags & SYN != 0;
        let says = Says {
            flags,
            seq,
            ack: if seq < 9000 { 9001 } else { 1001 },
            options: if is_syn { &[2, 4, 5, 0xb4] } else { &[] },
            payload: if is_syn { &[] } else { &payload },
        };
        build::tcp(from, to, id, &says)
    }

    /// A router's, or the receiver's, about what left.
    fn error(&mut self) -> Vec<u8> {
        let Some(about) = self.sent.choose(&mut self.rng).cloned() else {
            return self.by_client();
        };
        let Some(ip) = Ip::of(&about) else {
            return self.by_client();
        };
        let by: IpAddr = match self.rng.random_bool(0.5) {
            true => ip.dst(),
            false => FAMILIES[usize::from(ip.is_ipv6())].router,
        };
        let heads: &[(u8, u8, u32)] = match ip.is_ipv6() {
            true => &[(2, 0, 1280), (1, 4, 0), (3, 0, 0)],
            false => &[(3, 4, 1280), (3, 3, 0), (11, 0, 0)],
        };
        let head = *heads.choose(&mut self.rng).expect("some");
        let quoted = about.len().min(self.rng.random_range(28..600));
        build::icmp(by, ip.src(), head, &about[..quoted])
    }

    /// The first of two pieces; the other comes later.
    fn cut(&mut self, packet: Vec<u8>) -> Vec<u8> {
        let (packet, length) = (
            build::may_fragment(packet.clone()),
            build::fragmentable(&packet),
        );
        let at = length / 2 / 8 * 8;
        if at == 0 {
            return packet;
        }
        let pieces = [(0, at), (at, length)].map(|(from, to)| build::fragment(&packet, from, to));
        let [Some(first), Some(second)] = pieces else {
            return packet;
        };
        self.rest.push(second);
        first
    }
}
