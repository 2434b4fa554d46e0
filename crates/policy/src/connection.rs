//! What a segment does to the state of a service's connection: `bpf/policy/connection.h` behind a safe API.
//!
//! A state is a set of bits, `abi::CONNECTION_*`. Bits are never taken away: what is over gives way to the first SYN of another.

use std::time::Duration;

use crate::ffi;

/// Who has sent a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    /// The client.
    Client,
    /// Its server.
    Server,
}

/// `state` after a segment with these TCP flags.
pub fn after(state: u32, sender: Sender, flags: u8) -> u32 {
    state | ffi::ab_connection_learn(state, sender == Sender::Server, flags)
}

/// Whether a segment with these TCP flags, of the client, begins another connection in its place.
pub fn gives_way(state: u32, flags: u8, server_takes_new: bool, server_failed: bool) -> bool {
    ffi::ab_connection_gives_way(state, flags, server_takes_new, server_failed)
}

/// Whether a RST of a client's with this number is its own, where the server has acknowledged `acked`.
pub fn is_reset(state: u32, number: u32, acked: u32) -> bool {
    ffi::ab_connection_is_reset(state, number, acked)
}

/// Whether a client's segment that acknowledges up to this number establishes its connection, or has no need to; `reached` is that of
/// the server's next.
pub fn is_confirmed(state: u32, number: u32, reached: u32) -> bool {
    ffi::ab_connection_is_confirmed(state, number, reached)
}

/// `state` after a datagram of UDP.
pub fn after_datagram(state: u32, sender: Sender) -> u32 {
    state | ffi::ab_connection_learn_udp(state, sender == Sender::Server)
}

/// `state` after a client's own segment where those of the server are not seen.
pub fn after_direct(state: u32, flags: u8) -> u32 {
    state | ffi::ab_connection_learn_direct(state, flags)
}

/// Whether a client's segment with this number is its own, where `reached` is that of its next.
pub fn is_near(number: u32, reached: u32) -> bool {
    ffi::ab_connection_is_near(number, reached)
}

/// Whether it may have to make room for others.
pub fn is_passing(state: u32) -> bool {
    ffi::ab_connection_is_passing(state)
}

/// How long nothing may be seen of a connection of this IP protocol before it is forgotten.
pub fn timer(protocol: u8, state: u32) -> Duration {
    Duration::from_nanos(ffi::ab_connection_timer_ns(protocol, state))
}

/// When the bucket of a service that opens `per_s` connections a second is full again after one more at `now_ns`, if it is full at
/// `full_ns` without that; none if no more may be opened: `ab_take_token` of `bpf/policy/bucket.h`.
pub fn take_token(per_s: u32, full_ns: u64, now_ns: u64) -> Option<u64> {
    Some(ffi::ab_take_token(per_s, full_ns, now_ns)).filter(|next| *next != 0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::abi::{
        CONNECTION_ANSWERED, CONNECTION_CLOSED, CONNECTION_ESTABLISHED, CONNECTION_FIN_CLIENT,
        CONNECTION_FIN_SERVER, TCP_ACK as ACK, TCP_FIN as FIN, TCP_RST as RST, TCP_SYN as SYN,
    };

    const TCP: u8 = 6;
    const UDP: u8 = 17;

    fn run(segments: &[(Sender, u8)]) -> u32 {
        let segments = segments.iter();
        segments.fold(0, |state, &(sender, flags)| after(state, sender, flags))
    }

    #[test]
    fn a_handshake_establishes_and_two_fins_close() {
        use Sender::{Client, Server};
        let shaken = [(Client, SYN), (Server, SYN | ACK), (Client, ACK)];
        assert_eq!(run(&shaken), CONNECTION_ANSWERED | CONNECTION_ESTABLISHED);
        let half = [&shaken[..], &[(Client, FIN | ACK)]].concat();
        assert_eq!(run(&half) & CONNECTION_CLOSED, 0);
        let whole = [&half[..], &[(Server, FIN | ACK)]].concat();
        assert_ne!(run(&whole) & CONNECTION_CLOSED, 0);
        assert!(gives_way(run(&whole), SYN, true, false));
        assert!(!gives_way(run(&half), SYN, false, false));
        assert!(gives_way(run(&half), SYN, false, true));
        assert!(!gives_way(run(&whole), SYN | ACK, false, true));
        assert!(timer(TCP, run(&whole)) < timer(TCP, run(&shaken)));
    }

    #[test]
    fn a_client_of_udp_that_goes_on_after_an_answer_is_kept_longer_than_one_question() {
        let run = |senders: &[Sender]| {
            let senders = senders.iter();
            senders.fold(0, |state, &sender| after_datagram(state, sender))
        };
        use Sender::{Client, Server};
        let asked = timer(UDP, run(&[Client, Client, Client]));
        assert_eq!(timer(UDP, run(&[Client, Server, Server])), asked);
        assert!(timer(UDP, run(&[Client, Server, Client])) > asked);
    }

    #[test]
    fn nothing_but_an_answer_lets_a_client_establish() {
        let unanswered = [(Sender::Client, SYN), (Sender::Client, ACK)];
        assert_eq!(run(&unanswered), 0);
    }

    #[test]
    fn a_syn_without_an_answer_is_free_to_leave_a_server_that_takes_no_more() {
        let unanswered = run(&[(Sender::Client, SYN)]);
        assert!(gives_way(unanswered, SYN, false, false));
        assert!(!gives_way(unanswered, SYN, true, false));
        assert!(!gives_way(unanswered, ACK, false, true));
        let answered = after(unanswered, Sender::Server, SYN | ACK);
        assert!(!gives_way(answered, SYN, false, false));
    }

    #[test]
    fn a_reset_counts_at_the_number_that_the_server_waits_for_and_a_little_behind() {
        let answered = CONNECTION_ANSWERED;
        for (state, number, is_reset_now) in [
            (0, 7, true),
            (answered, 1000, true),
            (answered, 1000 + 0xffff, true),
            (answered, 1000 + 0x1_0000, false),
            (answered, 999, false),
            (answered | CONNECTION_ESTABLISHED, 1 << 31, false),
        ] {
            assert_eq!(is_reset(state, number, 1000), is_reset_now, "{number}");
        }
        assert!(is_reset(answered, 5, u32::MAX));
    }

    #[test]
    fn a_direct_connection_is_established_when_the_client_goes_on_and_over_by_its_fin_or_reset() {
        let run = |flags: &[u8]| {
            flags
                .iter()
                .fold(0, |state, flags| after_direct(state, *flags))
        };
        assert_eq!(run(&[SYN, SYN]), 0);
        let established = CONNECTION_ANSWERED | CONNECTION_ESTABLISHED;
        assert_eq!(run(&[SYN, ACK]), established);
        for end in [FIN | ACK, RST] {
            assert_eq!(run(&[SYN, ACK, end]), established | CONNECTION_CLOSED);
        }
        assert!(is_near(1000, 1000) && is_near(0, 1000) && is_near(9, u32::MAX));
        assert!(!is_near(1000 + 0x1_0001, 1000) && !is_near(1 << 31, 1000));
    }

    proptest! {
        #[test]
        fn bits_are_kept_and_a_connection_is_closed_by_a_reset_or_by_both(
            segments in proptest::collection::vec((any::<bool>(), 0u8..64), 0..20)
        ) {
            let mut state = 0;
            for &(by_server, flags) in &segments {
                let sender = if by_server { Sender::Server } else { Sender::Client };
                let next = after(state, sender, flags);
                prop_assert_eq!(next & state, state);
                state = next;
            }
            let was_reset = segments.iter().any(|&(_, flags)| flags & RST != 0);
            let both = CONNECTION_FIN_CLIENT | CONNECTION_FIN_SERVER;
            let is_closed = state & CONNECTION_CLOSED != 0;
            prop_assert_eq!(is_closed, was_reset || state & both == both);
        }
    }
}
