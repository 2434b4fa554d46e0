//! The choice of a target, as the packets see it.
//!
//! Every decision that falls on a packet is written once, as C headers in `bpf/policy`. The BPF programs include them,
//! and this crate compiles the same text for this machine, so that the simulator and the tests run what the kernel runs.
//!
//! A choice is made among up to [`abi::MAX_LINKS`] targets. The pool is what is usable, less what has failed this very
//! flow; if the flow has failed everywhere, that memory is dropped ([`Why::Retried`]), because trying again beats
//! refusing. In the pool one of four schemes decides:
//!
//! | scheme | chosen | ties |
//! |---|---|---|
//! | [`Dispatch::Weighted`] | least load for its weight (Peng 2005 eq. 4) | greater weight, then lower index |
//! | [`Dispatch::Best`] | greatest weight | lower load, then lower index |
//! | [`Dispatch::Random`] | uniform | |
//! | [`Dispatch::Hash`] | CRC-32 of the flow modulo the size of the pool (Guo 2004) | |
//!
//! The hash spreads without state, and promises nothing when a target leaves: modulo moves most flows' choice. Flows
//! that are bound already stay, whatever the scheme.
//!
//! A trunk of parallel *sublinks* is spread by [`spread`]: by hash, by bin, by weighted rendezvous, by flowlet, or packet
//! by packet.
//!
//! A connection attempt that was not answered in time goes on over another link; [`tries`] says which answer wins.
//!
//! [`abi`] mirrors the whole contract between programs and user space; [`reasons`] and [`trunk_reasons`] name every way
//! a packet can leave the programs; [`vectors`] and [`hash_vectors`] are the inputs on which the loaded BPF program must agree with this
//! build. Beside that, of the pure crates only the simulator has unsafe code: a hint to the cache.

#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

pub mod abi;
mod ffi;
pub mod spread;
pub mod tries;
mod vectors;

use std::sync::OnceLock;

pub use abi::{Answer, Candidates, Dispatch, Fate, Granularity, Load, Why};
pub use vectors::{HashVector, Vector, hash_vectors, vectors};

/// What one target brings to a choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Dimensionless, clamped to [`abi::WEIGHT_MIN`]..=[`abi::WEIGHT_MAX`] by the choice.
    pub weight: u32,
    /// In flows, see [`Load`].
    pub load: u32,
    pub usable: bool,
}

impl FromIterator<Candidate> for Candidates {
    /// Targets beyond [`abi::MAX_LINKS`] are left out.
    fn from_iter<I: IntoIterator<Item = Candidate>>(candidates: I) -> Self {
        let mut all = Candidates::default();
        for (i, candidate) in candidates.into_iter().take(abi::MAX_LINKS).enumerate() {
            all.count += 1;
            all.usable |= u32::from(candidate.usable) << i;
            all.weight[i] = candidate.weight;
            all.load[i] = candidate.load;
        }
        all
    }
}

/// What is asked of a choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    pub dispatch: Dispatch,
    /// Bit i: target i has failed this flow.
    pub avoid: u32,
    /// Of the flow, for [`Dispatch::Hash`].
    pub hash: u32,
    /// Uniform over all values, for [`Dispatch::Random`].
    pub random: u32,
}

impl Request {
    /// A request that avoids nothing, with hash and random number zero.
    pub fn new(dispatch: Dispatch) -> Self {
        Request {
            dispatch,
            avoid: 0,
            hash: 0,
            random: 0,
        }
    }
}

impl From<Request> for abi::Request {
    fn from(request: Request) -> Self {
        let Request {
            dispatch,
            avoid,
            hash,
            random,
        } = request;
        abi::Request {
            dispatch: dispatch.into(),
            avoid,
            hash,
            random,
        }
    }
}

/// What a choice says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Index of the target; none if no target is usable.
    pub target: Option<u8>,
    pub why: Why,
}

impl TryFrom<abi::Decision> for Decision {
    type Error = abi::UnknownValue;

    fn try_from(raw: abi::Decision) -> Result<Self, abi::UnknownValue> {
        let target = (raw.target != abi::NO_TARGET).then_some(raw.target);
        Ok(Decision {
            target,
            why: Why::try_from(u32::from(raw.why))?,
        })
    }
}

/// Chooses a target: `ab_pick` of `bpf/policy/pick.h`.
pub fn pick(candidates: &Candidates, request: &Request) -> Decision {
    Decision::try_from(ffi::pick(candidates, &(*request).into()))
        .expect("pick.h and abi.rs know the same reasons")
}

/// What the state of a LAN entry bears of its key: `ab_trace` of `bpf/policy/trace.h`.
pub fn trace(lan_key: &abi::FlowKey) -> u32 {
    ffi::trace(lan_key)
}

/// The hash of a flow: `ab_flow_hash` of `bpf/policy/hash.h`. Ports in host order.
pub fn flow_hash(src: abi::Addr, dst: abi::Addr, sport: u16, dport: u16) -> u32 {
    ffi::flow_hash(&src, &dst, abi::BePort::new(sport), abi::BePort::new(dport))
}

impl abi::Choice {
    /// The links of `usable` take turns, of `count` links in all.
    pub fn round_robin(count: u32, usable: u32) -> Self {
        let target = abi::Target {
            weight: 1,
            dispatched_base: 0,
        };
        abi::Choice {
            dispatch: Dispatch::Weighted.into(),
            load: Load::Dispatched.into(),
            count,
            usable,
            target: [target; abi::MAX_LINKS],
            ..Self::default()
        }
    }
}

/// One way a packet can leave a program; its number is its place in [`reasons`] or [`trunk_reasons`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reason {
    /// As in `AB_REASON_…`, in capitals.
    pub name: &'static str,
    pub fate: Fate,
    pub words: &'static str,
}

/// Every reason of the gateway, in the order of the counters.
pub fn reasons() -> &'static [Reason] {
    static REASONS: OnceLock<Vec<Reason>> = OnceLock::new();
    REASONS.get_or_init(|| ffi::reasons().into_iter().map(Reason::known).collect())
}

/// Every reason of the trunk, in the order of the counters.
pub fn trunk_reasons() -> &'static [Reason] {
    static REASONS: OnceLock<Vec<Reason>> = OnceLock::new();
    REASONS.get_or_init(|| {
        ffi::trunk_reasons()
            .into_iter()
            .map(Reason::known)
            .collect()
    })
}

impl Reason {
    fn known((name, words, fate): (&'static str, &'static str, u32)) -> Self {
        Reason {
            name,
            fate: Fate::try_from(fate).expect("reasons.h and abi.rs know the same fates"),
            words,
        }
    }
}
