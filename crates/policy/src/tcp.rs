//! What a segment does to the state of a TCP flow of the gateway: `bpf/policy/tcp.h` behind a safe API.
//!
//! A state is a set of bits, `abi::STATE_*`. Numbers are compared before, by whoever follows them.

use std::time::Duration;

use crate::abi::Settings;
pub use crate::abi::{Hearing, Segment};
use crate::ffi;

/// Whether a flow in this state may be confirmed.
pub fn may_confirm(state: u32) -> bool {
    ffi::ab_may_confirm(state)
}

/// Whether a segment of the LAN host with these flags shows that the handshake has gone both ways.
pub fn completes_handshake(state: u32, flags: u8) -> bool {
    ffi::ab_completes_handshake(state, flags)
}

/// Whether a segment of the LAN host with these flags answers a challenge. `is_of_flow`: the flow's SYN, or what follows it, occupies
/// its number.
pub fn answers_challenge(state: u32, flags: u8, is_of_flow: bool) -> bool {
    ffi::ab_answers_challenge(state, flags, is_of_flow)
}

/// Whether both ends have sent FIN.
pub fn is_finished(state: u32) -> bool {
    ffi::ab_is_finished(state)
}

/// What a segment of the remote end is to a flow in `state` whose handshake is not known to have gone both ways. `of_try`: the state of
/// the try that it is for.
pub fn hear(state: u32, of_try: u32, segment: &Segment) -> Hearing {
    Hearing::try_from(ffi::ab_hear(state, of_try, segment))
        .expect("tcp.h and the enumeration know the same")
}

/// How long nothing may be seen of a flow before it is forgotten. `is_pressed`: the table has no room for flows that are over.
pub fn timer(settings: &Settings, state: u32, is_pressed: bool) -> Duration {
    Duration::from_nanos(ffi::ab_tcp_timer_ns(settings, state, is_pressed))
}

/// Whether a flow ends with its link.
pub fn ends_with_link(state: u32) -> bool {
    ffi::ab_ends_with_link(state)
}

/// Whether the host of a flow is told that it ends with its link.
pub fn is_told_of_end(state: u32) -> bool {
    ffi::ab_is_told_of_end(state)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::abi::{
        PRESSED_CLOSED_NS, STATE_CLOSED, STATE_CONFIRMED, STATE_FIN_LOCAL, STATE_FIN_REMOTE,
        STATE_LEAVING, STATE_REPLIED, STATE_ROUTED, TCP_ACK as ACK, TCP_FIN as FIN, TCP_RST as RST,
        TCP_SYN as SYN,
    };

    const SYN_ACK: Segment = Segment {
        length: 1,
        flags: SYN | ACK,
        acks_syn: 1,
        follows_syn: 0,
        zero: 0,
    };
    const DATA: Segment = Segment {
        length: 100,
        flags: ACK,
        ..SYN_ACK
    };

    /// It acknowledges nothing that the host has sent.
    fn foreign(segment: Segment) -> Segment {
        Segment {
            acks_syn: 0,
            ..segment
        }
    }

    #[test]
    fn a_handshake_goes_both_ways() {
        assert_eq!(hear(0, 0, &DATA), Hearing::Nothing);
        assert_eq!(hear(0, 0, &SYN_ACK), Hearing::Answer);
        assert!(!completes_handshake(0, ACK) && !completes_handshake(STATE_REPLIED, SYN));
        assert!(completes_handshake(STATE_REPLIED, ACK));
        assert_eq!(hear(STATE_REPLIED, STATE_REPLIED, &DATA), Hearing::More);
        assert_eq!(hear(STATE_REPLIED, 0, &DATA), Hearing::Nothing);
        assert_eq!(hear(STATE_REPLIED, 0, &SYN_ACK), Hearing::Answer);
    }

    #[test]
    fn a_remote_end_may_begin_as_well() {
        let syn = Segment {
            flags: SYN,
            ..foreign(SYN_ACK)
        };
        assert_eq!(hear(0, 0, &syn), Hearing::Syn);
        let next = Segment {
            follows_syn: 1,
            ..DATA
        };
        assert_eq!(hear(0, 0, &next), Hearing::Answer);
    }

    #[test]
    fn an_answer_to_what_has_ended_is_late() {
        assert_eq!(hear(STATE_CLOSED, 0, &SYN_ACK), Hearing::Late);
        let answered = STATE_CLOSED | STATE_REPLIED;
        assert_eq!(hear(answered, answered, &SYN_ACK), Hearing::Answer);
    }

    #[test]
    fn a_challenge_is_of_an_attempt_and_its_answer_is_none_of_the_flow() {
        let bare = Segment {
            length: 0,
            ..foreign(DATA)
        };
        assert_eq!(hear(0, 0, &foreign(SYN_ACK)), Hearing::Guard);
        assert_eq!(hear(0, 0, &bare), Hearing::Earlier);
        for segment in [SYN_ACK, bare, DATA].map(foreign) {
            assert_eq!(
                hear(STATE_REPLIED, STATE_REPLIED, &segment),
                Hearing::Nothing
            );
        }
        let byte = Segment { length: 1, ..bare };
        assert_eq!(hear(0, 0, &byte), Hearing::Nothing);
        assert!(answers_challenge(0, RST, false));
        assert!(!answers_challenge(0, RST, true) && !answers_challenge(0, FIN, false));
        assert!(!answers_challenge(STATE_REPLIED, RST, false));
        assert!(!answers_challenge(STATE_ROUTED, RST, false));
    }

    #[test]
    fn the_timer_is_that_of_how_far_a_flow_has_come() {
        let settings = Settings {
            unconfirmed_ns: 3,
            tcp_transitory_ns: 4,
            tcp_established_ns: 5,
            ..Settings::default()
        };
        let ns = |state, is_pressed| timer(&settings, state, is_pressed).as_nanos() as u64;
        let over = STATE_CONFIRMED | STATE_CLOSED;
        assert_eq!((ns(0, true), ns(STATE_CLOSED, false)), (3, 3));
        assert_eq!((ns(STATE_CONFIRMED, true), ns(over, false)), (5, 4));
        assert_eq!(ns(over, true), PRESSED_CLOSED_NS);
        assert_eq!(ns(STATE_CLOSED, true), PRESSED_CLOSED_NS);
    }

    proptest! {
        #[test]
        fn nothing_confirms_what_is_over_and_nobody_is_told_of_its_end(state in any::<u32>()) {
            let is = |bits| state & bits == bits;
            let is_settled = is(STATE_CONFIRMED) || is(STATE_CLOSED) || is(STATE_LEAVING);
            prop_assert_eq!(may_confirm(state), !is_settled);
            prop_assert_eq!(is_finished(state), is(STATE_FIN_LOCAL) && is(STATE_FIN_REMOTE));
            prop_assert_eq!(ends_with_link(state), is(STATE_CONFIRMED) || is(STATE_ROUTED));
            prop_assert_eq!(is_told_of_end(state), !is(STATE_CLOSED) && !is(STATE_ROUTED));
        }
    }
}
