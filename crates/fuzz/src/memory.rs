//! What the judge remembers of a round: what passed before a packet says what may pass after it.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use anabranch_policy::abi::FlowKey;

use crate::build::End;
use crate::read::{Ip, Segment};
use crate::site::Port;

/// A mapping: protocol, LAN endpoint, and when it began.
type Mapping = (u8, End, u64);

/// A fragmented datagram on one side of the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Datagram {
    link: Option<u16>,
    /// None of IPv6, whose fragments need not tell it (RFC 8200 section 4.5).
    proto: Option<u8>,
    src: IpAddr,
    dst: IpAddr,
    id: u32,
}

impl Datagram {
    fn of(port: Port, ip: &Ip) -> Self {
        Datagram {
            link: match port {
                Port::Lan(_) => None,
                Port::Link(link) => Some(link),
            },
            proto: (!ip.is_ipv6()).then(|| ip.proto()),
            src: ip.src(),
            dst: ip.dst(),
            id: ip.id(),
        }
    }
}

/// Protocol and ports of the first fragments that came, and the id under which the last of them was sent.
#[derive(Clone, Debug, Default)]
struct Begun {
    ports: HashSet<(u8, (u16, u16))>,
    sent_as: Option<u32>,
}

/// One direction of a connection, as its LAN host sees it: from and to.
pub type Stream = (End, End);

/// What the packets of a round have said, as far as a check asks for it.
#[derive(Debug, Default)]
pub struct Memory {
    /// Remote addresses that mappings spoke to.
    spoken: HashSet<(Mapping, IpAddr)>,
    datagrams: HashMap<Datagram, Begun>,
    /// The sequence numbers behind segments that were sent, and what they acknowledged.
    ends: Numbers,
    acks: Numbers,
    /// LAN keys of connections that have ended, and when they began.
    over: HashSet<(FlowKey, u64)>,
    /// SYNs that wait, and where they came.
    held: HashMap<Stream, (Port, Vec<u8>)>,
}

/// Of a packet; none without ports.
pub fn stream(ip: &Ip) -> Option<Stream> {
    let (from, to) = ip.ports()?;
    Some(((ip.src(), from), (ip.dst(), to)))
}

type Numbers = HashMap<Stream, HashSet<u32>>;

/// Whether any of a stream's numbers is as wanted; none is known of a stream that nothing was seen of.
fn any(seen: &Numbers, stream: Stream, is_it: impl Fn(u32) -> bool) -> Option<bool> {
    let numbers = seen.get(&stream)?;
    Some(numbers.iter().any(|&number| is_it(number)))
}

impl Memory {
    /// The LAN host of a mapping sent something to `remote`.
    pub fn speak(&mut self, mapping: Mapping, remote: IpAddr) {
        self.spoken.insert((mapping, remote));
    }

    /// Whether address-dependent filtering lets `remote` speak to a mapping (RFC 4787 REQ-8).
    pub fn hears(&self, mapping: Mapping, remote: IpAddr) -> bool {
        self.spoken.contains(&(mapping, remote))
    }

    /// A packet came that may begin a fragmented datagram, and left like this if it was sent.
    pub fn begin(&mut self, port: Port, came: &Ip, left: Option<&Ip>) {
        let Some(ports) = came.ports() else { return };
        if !came.is_fragment() && !came.may_fragment() {
            return;
        }
        let begun = self.datagrams.entry(Datagram::of(port, came)).or_default();
        begun.ports.insert((came.proto(), ports));
        begun.sent_as = left.filter(|left| left.is_fragment()).map(Ip::id);
    }

    /// The protocols and ports that a later fragment may be of.
    pub fn ports_of(&self, port: Port, later: &Ip) -> impl Iterator<Item = (u8, (u16, u16))> {
        let begun = self.datagrams.get(&Datagram::of(port, later));
        begun
            .into_iter()
            .flat_map(|begun| begun.ports.iter().copied())
    }

    /// The id its first fragment was sent under.
    pub fn id_of(&self, port: Port, later: &Ip) -> Option<u32> {
        self.datagrams.get(&Datagram::of(port, later))?.sent_as
    }

    /// A segment has left for the internet.
    pub fn send(&mut self, stream: Stream, segment: &Segment) {
        self.ends.entry(stream).or_default().insert(segment.end);
        if let Some(ack) = segment.ack {
            self.acks.entry(stream).or_default().insert(ack);
        }
    }

    /// Whether what comes behind `seq` may have been sent, so that it is quoted or acknowledged (RFC 5927 section 4.1): not
    /// if all that is known of the stream comes before.
    pub fn may_be_sent(&self, stream: Stream, seq: u32) -> bool {
        // Half of all numbers, and one for a keepalive.
        let is_behind = |end: u32| end.wrapping_sub(seq) <= (1 << 31) + 1;
        any(&self.ends, stream, is_behind).unwrap_or(true)
    }

    /// Whether a RST is what the sender of `stream` expects next, or answers its SYN (RFC 5961 section 3).
    pub fn is_exact(&self, stream: Stream, rst: &Segment) -> bool {
        let is_next = any(&self.acks, stream, |ack| ack == rst.seq);
        let answer = rst
            .ack
            .and_then(|ack| any(&self.ends, stream, |end| end == ack));
        is_next.or(answer).is_none() || is_next == Some(true) || answer == Some(true)
    }

    /// A SYN waits.
    pub fn hold(&mut self, ends: Stream, port: Port, syn: &[u8]) {
        self.held.insert(ends, (port, syn.to_vec()));
    }

    /// The SYN that has waited between these ends, and where it came.
    pub fn held(&self, ends: Stream) -> Option<(Port, &[u8])> {
        self.held.get(&ends).map(|(port, syn)| (*port, &syn[..]))
    }

    /// A connection has ended. Whether that is news.
    pub fn end(&mut self, lan_key: FlowKey, opened_ns: u64) -> bool {
        self.over.insert((lan_key, opened_ns))
    }
}
