//! The decisions of `bpf/policy`, and the reasons of `bpf/include`: the only foreign functions and unsafe reads of the workspace's
//! pure crates.
//!
//! bindgen declares and wraps the decisions, from the headers that the structures are generated from. What stands here says of each
//! what it takes and gives in Rust; whether that is what C takes and gives is for the compiler to check ([`Passed`]).

use std::ffi::{CStr, c_char, c_int};

use crate::abi;

/// As C has them; an enumeration that C gives is a number here, whatever it may be.
#[allow(clippy::all, dead_code, non_camel_case_types)]
mod native {
    use crate::abi::{
        Addr as ab_addr, BePort as __be16, Choice as ab_choice, Consistent as ab_consistent,
        Decision as ab_decision, Drr as ab_drr, Flow as ab_flow, FlowKey as ab_flow_key,
        Flowlet as ab_flowlet, Gauge as ab_gauge, Gauges as ab_gauges, Leader as ab_leader,
        Path as ab_path, Paths as ab_paths, Prefix as ab_prefix, Request as ab_request,
        RuleAddr as ab_rule_addr, Rules as ab_rules, RulesByAddr as ab_rules_by_addr,
        RulesByPort as ab_rules_by_port, Secret as ab_secret, Segment as ab_segment, Set as ab_set,
        Settings as ab_settings, Silence as ab_silence, Sublinks as ab_sublinks,
        Target as ab_target, Traits as ab_traits, Witnesses as ab_witnesses,
    };

    type ab_answer = u32;
    type ab_family = u32;
    type ab_hearing = u32;
    type ab_syn = u32;

    include!(concat!(env!("OUT_DIR"), "/decisions.rs"));
}

/// A value on its way to C or from there.
trait Passed<T> {
    fn passed(self) -> T;
}

macro_rules! passed {
    ($($from:ty => $to:ty: $how:expr;)+) => {$(
        impl Passed<$to> for $from {
            fn passed(self) -> $to {
                $how(self)
            }
        }
    )+};
}
passed! {
    () => (): |it| it;
    u8 => u8: |it| it;
    u16 => u16: |it| it;
    u32 => u32: |it| it;
    u64 => u64: |it| it;
    abi::BePort => abi::BePort: |it| it;
    u16 => u32: u32::from;
    bool => c_int: c_int::from;
    bool => u64: u64::from;
    c_int => bool: |it| it != 0;
    c_int => u32: |it| it as u32;
    // Of links, which C has as numbers below `MAX_LINKS`, or `NO_TARGET`.
    u32 => u16: |it| it as u16;
}

impl<T> Passed<*const T> for &T {
    fn passed(self) -> *const T {
        self
    }
}

impl<T> Passed<*mut T> for &mut T {
    fn passed(self) -> *mut T {
        self
    }
}

/// A table that C reads as many elements of as it has.
impl<T, const N: usize> Passed<*const T> for &[T; N] {
    fn passed(self) -> *const T {
        self.as_ptr()
    }
}

macro_rules! decisions {
    ($($(#[$on:meta])* fn $name:ident($($arg:ident: $kind:ty),* $(,)?) -> $of:ty;)+) => {$(
        $(#[$on])*
        pub fn $name($($arg: $kind),*) -> $of {
            // SAFETY: numbers, and valid, aligned references to structures generated from the same headers, that to what is written
            // exclusive; tables are as long as the function reads.
            unsafe { native::$name($($arg.passed()),*) }.passed()
        }
    )+};
}
decisions! {
    fn ab_choose(
        now: &abi::Choice,
        gauges: &abi::Gauges,
        table: &abi::Consistent,
        request: &mut abi::Request,
        decision: &mut abi::Decision,
    ) -> ();
    fn ab_avoid(request: &mut abi::Request, tried: u32, full: u64) -> ();
    fn ab_reach(now: &abi::Choice, remote_port: abi::BePort) -> u32;
    fn ab_takes_turns(now: &abi::Choice) -> bool;
    fn ab_takes_new(now: &abi::Choice, target: u16) -> bool;
    fn ab_row_of(table: &abi::Consistent, hash: u32) -> u16;
    fn ab_take_token(per_s: u32, full_ns: u64, now_ns: u64) -> u64;
    fn ab_judge_syn(now: &abi::Choice, state: u32, is_same: bool, target: u16, tries: u32) -> u32;
    fn ab_tried_with(now: &abi::Choice, tried: u32, target: u16) -> u32;
    fn ab_tried(target: u16) -> u32;
    fn ab_class_of(rules: &abi::Rules, traits: &abi::Traits) -> u32;
    fn ab_npt(addr: &mut abi::Addr, prefix: &abi::Addr, prefix_len: u32) -> bool;
    fn ab_flow_hash(src: &abi::Addr, dst: &abi::Addr, sport: abi::BePort, dport: abi::BePort) -> u32;
    fn ab_hash_for(now: &abi::Choice, src: &abi::Addr, dst: &abi::Addr, sport: abi::BePort, dport: abi::BePort) -> u32;
    fn ab_session_trace(hash: u64) -> u64;
    fn ab_session_word(trace: u64, link: u16, now_ns: u64) -> u64;
    fn ab_session_link(now: &abi::Choice, word: u64, trace: u64, now_ns: u64) -> u16;
    fn ab_trace(lan_key: &abi::FlowKey) -> u32;
    fn ab_bin(hash: u32) -> u32;
    fn ab_sublink_by_hash(hash: u32, usable: u64) -> u16;
    fn ab_sublink_by_bin(table: &[u16; abi::BINS], hash: u32, usable: u64) -> u16;
    fn ab_sublink_by_rendezvous(sublinks: &abi::Sublinks, hash: u32) -> u16;
    #[cfg(test)]
    fn ab_neg_log2(draw: u32) -> u64;
    fn ab_flowlet_lasts(flowlet: &abi::Flowlet, usable: u64, now_ns: u64, gap_ns: u64) -> bool;
    fn ab_flowlet_send(flowlet: &mut abi::Flowlet, sublink: u16, now_ns: u64) -> ();
    fn ab_sublink_by_deficit(drr: &mut abi::Drr, quantum: &[u32; abi::MAX_LINKS], count: u32, length: u32, usable: u64) -> u16;
    fn ab_prefix_of(prefix: &mut abi::Prefix, addr: &abi::Addr) -> ();
    fn ab_know(now: &abi::Choice, paths: &abi::Paths, request: &mut abi::Request, now_ns: u64, tells: bool) -> bool;
    fn ab_syn_sent(now_ns: u64) -> u32;
    fn ab_learn_answer(now: &abi::Choice, path: &mut abi::Path, sent: u32, now_ns: u64) -> ();
    fn ab_learn_silence(now: &abi::Choice, path: &mut abi::Path, silence: &mut abi::Silence, link: u32, sent: u32, now_ns: u64) -> ();
    fn ab_heeded(now: &abi::Choice, silence: &abi::Silence, fresh: u32, now_ns: u64) -> u32;
    fn ab_may_race(now: &abi::Choice, request: &abi::Request, payload: u32) -> bool;
    fn ab_spend_race(now: &abi::Choice, full_ns: u64, now_ns: u64) -> u64;
    fn ab_asked_links(request: &abi::Request, decision: &abi::Decision) -> u32;
    fn ab_race_copies(request: &abi::Request, first: u16) -> u32;
    fn ab_next_race_copy(first: u16, step: u32) -> u16;
    fn ab_try(link: u16) -> u32;
    fn ab_try_link(one: u32) -> u16;
    fn ab_tries_at(tries: u32, i: u32) -> u32;
    fn ab_tries_race(race_copies: u32) -> u32;
    fn ab_tries_probe(race_copies: u32) -> u32;
    fn ab_waits(tries: u32) -> bool;
    fn ab_is_race(tries: u32) -> bool;
    fn ab_tries_are_free(tries: u32) -> bool;
    #[cfg(test)]
    fn ab_tries_claim(tries: u32) -> u32;
    fn ab_tries_given_up(tries: u32, next: u32) -> u32;
    fn ab_tries_next(tries: u32, current: u32, next: u32) -> u32;
    fn ab_tries_judge(tries: u32, current: u32, from: u32) -> u32;
    fn ab_tries_answered(tries: u32, current: u32, winner: u32) -> u32;
    fn ab_witness(of_link: &mut abi::Witnesses, host: u32, end: u32, now_ns: u64) -> u32;
    fn ab_may_confirm(state: u32) -> bool;
    fn ab_completes_handshake(state: u32, flags: u8) -> bool;
    fn ab_answers_challenge(state: u32, flags: u8, is_of_flow: bool) -> bool;
    fn ab_is_finished(state: u32) -> bool;
    fn ab_hear(state: u32, of_try: u32, segment: &abi::Segment) -> u32;
    fn ab_tcp_timer_ns(set: &abi::Settings, state: u32, is_pressed: bool) -> u64;
    fn ab_ends_with_link(state: u32) -> bool;
    fn ab_is_told_of_end(state: u32) -> bool;
    fn ab_keyed(secret: &abi::Secret, words: &[u64; abi::KEYED_WORDS]) -> u64;
    fn ab_client_hash(
        now: &abi::Choice,
        secret: &abi::Secret,
        client: &abi::Addr,
        service: &abi::Addr,
        client_port: abi::BePort,
        service_port: abi::BePort
    ) -> u32;
    fn ab_connection_learn(state: u32, by_server: bool, flags: u8) -> u32;
    fn ab_connection_is_reset(state: u32, number: u32, acked: u32) -> bool;
    fn ab_connection_is_confirmed(state: u32, number: u32, reached: u32) -> bool;
    fn ab_connection_gives_way(
        state: u32,
        flags: u8,
        server_takes_new: bool,
        server_failed: bool
    ) -> bool;
    fn ab_connection_learn_udp(state: u32, by_server: bool) -> u32;
    fn ab_connection_learn_direct(state: u32, flags: u8) -> u32;
    fn ab_connection_is_near(number: u32, reached: u32) -> bool;
    fn ab_connection_is_passing(state: u32) -> bool;
    fn ab_connection_timer_ns(proto: u8, state: u32) -> u64;
}

#[repr(C)]
struct RawReason {
    name: *const c_char,
    words: *const c_char,
    fate: u32,
}

unsafe extern "C" {
    // Declared with one element: the true number stands beside each.
    static ab_native_reasons: [RawReason; 1];
    static ab_native_reasons_count: usize;
    static ab_native_trunk_reasons: [RawReason; 1];
    static ab_native_trunk_reasons_count: usize;
    static ab_native_service_reasons: [RawReason; 1];
    static ab_native_service_reasons_count: usize;
    static ab_native_member_reasons: [RawReason; 1];
    static ab_native_member_reasons_count: usize;
}

/// `(name, words, fate)` of every reason of the gateway, in the order of their numbers.
pub fn reasons() -> Vec<(&'static str, &'static str, u32)> {
    // SAFETY: native.c defines the table with this many rows, and nothing writes to it.
    read_reasons(unsafe {
        std::slice::from_raw_parts(
            (&raw const ab_native_reasons).cast(),
            ab_native_reasons_count,
        )
    })
}

/// The same of the trunk.
pub fn trunk_reasons() -> Vec<(&'static str, &'static str, u32)> {
    // SAFETY: as above.
    read_reasons(unsafe {
        std::slice::from_raw_parts(
            (&raw const ab_native_trunk_reasons).cast(),
            ab_native_trunk_reasons_count,
        )
    })
}

/// The same of the services.
pub fn service_reasons() -> Vec<(&'static str, &'static str, u32)> {
    // SAFETY: as above.
    read_reasons(unsafe {
        std::slice::from_raw_parts(
            (&raw const ab_native_service_reasons).cast(),
            ab_native_service_reasons_count,
        )
    })
}

/// The same of a member.
pub fn member_reasons() -> Vec<(&'static str, &'static str, u32)> {
    // SAFETY: as above.
    read_reasons(unsafe {
        std::slice::from_raw_parts(
            (&raw const ab_native_member_reasons).cast(),
            ab_native_member_reasons_count,
        )
    })
}

fn read_reasons(rows: &[RawReason]) -> Vec<(&'static str, &'static str, u32)> {
    rows.iter()
        .map(|row| (text(row.name), text(row.words), row.fate))
        .collect()
}

fn text(chars: *const c_char) -> &'static str {
    // SAFETY: every pointer of the tables is a string literal of native.c.
    unsafe { CStr::from_ptr(chars) }
        .to_str()
        .expect("native.c is ASCII")
}
