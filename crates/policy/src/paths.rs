//! What flows tell of the way to their destinations: for each prefix and link how long a SYN waits for its SYN/ACK, and which link a
//! flow takes by that. All of it is `bpf/policy/paths.h`, which has the idea.

use std::cmp::Ordering;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::abi::{self, Choice, Family};
use crate::ffi;

pub use crate::known::Known;
pub use abi::{Path, Paths, Prefix, Silence};

impl Known {
    /// Whether the flow that asks will tell.
    pub fn tells(&self) -> bool {
        self.untold || self.unknown != 0
    }
}

impl Choice {
    /// What a class knows at `now_ns` of the destination of a flow, of which `paths` is what flows have told. `tells`: it begins
    /// with a SYN, whose answer will tell.
    pub fn know(&self, paths: Option<&Paths>, now_ns: u64, tells: bool) -> Known {
        match paths.filter(|_| self.learns()) {
            Some(paths) => {
                let mut request = abi::Request::default();
                ffi::ab_know(self, paths, &mut request, now_ns, tells);
                Known {
                    fresh: request.fresh,
                    unknown: request.unknown,
                    untold: request.untold != 0,
                    response_us: request.response_us,
                    loss: request.loss,
                }
            }
            None => Known {
                untold: tells && self.learns(),
                ..Known::default()
            },
        }
    }

    /// Whether flows of the class tell anything.
    pub fn learns(&self) -> bool {
        self.lifetime_ns != 0
    }

    /// The SYN that took a link when [`syn_sent`] said `sent`, and at no other time, has been answered.
    pub fn learn_answer(&self, path: &mut Path, sent: u32, now_ns: u64) {
        ffi::ab_learn_answer(self, path, sent, now_ns);
    }

    /// The same SYN, which took `link`, has not been answered, and is repeated. `silence` is its host's.
    pub fn learn_silence(
        &self,
        path: &mut Path,
        silence: &mut Silence,
        link: u16,
        sent: u32,
        now_ns: u64,
    ) {
        ffi::ab_learn_silence(self, path, silence, link.into(), sent, now_ns);
    }

    /// What a flow of the host of `silence` goes by, of what is known.
    pub fn heed(&self, known: &mut Known, silence: &Silence, now_ns: u64) {
        known.fresh = ffi::ab_heeded(self, silence, known.fresh, now_ns);
    }
}

/// When a SYN takes a link, in a word that is never 0.
pub fn syn_sent(now_ns: u64) -> u32 {
    ffi::ab_syn_sent(now_ns)
}

impl Prefix {
    /// Of no address that anybody goes to.
    pub const NONE: Prefix = Prefix {
        byte: [0; 6],
        family: 0,
        zero: 0,
    };

    /// Of which `address` is.
    pub fn of(address: IpAddr) -> Prefix {
        let mut prefix = Prefix::default();
        ffi::ab_prefix_of(&mut prefix, &address.into());
        prefix
    }

    /// The first address and the number of leading bits.
    fn parts(&self) -> (IpAddr, u32) {
        let byte = self.byte;
        if self.family == Family::V4 as u8 {
            return (Ipv4Addr::new(byte[0], byte[1], byte[2], 0).into(), 24);
        }
        let word = |at: usize| u16::from_be_bytes([byte[at], byte[at + 1]]);
        let first = Ipv6Addr::new(word(0), word(2), word(4), 0, 0, 0, 0, 0);
        (first.into(), 48)
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (address, length) = self.parts();
        write!(f, "{address}/{length}")
    }
}

impl Ord for Prefix {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.family, self.byte).cmp(&(other.family, other.byte))
    }
}

impl PartialOrd for Prefix {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
