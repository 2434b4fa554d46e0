//! Tunnelled packets against the programs of a member.

use std::net::IpAddr;

use anabranch_dataplane::member::Member;
use anabranch_testbed::netns::{Entered, Namespace};
use anabranch_testbed::pins::PinFolder;
use anyhow::Result;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::PACKETS;
use super::world::GUE_PORT;
use crate::build::{self, ACK, SYN, Says};
use crate::mutate;
use crate::read::{ETHERNET, Ip, UDP, ether_type};
use crate::script::to_hex;
use crate::site::FAMILIES;
use crate::sum;

const ADDRESSES: [u8; 12] = [0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 7];
const LEAST: usize = 54;
const GUE_BYTES: usize = 12;
/// Both bits of ECN (RFC 3168).
const CONGESTED: u8 = 3;

/// Of the family, where the services listen.
fn virtual_address(is_ipv6: bool) -> IpAddr {
    FAMILIES[usize::from(is_ipv6)].external[0]
}

/// Programs of a member whose packets are judged.
pub struct Arena {
    member: Member,
    counted: Vec<u64>,
    /// How often each reason was counted.
    pub tally: Vec<u64>,
    namespace: Namespace,
    _pins: PinFolder,
}

impl Arena {
    pub(super) fn new() -> Result<Self> {
        let namespace = Namespace::create("taker")?;
        let inside = namespace.enter()?;
        namespace.ip("link set lo up")?;
        for site in FAMILIES {
            let address = site.hosts[0].0;
            namespace.ip(&format!("address add {address} dev lo"))?;
        }
        let pins = PinFolder::name("taker");
        let (mut member, _) = Member::open(&pins)?;
        member.set_addresses(&[false, true].map(virtual_address))?;
        member.set_tunnels(&[], GUE_PORT)?;
        drop(inside);
        let none = vec![0; anabranch_policy::member_reasons().len()];
        Ok(Arena {
            member,
            counted: none.clone(),
            tally: none,
            namespace,
            _pins: pins,
        })
    }

    pub(super) fn round(&mut self, seed: u64) -> Result<Option<String>> {
        let _inside: Entered = self.namespace.enter()?;
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        for number in 0..PACKETS {
            let frame = drawn(&mut rng);
            let ran = self.member.run(&frame, 1)?;
            let reasons = self.reasons()?;
            if let Err(words) = judge(&frame, &reasons, ran.action, &ran.packet) {
                let (came, left) = (to_hex(&frame), to_hex(&ran.packet));
                let action = ran.action;
                return Ok(Some(format!(
                    "member's packet {number}, {reasons:?} {action:#x}: {words}\n{came}\n{left}"
                )));
            }
        }
        Ok(None)
    }

    fn reasons(&mut self) -> Result<Vec<&'static str>> {
        let now = self.member.reasons()?;
        let names = anabranch_policy::member_reasons().iter();
        let mut rose = Vec::new();
        for (number, (now, known)) in now.iter().zip(names).enumerate() {
            let more = now.packets - std::mem::replace(&mut self.counted[number], now.packets);
            self.tally[number] += more;
            rose.extend((0..more).map(|_| known.name));
        }
        Ok(rose)
    }
}

/// A client's packet in a tunnel, changed before or after it was put there.
fn drawn(rng: &mut ChaCha8Rng) -> Vec<u8> {
    let [inner, outer] = [0; 2].map(|_| rng.random_range(0..2));
    let client = (FAMILIES[inner].servers[0], 4000);
    let to = (virtual_address(inner == 1), 80);
    let payload = vec![7; rng.random_range(0..1000)];
    let mut packet = match rng.random_bool(0.5) {
        true => build::udp(client, to, 1, &payload),
        false => {
            let flags = if rng.random_bool(0.5) { SYN } else { ACK };
            let says = Says {
                flags,
                seq: 1,
                ack: 2,
                options: &[],
                payload: &payload,
            };
            build::tcp(client, to, 1, &says)
        }
    };
    if rng.random_bool(0.3) {
        mutate::packet(rng, &mut packet);
    }
    packet.resize(packet.len().max(1), 0);
    packet = wrapped(rng, outer, packet);
    // What the first change has cut short has nothing to change.
    if packet.len() >= LEAST && rng.random_bool(0.3) {
        mutate::packet(rng, &mut packet);
    }
    packet.resize(packet.len().max(LEAST), 0);
    [&ADDRESSES[..], &ether_type(packet[0] >> 4 == 6), &packet].concat()
}

fn wrapped(rng: &mut ChaCha8Rng, outer: usize, packet: Vec<u8>) -> Vec<u8> {
    let protocol = if packet[0] >> 4 == 6 { 41 } else { 4 };
    let site = FAMILIES[outer];
    let (from, to) = (site.gateway[0], site.hosts[0].0);
    let mut whole = match rng.random_range(0..3) {
        0 => packet,
        1 => build::packet(protocol, from, to, 1, &packet),
        _ => {
            let flags = *[0, 0, 0, 0, 0, 0x80, 1].choose(rng).expect("some");
            let body = [&[flags, protocol, 0, 0], &packet[..]].concat();
            build::udp((from, 50_000), (to, GUE_PORT), 1, &body)
        }
    };
    // Little may be left of it.
    if whole.len() > 1 && rng.random_bool(0.3) {
        set_ecn(&mut whole, rng.random_range(0..4));
    }
    whole
}

fn ecn_at(packet: &[u8]) -> (usize, u32) {
    if packet[0] >> 4 == 6 { (1, 4) } else { (1, 0) }
}

fn ecn(packet: &[u8]) -> u8 {
    let (at, shift) = ecn_at(packet);
    packet[at] >> shift & CONGESTED
}

fn set_ecn(packet: &mut [u8], mark: u8) {
    let (at, shift) = ecn_at(packet);
    packet[at] = packet[at] & !(CONGESTED << shift) | mark << shift;
    sum::mend_header(packet);
}

fn judge(frame: &[u8], reasons: &[&str], action: u32, left: &[u8]) -> Result<(), String> {
    let [reason] = reasons else {
        return Err("not for one reason".to_owned());
    };
    let demand = |holds: bool, words: &str| holds.then_some(()).ok_or_else(|| words.to_owned());
    match *reason {
        "IPIP" | "GUE" => {
            demand(action == u32::MAX, "taken off and dropped")?;
            let outer = Ip::of_quote(&frame[ETHERNET..]).ok_or("taken off what is no packet")?;
            let is_gue = outer.proto() == UDP;
            demand(
                is_gue == (*reason == "GUE"),
                "taken off by another protocol",
            )?;
            let headers = outer.header() + if is_gue { GUE_BYTES } else { 0 };
            let inner = &frame[ETHERNET + headers..];
            let is_ipv6 = inner[0] >> 4 == 6;
            demand(
                left[12..14] == ether_type(is_ipv6),
                "of another kind than it is",
            )?;
            let at = if is_ipv6 { 24..40 } else { 16..20 };
            let to = match virtual_address(is_ipv6) {
                IpAddr::V4(address) => address.octets().to_vec(),
                IpAddr::V6(address) => address.octets().to_vec(),
            };
            demand(inner[at] == to, "not for a virtual address")?;
            let mut expected = inner.to_vec();
            let left = &left[ETHERNET..];
            // Of IPv4 the checksum follows, be it right or wrong.
            let mark = marked(ecn(&frame[ETHERNET..]), ecn(inner));
            demand(mark == Some(ecn(left)), "a wrong mark of congestion")?;
            let (byte, _) = ecn_at(&expected);
            expected[byte] = left[byte];
            if !is_ipv6 && mark != Some(ecn(inner)) {
                expected[10..12].copy_from_slice(&left[10..12]);
                // A header that says that it is shorter has its checksum all the same.
                let header = (usize::from(inner[0] & 15) * 4).max(20).min(inner.len());
                let sums = [inner, left].map(|bytes| sum::sum(&bytes[..header]));
                demand(
                    sum::is_same(sums[0], sums[1]),
                    "a checksum that does not follow",
                )?;
            }
            demand(expected == left, "what was inside is changed")
        }
        "CONGESTED" => {
            demand(action == 2, "congested and not dropped")?;
            demand(
                ecn(&frame[ETHERNET..]) == CONGESTED,
                "dropped without a mark",
            )
        }
        "SENT_AGAIN" | "SYN_ACK" | "NOT_CONFIGURED" | "UNTAKEN" => {
            Err("a reason that has none".to_owned())
        }
        _ => demand(
            action == u32::MAX && left == frame,
            "what is left alone is changed",
        ),
    }
}

/// RFC 6040 figure 4; none: it is dropped.
fn marked(outer: u8, inner: u8) -> Option<u8> {
    match (outer, inner) {
        (CONGESTED, 0) => None,
        (CONGESTED, _) => Some(CONGESTED),
        (1, 2) => Some(1),
        _ => Some(inner),
    }
}
