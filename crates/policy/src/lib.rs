//! The choice of a target, as the packets see it.
//!
//! Every decision that falls on a packet is written once, as C headers in `bpf/policy`. The BPF programs include them,
//! and this crate compiles the same text for this machine, so that the simulator and the tests run what the kernel runs.
//!
//! A choice is made among up to [`abi::MAX_TARGETS`] targets by [`choose`]: the route of the destination binds a flow, then its
//! session, then its endpoint. Otherwise the pool is what is usable, less what has failed this very flow; if the flow has
//! failed everywhere, that memory is dropped ([`Why::Retried`]), because trying again beats refusing. In the pool one of these
//! schemes decides:
//!
//! | scheme | chosen | ties |
//! |---|---|---|
//! | [`Dispatch::Weighted`] | least load for its weight (Peng 2005 eq. 4) | greater weight, then [`abi::Ties`] |
//! | [`Dispatch::Best`] | greatest weight | [`abi::Ties`] |
//! | [`Dispatch::Random`] | uniform | |
//! | [`Dispatch::Hash`] | CRC-32 of the flow modulo the size of the pool (Cao, Wang and Zegura 2000) | |
//! | [`Dispatch::HashSum`] | sum of its addresses and ports modulo the size of the pool (Guo 2004) | |
//! | [`Dispatch::Table`] | the consistent table's entry for the CRC-32 (Eisenbud et al. 2016) | |
//! | [`Dispatch::RandomTwo`] | of two at random the one with least load for its weight (Mitzenmacher 2001) | as Weighted |
//! | [`Dispatch::Turns`] | each in turn | |
//! | [`Dispatch::Rounds`] | the slots of a table in turn (Zhang 2002 §2.3, weighted round robin) | |
//! | [`Dispatch::Lots`] | a random slot of a table (Zhang 2002 §2.3, probabilistic) | |
//! | [`Dispatch::Cold`] | greatest weight of those with few open flows, else the fewest flows (Wydrowski et al. 2024, Prequal) | fewer open flows, then [`abi::Ties`] |
//! | [`Dispatch::Soonest`] | least expected time of a flow: round trips of its destination, and its share of the link | lower index |
//!
//! Where flows tell of their destinations ([`paths`]), the fastest of the links that are known for the flow's decides before that.
//!
//! Weighted and Best look at all targets; what the others take does not grow with their number. The hash spreads without
//! state, and promises nothing when a target leaves: modulo moves most flows' choice; the table moves those of that target.
//! Flows that are bound already stay, whatever the scheme.
//!
//! Which class of traffic a flow is of, and so which choice is its, [`Rules::class_of`] says: the first rule that matches.
//!
//! A trunk of parallel *sublinks* is spread by [`spread`]: by hash, by bin, by weighted rendezvous, by flowlet, or packet
//! by packet.
//!
//! A connection attempt that was not answered in time goes on over another link, or takes all links at once in a race ([`Choice::may_race`]);
//! [`tries`] says which answer wins.
//!
//! What a segment does to the state of a flow of the gateway says [`tcp`], to that of a service's connection [`connection`].
//!
//! [`abi`] mirrors the whole contract between programs and user space; [`reasons`], [`trunk_reasons`], [`service_reasons`] and [`member_reasons`] name
//! every way a packet can leave the programs; [`vectors`] and [`hash_vectors`] are the inputs on which the loaded BPF program must agree with this
//! build. Beside that, of the pure crates only the simulator has unsafe code: a hint to the cache.

#![deny(missing_docs)]
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

pub mod abi;
pub mod connection;
mod family;
mod ffi;
pub mod keyed;
mod known;
pub mod paths;
pub mod splitmix;
pub mod spread;
pub mod tcp;
pub mod tries;
mod vectors;
pub mod witness;

use std::net::Ipv6Addr;
use std::sync::OnceLock;

pub use abi::{
    Answer, Choice, Consistent, Dispatch, Family, Fate, Gauges, Granularity, Load, Rules, Set,
    Sublinks, Syn, Traits, Why, Without,
};
pub use family::PerFamily;
use paths::Known;
use tries::Attempt;
pub use vectors::{HashVector, SCHEMES, Vector, hash_vectors, vectors};

/// What one target brings to a choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Dimensionless, clamped to [`abi::WEIGHT_MIN`]..=[`abi::WEIGHT_MAX`] by what is made of it.
    pub weight: u32,
    /// In flows, see [`Load`].
    pub load: u32,
    /// Whether it takes new flows.
    pub usable: bool,
}

impl FromIterator<Candidate> for Sublinks {
    /// Without their loads; sublinks beyond [`abi::MAX_LINKS`] are left out.
    fn from_iter<I: IntoIterator<Item = Candidate>>(candidates: I) -> Self {
        let mut all = Sublinks::default();
        for (i, candidate) in candidates.into_iter().take(abi::MAX_LINKS).enumerate() {
            all.count += 1;
            all.usable |= u64::from(candidate.usable) << i;
            all.weight[i] = candidate.weight;
        }
        all
    }
}

/// What is known of a flow whose target is to be chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// Targets that have failed it, see [`Tried`].
    pub tried: Tried,
    /// Bit i: target i, below 64, cannot take it.
    pub full: u64,
    /// Of the flow as [`Choice::hash_for`] has it, for [`Dispatch::Hash`], [`Dispatch::HashSum`] and [`Dispatch::Table`].
    pub hash: u32,
    /// The number of choices so far where the choice [takes turns](Choice::takes_turns), else uniform over all values.
    pub draw: u32,
    /// Open flows of all targets, for a choice that is [bounded](Choice::bound).
    pub open: u32,
    /// That the route of its destination binds it to.
    pub route: Option<u16>,
    /// That an earlier flow of its session binds it to.
    pub session: Option<u16>,
    /// That an earlier flow of the same LAN endpoint binds it to.
    pub endpoint: Option<u16>,
    /// Its SYN is to take all links that [`Choice::may_race`] has it choose among; then `draw` counts choices.
    pub race: bool,
    /// Of its destination.
    pub known: Known,
}

/// The targets on which a SYN of a flow got no answer. Up to 16 targets are told apart; beyond, those whose indices differ by a
/// multiple of 16 are one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tried(pub u16);

impl Tried {
    /// With `target`.
    pub fn with(self, target: u16) -> Tried {
        Tried(self.0 | ffi::ab_tried(target) as u16)
    }

    /// Whether `target`, or one that is not told apart from it, was tried.
    pub fn contains(self, target: u16) -> bool {
        u32::from(self.0) & ffi::ab_tried(target) != 0
    }
}

/// What a choice says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Index of the target; none if no target is usable.
    pub target: Option<u16>,
    /// Why that one, or why none.
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

/// Where no target is chosen by a table.
pub static NO_TABLE: Consistent = Consistent {
    target: [abi::NO_TARGET; abi::CONSISTENT_SLOTS],
    slots: 0,
};

/// Chooses the target of a new flow: `ab_choose` of `bpf/policy/choose.h`. `table` is that of
/// [`Dispatch::Table`], [`Dispatch::Rounds`] or [`Dispatch::Lots`], else [`NO_TABLE`].
pub fn choose(now: &Choice, gauges: &Gauges, table: &Consistent, request: &Request) -> Decision {
    choose_and_race(now, gauges, table, request).0
}

/// The same; the links beside the target that a SYN which is to race takes, as bits: `ab_race_copies` of `bpf/policy/race.h`; and
/// those that no other flow is to ask, once this one is bound: `ab_asked_links` of `bpf/policy/paths.h`.
pub fn choose_and_race(
    now: &Choice,
    gauges: &Gauges,
    table: &Consistent,
    request: &Request,
) -> (Decision, u32, u32) {
    let mut raw = request.raw();
    let mut decision = abi::Decision::default();
    ffi::ab_avoid(&mut raw, request.tried.0.into(), request.full);
    ffi::ab_choose(now, gauges, table, &mut raw, &mut decision);
    let asked = ffi::ab_asked_links(&raw, &decision);
    let decision =
        Decision::try_from(decision).expect("choose.h and the enumeration know the same reasons");
    let race_copies = match decision {
        Decision {
            target: Some(first),
            why: Why::Race | Why::Probed,
        } => ffi::ab_race_copies(&raw, first),
        _ => 0,
    };
    (decision, race_copies, asked)
}

impl Request {
    fn raw(&self) -> abi::Request {
        let index = |target: Option<u16>| target.unwrap_or(abi::NO_TARGET);
        abi::Request {
            hash: self.hash,
            draw: self.draw,
            open: self.open,
            route: index(self.route),
            session: index(self.session),
            endpoint: index(self.endpoint),
            race: self.race.into(),
            fresh: self.known.fresh,
            unknown: self.known.unknown,
            untold: self.known.untold.into(),
            response_us: self.known.response_us,
            loss: self.known.loss,
            ..abi::Request::default()
        }
    }
}

impl Choice {
    /// A choice among `candidates` with the gauges that bring their loads. Those beyond [`abi::MAX_TARGETS`] are left out.
    pub fn among(dispatch: Dispatch, candidates: &[Candidate]) -> (Choice, Gauges) {
        let mut choice = Choice {
            dispatch: dispatch.into(),
            load: Load::Dispatched.into(),
            ..Choice::default()
        };
        let mut gauges = Gauges::default();
        let targets = choice.target.iter_mut().zip(&mut gauges.target);
        for ((target, gauge), candidate) in targets.zip(candidates) {
            *target = abi::Target::new(candidate.weight, 0);
            gauge.dispatched = candidate.load.into();
            choice.count += 1;
        }
        let usable = (0..)
            .zip(candidates)
            .filter(|(_, candidate)| candidate.usable);
        choice.usable = usable.map(|(target, _)| target).collect();
        choice.working = choice.usable;
        (choice, gauges)
    }

    /// The links of `usable` take turns, of `count` links in all.
    pub fn round_robin(count: u32, usable: u64) -> Self {
        Choice {
            dispatch: Dispatch::Weighted.into(),
            load: Load::Dispatched.into(),
            count,
            usable: Set::of_word(usable),
            working: Set::of_word(usable),
            target: [abi::Target::new(1, 0); abi::MAX_TARGETS],
            ..Self::default()
        }
    }

    /// How far the choice for a flow to `remote_port` reaches: `ab_reach`. 0 for ICMP.
    pub fn reach(&self, remote_port: u16) -> Granularity {
        Granularity::try_from(ffi::ab_reach(self, abi::BePort::new(remote_port)))
            .expect("a granularity that was installed")
    }

    /// Whether [`Request::draw`] counts choices: `ab_takes_turns`.
    pub fn takes_turns(&self) -> bool {
        ffi::ab_takes_turns(self)
    }

    /// Whether a target takes new flows while its tier does: `ab_takes_new`.
    pub fn takes_new(&self, target: u16) -> bool {
        ffi::ab_takes_new(self, target)
    }

    /// [`Request::hash`] of a flow as its opener sends it: `ab_hash_for`. Ports in host order.
    pub fn hash_for(&self, src: abi::Addr, dst: abi::Addr, sport: u16, dport: u16) -> u32 {
        let [sport, dport] = [sport, dport].map(abi::BePort::new);
        ffi::ab_hash_for(self, &src, &dst, sport, dport)
    }

    /// The link of the session whose hash is `hash`, if `word` is what is remembered of it and it is not forgotten at `now_ns`:
    /// `ab_session_link` of `bpf/policy/session.h`.
    pub fn session_link(&self, word: u64, hash: u64, now_ns: u64) -> Option<u16> {
        let link = ffi::ab_session_link(self, word, ffi::ab_session_trace(hash), now_ns);
        (link != abi::NO_TARGET).then_some(link)
    }

    /// Whether a flow that begins with a SYN of `payload` bytes may race over all usable links, but for the rate: `ab_may_race`
    /// of `bpf/policy/race.h`.
    pub fn may_race(&self, request: &Request, payload: u32) -> bool {
        ffi::ab_may_race(self, &request.raw(), payload)
    }

    /// One race less of what the rate of the class allows: `ab_spend_race`. `full_ns` is when all of it will be there again;
    /// none if no race is left at `now_ns`.
    pub fn spend_race(&self, full_ns: u64, now_ns: u64) -> Option<u64> {
        Some(ffi::ab_spend_race(self, full_ns, now_ns)).filter(|next| *next != 0)
    }

    /// What a SYN means whose flow is bound as `attempt` in `state`, bits of `abi::STATE_…`: `ab_judge_syn`. `is_same`: with
    /// the sequence number of the flow's first.
    pub fn judge_syn(&self, state: u32, is_same: bool, attempt: &Attempt) -> Syn {
        Syn::try_from(ffi::ab_judge_syn(
            self,
            state,
            is_same,
            attempt.link(),
            attempt.word(),
        ))
        .expect("choose.h and the enumeration know the same")
    }

    /// What an attempt that goes on from `target` has tried: `ab_tried_with`.
    pub fn tried_with(&self, tried: Tried, target: u16) -> Tried {
        Tried(ffi::ab_tried_with(self, tried.0.into(), target) as u16)
    }
}

impl Rules {
    /// No rule: everything is of the default class.
    pub fn none() -> Box<Rules> {
        Box::new(bytemuck::Zeroable::zeroed())
    }

    /// The class of a flow with these traits, 0 for the default: `ab_class_of` of `bpf/policy/rules.h`.
    pub fn class_of(&self, traits: &abi::Traits) -> u16 {
        ffi::ab_class_of(self, traits) as u16
    }
}

/// What is remembered of a session, of which a flow on `link` begins at `now_ns`: `ab_session_word` of `bpf/policy/session.h`.
pub fn session_word(hash: u64, link: u16, now_ns: u64) -> u64 {
    ffi::ab_session_word(ffi::ab_session_trace(hash), link, now_ns)
}

/// What the state of a LAN entry bears of its key: `ab_trace` of `bpf/policy/trace.h`.
pub fn trace(lan_key: &abi::FlowKey) -> u32 {
    ffi::ab_trace(lan_key)
}

/// `address` with the first `prefix_len` bits (1 to 64) of `prefix` instead of its own, and with its sum as before (RFC 6296):
/// `ab_npt` of `bpf/policy/npt.h`. None where the RFC has none.
pub fn translate_prefix(address: Ipv6Addr, prefix: Ipv6Addr, prefix_len: u8) -> Option<Ipv6Addr> {
    let mut translated = abi::Addr::from(address);
    ffi::ab_npt(&mut translated, &prefix.into(), prefix_len.into())
        .then(|| Ipv6Addr::from(translated.0))
}

/// The hash of a flow: `ab_flow_hash` of `bpf/policy/hash.h`. Ports in host order.
pub fn flow_hash(src: abi::Addr, dst: abi::Addr, sport: u16, dport: u16) -> u32 {
    ffi::ab_flow_hash(&src, &dst, abi::BePort::new(sport), abi::BePort::new(dport))
}

/// One way a packet can leave a program; its number is its place in [`reasons`], [`trunk_reasons`], [`service_reasons`] or
/// [`member_reasons`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reason {
    /// As in `AB_REASON_…`, in capitals.
    pub name: &'static str,
    /// What becomes of the packet.
    pub fate: Fate,
    /// What it means, for people.
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

/// Every reason of the services, in the order of the counters.
pub fn service_reasons() -> &'static [Reason] {
    static REASONS: OnceLock<Vec<Reason>> = OnceLock::new();
    REASONS.get_or_init(|| {
        ffi::service_reasons()
            .into_iter()
            .map(Reason::known)
            .collect()
    })
}

/// Every reason of a member, in the order of the counters.
pub fn member_reasons() -> &'static [Reason] {
    static REASONS: OnceLock<Vec<Reason>> = OnceLock::new();
    REASONS.get_or_init(|| {
        ffi::member_reasons()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_changes_and_the_sum_of_the_address_does_not() {
        // The example of RFC 6296, sections 2 and 3.
        let parse = |text: &str| text.parse::<Ipv6Addr>().unwrap();
        let outside = parse("2001:db8:1::");
        let inside = parse("fd01:203:405:1::1234");
        let expected = parse("2001:db8:1:d550::1234");
        assert_eq!(translate_prefix(inside, outside, 48), Some(expected));
        let back = translate_prefix(expected, parse("fd01:203:405::"), 48);
        assert_eq!(back, Some(inside));
        // Whose word is all ones, and would be told from zeroes by nobody, has no such address.
        assert_eq!(
            translate_prefix(parse("fd01:203:405:ffff::1"), outside, 48),
            None
        );
        let sum = |address: Ipv6Addr| {
            address
                .segments()
                .iter()
                .map(|word| u64::from(*word))
                .sum::<u64>()
                % 0xffff
        };
        for (length, seed) in (1..=64).zip(1..) {
            let mut random = splitmix::SplitMix64(seed);
            let mut draw = || u128::from(random.draw()) << 64 | u128::from(random.draw());
            let (inside, outside) = (Ipv6Addr::from(draw()), Ipv6Addr::from(draw()));
            let translated = translate_prefix(inside, outside, length).unwrap();
            let mask = !(u128::MAX >> length);
            assert_eq!(
                translated.to_bits() & mask,
                outside.to_bits() & mask,
                "seed {seed}"
            );
            assert_eq!(sum(translated), sum(inside), "seed {seed}");
            let back = translate_prefix(translated, inside, length);
            assert_eq!(back, Some(inside), "seed {seed}");
        }
    }
}
