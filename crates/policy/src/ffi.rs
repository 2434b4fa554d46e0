//! What `native.c` exports: the only foreign functions and unsafe reads of the workspace's pure crates.

use std::ffi::{CStr, c_char, c_int};

use crate::abi;
use crate::known::Known;

#[repr(C)]
struct RawReason {
    name: *const c_char,
    words: *const c_char,
    fate: u32,
}

unsafe extern "C" {
    fn ab_native_choose(
        now: *const abi::Choice,
        gauges: *const abi::Gauges,
        table: *const abi::Consistent,
        q: *mut abi::Request,
        tried: u32,
        full: u64,
        d: *mut abi::Decision,
    );
    fn ab_native_reach(now: *const abi::Choice, remote_port: u16) -> u32;
    fn ab_native_takes_turns(now: *const abi::Choice) -> c_int;
    fn ab_native_judge_syn(
        now: *const abi::Choice,
        state: u32,
        is_same: c_int,
        target: u32,
        tries: u32,
    ) -> u32;
    fn ab_native_tried_with(now: *const abi::Choice, tried: u32, target: u32) -> u32;
    fn ab_native_tried(target: u32) -> u32;
    fn ab_native_class_of(rules: *const abi::Rules, t: *const abi::Traits) -> u32;
    fn ab_native_flow_hash(
        src: *const abi::Addr,
        dst: *const abi::Addr,
        sport: u16,
        dport: u16,
    ) -> u32;
    fn ab_native_npt(addr: *mut abi::Addr, prefix: *const abi::Addr, prefix_len: u32) -> c_int;
    fn ab_native_hash_for(
        now: *const abi::Choice,
        src: *const abi::Addr,
        dst: *const abi::Addr,
        sport: u16,
        dport: u16,
    ) -> u32;
    fn ab_native_session_word(hash: u64, link: u32, now_ns: u64) -> u64;
    fn ab_native_session_link(now: *const abi::Choice, word: u64, hash: u64, now_ns: u64) -> u32;
    fn ab_native_trace(lan_key: *const abi::FlowKey) -> u32;
    fn ab_native_bin(hash: u32) -> u32;
    fn ab_native_sublink_by_hash(hash: u32, usable: u64) -> u16;
    fn ab_native_sublink_by_bin(table: *const u16, hash: u32, usable: u64) -> u16;
    fn ab_native_sublink_by_rendezvous(s: *const abi::Sublinks, hash: u32) -> u16;
    #[cfg(test)]
    fn ab_native_neg_log2(draw: u32) -> u64;
    fn ab_native_flowlet_lasts(
        f: *const abi::Flowlet,
        usable: u64,
        now_ns: u64,
        gap_ns: u64,
    ) -> c_int;
    fn ab_native_flowlet_send(f: *mut abi::Flowlet, sublink: u16, now_ns: u64);
    fn ab_native_sublink_by_deficit(
        d: *mut abi::Drr,
        quantum: *const u32,
        count: u32,
        length: u32,
        usable: u64,
    ) -> u16;
    fn ab_native_prefix_of(prefix: *mut abi::Prefix, addr: *const abi::Addr);
    fn ab_native_syn_sent(now_ns: u64) -> u32;
    fn ab_native_learn_answer(
        now: *const abi::Choice,
        path: *mut abi::Path,
        sent: u32,
        now_ns: u64,
    );
    fn ab_native_learn_silence(
        now: *const abi::Choice,
        path: *mut abi::Path,
        silence: *mut abi::Silence,
        link: u32,
        sent: u32,
        now_ns: u64,
    );
    fn ab_native_heeded(
        now: *const abi::Choice,
        silence: *const abi::Silence,
        fresh: u32,
        now_ns: u64,
    ) -> u32;
    fn ab_native_know(
        now: *const abi::Choice,
        paths: *const abi::Paths,
        q: *mut abi::Request,
        now_ns: u64,
        tells: c_int,
    );
    fn ab_native_may_race(now: *const abi::Choice, q: *const abi::Request, payload: u32) -> c_int;
    fn ab_native_spend_race(now: *const abi::Choice, full_ns: u64, now_ns: u64) -> u64;
    fn ab_native_rivals(q: *const abi::Request, first: u32) -> u32;
    fn ab_native_asked_links(q: *const abi::Request, d: *const abi::Decision) -> u32;
    fn ab_native_next_rival(first: u32, step: u32) -> u32;
    fn ab_native_try(link: u32) -> u32;
    fn ab_native_try_link(one: u32) -> u32;
    fn ab_native_tries_at(tries: u32, i: u32) -> u32;
    fn ab_native_tries_race(rivals: u32) -> u32;
    fn ab_native_tries_probe(rivals: u32) -> u32;
    fn ab_native_is_race(tries: u32) -> c_int;
    fn ab_native_waits(tries: u32) -> c_int;
    fn ab_native_tries_are_free(tries: u32) -> c_int;
    #[cfg(test)]
    fn ab_native_tries_claim(tries: u32) -> u32;
    fn ab_native_tries_given_up(tries: u32, next: u32) -> u32;
    fn ab_native_tries_next(tries: u32, current: u32, next: u32) -> u32;
    fn ab_native_tries_judge(tries: u32, current: u32, from: u32) -> u32;
    fn ab_native_tries_answered(tries: u32, current: u32, winner: u32) -> u32;
    fn ab_native_connection_learn(state: u32, by_server: c_int, flags: u8) -> u32;
    fn ab_native_connection_gives_way(state: u32, flags: u8) -> c_int;
    fn ab_native_connection_timer_ns(state: u32) -> u64;
    fn ab_native_witness(of_link: *mut abi::Witnesses, host: u32, end: u32, now_ns: u64) -> i32;

    // Declared with one element: the true number stands beside each.
    static ab_native_reasons: [RawReason; 1];
    static ab_native_reasons_count: usize;
    static ab_native_trunk_reasons: [RawReason; 1];
    static ab_native_trunk_reasons_count: usize;
    static ab_native_service_reasons: [RawReason; 1];
    static ab_native_service_reasons_count: usize;
}

pub fn choose(
    now: &abi::Choice,
    gauges: &abi::Gauges,
    table: &abi::Consistent,
    request: &mut abi::Request,
    tried: u32,
    full: u64,
) -> abi::Decision {
    let mut decision = abi::Decision::default();
    // SAFETY: valid, aligned references to structures generated from the C headers, the request and the decision exclusive.
    unsafe { ab_native_choose(now, gauges, table, request, tried, full, &mut decision) };
    decision
}

pub fn reach(now: &abi::Choice, remote_port: abi::BePort) -> u32 {
    // SAFETY: a valid, aligned reference to a structure generated from the C headers; so in the three below.
    unsafe { ab_native_reach(now, remote_port.0) }
}

pub fn takes_turns(now: &abi::Choice) -> bool {
    // SAFETY: as above.
    unsafe { ab_native_takes_turns(now) != 0 }
}

pub fn judge_syn(now: &abi::Choice, state: u32, is_same: bool, target: u16, tries: u32) -> u32 {
    // SAFETY: as above.
    unsafe { ab_native_judge_syn(now, state, is_same.into(), target.into(), tries) }
}

pub fn tried_with(now: &abi::Choice, tried: u32, target: u16) -> u32 {
    // SAFETY: as above.
    unsafe { ab_native_tried_with(now, tried, target.into()) }
}

pub fn tried(target: u16) -> u32 {
    // SAFETY: an integer in, an integer out.
    unsafe { ab_native_tried(target.into()) }
}

pub fn class_of(rules: &abi::Rules, traits: &abi::Traits) -> u32 {
    // SAFETY: valid, aligned references to structures generated from the C headers.
    unsafe { ab_native_class_of(rules, traits) }
}

pub fn npt(addr: &mut abi::Addr, prefix: &abi::Addr, prefix_len: u32) -> bool {
    // SAFETY: both point to values, which the function reads and writes as such.
    unsafe { ab_native_npt(addr, prefix, prefix_len) != 0 }
}

pub fn flow_hash(src: &abi::Addr, dst: &abi::Addr, sport: abi::BePort, dport: abi::BePort) -> u32 {
    // SAFETY: two valid references to 16 bytes aligned to 4, as `union ab_addr` is.
    unsafe { ab_native_flow_hash(src, dst, sport.0, dport.0) }
}

pub fn hash_for(
    now: &abi::Choice,
    src: &abi::Addr,
    dst: &abi::Addr,
    sport: abi::BePort,
    dport: abi::BePort,
) -> u32 {
    // SAFETY: valid references, that to the choice to a structure generated from the C headers, the two others as above.
    unsafe { ab_native_hash_for(now, src, dst, sport.0, dport.0) }
}

pub fn session_word(hash: u64, link: u16, now_ns: u64) -> u64 {
    // SAFETY: takes numbers.
    unsafe { ab_native_session_word(hash, link.into(), now_ns) }
}

pub fn session_link(now: &abi::Choice, word: u64, hash: u64, now_ns: u64) -> u16 {
    // SAFETY: a valid, aligned reference to a structure generated from the C headers.
    unsafe { ab_native_session_link(now, word, hash, now_ns) as u16 }
}

pub fn trace(lan_key: &abi::FlowKey) -> u32 {
    // SAFETY: a valid, aligned reference to a structure generated from the C headers.
    unsafe { ab_native_trace(lan_key) }
}

pub fn bin(hash: u32) -> u32 {
    // SAFETY: integers in, an integer out.
    unsafe { ab_native_bin(hash) }
}

pub fn sublink_by_hash(hash: u32, usable: u64) -> u16 {
    // SAFETY: integers in, an integer out.
    unsafe { ab_native_sublink_by_hash(hash, usable) }
}

pub fn sublink_by_bin(table: &[u16; abi::BINS], hash: u32, usable: u64) -> u16 {
    // SAFETY: a valid reference to as many sublinks as the function may read.
    unsafe { ab_native_sublink_by_bin(table.as_ptr(), hash, usable) }
}

pub fn sublink_by_rendezvous(sublinks: &abi::Sublinks, hash: u32) -> u16 {
    // SAFETY: a valid, aligned reference to a structure generated from the C headers.
    unsafe { ab_native_sublink_by_rendezvous(sublinks, hash) }
}

#[cfg(test)]
pub fn neg_log2(draw: u32) -> u64 {
    // SAFETY: an integer in, an integer out.
    unsafe { ab_native_neg_log2(draw) }
}

pub fn flowlet_lasts(flowlet: &abi::Flowlet, usable: u64, now_ns: u64, gap_ns: u64) -> bool {
    // SAFETY: a valid, aligned reference to a structure generated from the C headers.
    unsafe { ab_native_flowlet_lasts(flowlet, usable, now_ns, gap_ns) != 0 }
}

pub fn flowlet_send(flowlet: &mut abi::Flowlet, sublink: u16, now_ns: u64) {
    // SAFETY: as above, and exclusive.
    unsafe { ab_native_flowlet_send(flowlet, sublink, now_ns) }
}

pub fn sublink_by_deficit(
    drr: &mut abi::Drr,
    quantum: &[u32; abi::MAX_LINKS],
    count: u32,
    length: u32,
    usable: u64,
) -> u16 {
    // SAFETY: a valid, aligned, exclusive reference to a structure generated from the C headers,
    // and one to as many quanta as the function reads.
    unsafe { ab_native_sublink_by_deficit(drr, quantum.as_ptr(), count, length, usable) }
}

pub fn prefix_of(addr: &abi::Addr) -> abi::Prefix {
    let mut prefix = abi::Prefix::default();
    // SAFETY: valid, aligned references to structures generated from the C headers, that which is written exclusive; so in the
    // three below.
    unsafe { ab_native_prefix_of(&mut prefix, addr) };
    prefix
}

pub fn syn_sent(now_ns: u64) -> u32 {
    // SAFETY: an integer in, an integer out.
    unsafe { ab_native_syn_sent(now_ns) }
}

pub fn learn_answer(now: &abi::Choice, path: &mut abi::Path, sent: u32, now_ns: u64) {
    // SAFETY: as above.
    unsafe { ab_native_learn_answer(now, path, sent, now_ns) }
}

pub fn learn_silence(
    now: &abi::Choice,
    path: &mut abi::Path,
    silence: &mut abi::Silence,
    link: u32,
    sent: u32,
    now_ns: u64,
) {
    // SAFETY: as above.
    unsafe { ab_native_learn_silence(now, path, silence, link, sent, now_ns) }
}

pub fn heeded(now: &abi::Choice, silence: &abi::Silence, fresh: u32, now_ns: u64) -> u32 {
    // SAFETY: as above.
    unsafe { ab_native_heeded(now, silence, fresh, now_ns) }
}

pub fn know(now: &abi::Choice, paths: &abi::Paths, now_ns: u64, tells: bool) -> Known {
    let mut request = abi::Request::default();
    // SAFETY: as above.
    unsafe { ab_native_know(now, paths, &mut request, now_ns, tells.into()) };
    Known {
        fresh: request.fresh,
        unknown: request.unknown,
        untold: request.untold != 0,
        response_us: request.response_us,
        loss: request.loss,
    }
}

pub fn may_race(now: &abi::Choice, request: &abi::Request, payload: u32) -> bool {
    // SAFETY: valid, aligned references to structures generated from the C headers; so in the two below.
    unsafe { ab_native_may_race(now, request, payload) != 0 }
}

pub fn spend_race(now: &abi::Choice, full_ns: u64, now_ns: u64) -> u64 {
    // SAFETY: as above.
    unsafe { ab_native_spend_race(now, full_ns, now_ns) }
}

pub fn asked_links(request: &abi::Request, decision: &abi::Decision) -> u32 {
    // SAFETY: both are initialised; the callee reads them.
    unsafe { ab_native_asked_links(request, decision) }
}

pub fn rivals(request: &abi::Request, first: u16) -> u32 {
    // SAFETY: as above.
    unsafe { ab_native_rivals(request, first.into()) }
}

pub fn next_rival(first: u16, step: u32) -> u16 {
    // SAFETY: integers in, an integer out.
    unsafe { ab_native_next_rival(first.into(), step) as u16 }
}

pub fn one_try(link: u16) -> u32 {
    // SAFETY: integers in, an integer out; so are all of the tries.
    unsafe { ab_native_try(link.into()) }
}

pub fn try_link(one: u32) -> u16 {
    // SAFETY: as above.
    unsafe { ab_native_try_link(one) as u16 }
}

pub fn tries_at(tries: u32, i: u32) -> u32 {
    // SAFETY: as above.
    unsafe { ab_native_tries_at(tries, i) }
}

pub fn tries_race(rivals: u32) -> u32 {
    // SAFETY: as above.
    unsafe { ab_native_tries_race(rivals) }
}

pub fn tries_probe(rivals: u32) -> u32 {
    // SAFETY: as above.
    unsafe { ab_native_tries_probe(rivals) }
}

pub fn waits(tries: u32) -> bool {
    // SAFETY: as above.
    unsafe { ab_native_waits(tries) != 0 }
}

pub fn is_race(tries: u32) -> bool {
    // SAFETY: as above.
    unsafe { ab_native_is_race(tries) != 0 }
}

pub fn tries_are_free(tries: u32) -> bool {
    // SAFETY: as above.
    unsafe { ab_native_tries_are_free(tries) != 0 }
}

#[cfg(test)]
pub fn tries_claim(tries: u32) -> u32 {
    // SAFETY: as above.
    unsafe { ab_native_tries_claim(tries) }
}

pub fn tries_given_up(tries: u32, next: u32) -> u32 {
    // SAFETY: as above.
    unsafe { ab_native_tries_given_up(tries, next) }
}

pub fn tries_next(tries: u32, current: u32, next: u32) -> u32 {
    // SAFETY: as above.
    unsafe { ab_native_tries_next(tries, current, next) }
}

pub fn tries_judge(tries: u32, current: u32, from: u32) -> u32 {
    // SAFETY: as above.
    unsafe { ab_native_tries_judge(tries, current, from) }
}

pub fn witness(of_link: &mut abi::Witnesses, host: u32, end: u32, now_ns: u64) -> i32 {
    // SAFETY: as above.
    unsafe { ab_native_witness(of_link, host, end, now_ns) }
}

pub fn connection_learn(state: u32, by_server: bool, flags: u8) -> u32 {
    // SAFETY: as above.
    unsafe { ab_native_connection_learn(state, by_server.into(), flags) }
}

pub fn connection_gives_way(state: u32, flags: u8) -> bool {
    // SAFETY: as above.
    unsafe { ab_native_connection_gives_way(state, flags) != 0 }
}

pub fn connection_timer_ns(state: u32) -> u64 {
    // SAFETY: as above.
    unsafe { ab_native_connection_timer_ns(state) }
}

pub fn tries_answered(tries: u32, current: u32, winner: u32) -> u32 {
    // SAFETY: as above.
    unsafe { ab_native_tries_answered(tries, current, winner) }
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
