//! Inputs that cover the corners of every scheme, with what this build decides.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::abi::{self, Addr};
use crate::{Candidates, Decision, Dispatch, Request, flow_hash, pick};

/// One choice and its outcome.
#[derive(Clone, Copy, Debug)]
pub struct Vector {
    pub candidates: Candidates,
    pub request: Request,
    pub decision: Decision,
}

/// One flow and its hash; ports in host order.
#[derive(Clone, Copy, Debug)]
pub struct HashVector {
    pub src: Addr,
    pub dst: Addr,
    pub sport: u16,
    pub dport: u16,
    pub hash: u32,
}

const SCHEMES: [Dispatch; 4] = [
    Dispatch::Weighted,
    Dispatch::Best,
    Dispatch::Random,
    Dispatch::Hash,
];

/// The same 2000-odd choices at every call: all small pools under every scheme, then a seeded mixture.
pub fn vectors() -> Vec<Vector> {
    corners()
        .chain(mixture())
        .map(|(candidates, request)| Vector {
            candidates,
            request,
            decision: pick(&candidates, &request),
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
            let (sport, dport) = (draw.next() as u16, draw.next() as u16);
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

/// Three targets: every usable mask, every avoid mask, every scheme, extreme weights and loads.
fn corners() -> impl Iterator<Item = (Candidates, Request)> {
    let numbers = [
        ([5, 5, 5], [1, 0, 0]),
        ([0, abi::WEIGHT_MAX, u32::MAX], [0, u32::MAX, u32::MAX]),
    ];
    numbers.into_iter().flat_map(|(weight, load)| {
        SCHEMES.into_iter().flat_map(move |dispatch| {
            (0..64).map(move |masks| {
                // Bits beyond `count` must not matter.
                let mut candidates = Candidates {
                    count: 3,
                    usable: 0xfff8 | masks & 7,
                    ..Candidates::default()
                };
                candidates.weight[..3].copy_from_slice(&weight);
                candidates.load[..3].copy_from_slice(&load);
                (
                    candidates,
                    Request {
                        dispatch,
                        avoid: masks >> 3,
                        hash: masks,
                        random: masks << 26,
                    },
                )
            })
        })
    })
}

fn mixture() -> impl Iterator<Item = (Candidates, Request)> {
    let mut draw = SplitMix64(1);
    (0..1500).map(move |_| {
        let mut number = |bits: u32| draw.next() as u32 & ((1u64 << bits) - 1) as u32;
        let mut candidates = Candidates {
            count: number(5) % 18,
            usable: number(17),
            ..Candidates::default()
        };
        // Few bits make ties, many make products of full width.
        let bits = [2, 8, 20, 32][number(2) as usize];
        for i in 0..abi::MAX_LINKS {
            candidates.weight[i] = number(bits);
            candidates.load[i] = number(bits);
        }
        let dispatch = SCHEMES[number(2) as usize];
        (
            candidates,
            Request {
                dispatch,
                avoid: number(16) & number(16),
                hash: number(32),
                random: number(32),
            },
        )
    })
}

fn address(draw: &mut SplitMix64, v4: bool) -> Addr {
    let high = u128::from(draw.next());
    let bits = high << 64 | u128::from(draw.next());
    let ip = if v4 {
        IpAddr::from(Ipv4Addr::from(bits as u32))
    } else {
        IpAddr::from(Ipv6Addr::from(bits))
    };
    ip.into()
}

/// Steele, Lea, Flood 2014: a fixed sequence from a fixed seed, which is all that vectors need.
struct SplitMix64(u64);

impl SplitMix64 {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }
}
