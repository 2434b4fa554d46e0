//! Inputs that cover the corners of every scheme, with what this build decides.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::abi::{self, Addr};
use crate::splitmix::SplitMix64;
use crate::{Candidate, Choice, Decision, Dispatch, NO_TABLE, Request, Tried, choose, flow_hash};

/// One choice and its outcome.
#[derive(Clone, Debug)]
pub struct Vector {
    /// How a target is chosen.
    pub dispatch: Dispatch,
    /// What there is to choose among.
    pub candidates: Vec<Candidate>,
    /// What is asked.
    pub request: Request,
    /// What this build decides.
    pub decision: Decision,
}

/// One flow and its hash; ports in host order.
#[derive(Clone, Copy, Debug)]
pub struct HashVector {
    /// Source address.
    pub src: Addr,
    /// Destination address.
    pub dst: Addr,
    /// Source port.
    pub sport: u16,
    /// Destination port.
    pub dport: u16,
    /// What this build makes of them.
    pub hash: u32,
}

/// Every scheme that decides by the numbers of the candidates alone: all but those by a table.
pub const SCHEMES: [Dispatch; 7] = [
    Dispatch::Weighted,
    Dispatch::Best,
    Dispatch::Random,
    Dispatch::Hash,
    Dispatch::RandomTwo,
    Dispatch::Turns,
    Dispatch::HashSum,
];

/// The same 3000-odd choices at every call: all small pools under every scheme, then a seeded mixture, then pools of 1, 16, 17,
/// 255 and 256 targets.
pub fn vectors() -> Vec<Vector> {
    corners()
        .chain(mixture())
        .chain(sizes())
        .map(|(dispatch, candidates, request)| {
            let (choice, gauges) = Choice::among(dispatch, &candidates);
            Vector {
                dispatch,
                request,
                decision: choose(&choice, &gauges, &NO_TABLE, &request),
                candidates,
            }
        })
        .collect()
}

/// The same flows at every call: IPv4, IPv6 and mixed pairs.
pub fn hash_vectors() -> Vec<HashVector> {
    let mut draw = SplitMix64(2);
    (0..256)
        .map(|i| {
            let (src, dst) = (
                address(&mut draw, i & 1 == 0),
                address(&mut draw, i & 2 == 0),
            );
            let (sport, dport) = (draw.draw() as u16, draw.draw() as u16);
            HashVector {
                src,
                dst,
                sport,
                dport,
                hash: flow_hash(src, dst, sport, dport),
            }
        })
        .collect()
}

type Input = (Dispatch, Vec<Candidate>, Request);

/// Three targets: every usable set, every set of tries, every scheme, extreme weights and loads.
fn corners() -> impl Iterator<Item = Input> {
    let numbers = [
        ([5, 5, 5], [1, 0, 0]),
        ([0, abi::WEIGHT_MAX, u32::MAX], [0, u32::MAX, u32::MAX]),
    ];
    numbers.into_iter().flat_map(|(weight, load)| {
        SCHEMES.into_iter().flat_map(move |dispatch| {
            (0..64u16).map(move |sets| {
                let candidates = (0..3).map(|i| Candidate {
                    weight: weight[i],
                    load: load[i],
                    usable: sets >> i & 1 == 1,
                });
                let request = Request {
                    tried: Tried(sets >> 3),
                    hash: sets.into(),
                    draw: u32::from(sets) << 26,
                    ..Request::default()
                };
                (dispatch, candidates.collect(), request)
            })
        })
    })
}

fn mixture() -> impl Iterator<Item = Input> {
    let mut draw = SplitMix64(1);
    (0..1500).map(move |_| {
        let count = draw.bits(5) % 18;
        drawn(&mut draw, count)
    })
}

fn sizes() -> impl Iterator<Item = Input> {
    let mut draw = SplitMix64(3);
    let counts = [1, 16, 17, 255, 256].into_iter().cycle().take(600);
    counts.map(move |count| drawn(&mut draw, count))
}

fn drawn(draw: &mut SplitMix64, count: u32) -> Input {
    // Few bits make ties, many make products of full width.
    let bits = [2, 8, 20, 32][draw.bits(2) as usize];
    let candidates = (0..count).map(|_| Candidate {
        weight: draw.bits(bits),
        load: draw.bits(bits),
        usable: draw.bits(2) != 0,
    });
    let candidates = candidates.collect();
    let request = Request {
        tried: Tried((draw.bits(16) & draw.bits(16)) as u16),
        full: u64::from(draw.bits(16) & draw.bits(16) & draw.bits(16)),
        hash: draw.bits(32),
        draw: draw.bits(32),
        ..Request::default()
    };
    let scheme = SCHEMES[draw.bits(16) as usize % SCHEMES.len()];
    (scheme, candidates, request)
}

fn address(draw: &mut SplitMix64, v4: bool) -> Addr {
    let high = u128::from(draw.draw());
    let bits = high << 64 | u128::from(draw.draw());
    let ip = if v4 {
        IpAddr::from(Ipv4Addr::from(bits as u32))
    } else {
        IpAddr::from(Ipv6Addr::from(bits))
    };
    ip.into()
}
