//! What may become of a packet, from the standards and not from the programs: the judge of every single outcome.
//!
//! A packet that was sent must be the one that came in but for what translation changes: one endpoint, one hop, the id
//! where the packet may be fragmented, the label of an IPv6 packet that leaves, a clamped MSS, and the checksums, which are recomputed from scratch. A wrong
//! checksum must stay exactly as wrong. A packet left to the kernel is untouched, and the kernel must be the one to
//! have it.

use std::net::IpAddr;

use anabranch_policy::{Fate, Reason, abi};

use crate::build::{ACK, End, GATEWAY_MAC, SYN};
use crate::memory::{Memory, stream};
use crate::read::{ETHERNET, Ip, TCP, UDP, ether_type};
use crate::rig::{Action, Outcome, Rig};
use crate::script::to_hex;
use crate::shares::Limit;
use crate::site::*;
use crate::sum;

/// What is wrong, for people.
pub type Verdict = Result<(), String>;

fn wrong(what: impl Into<String>) -> Verdict {
    Err(what.into())
}

macro_rules! demand {
    ($holds:expr, $($words:tt)*) => {
        if !$holds {
            return Err(format!($($words)*));
        }
    };
}

mod ends;
mod errors;
mod prefixes;
mod probes;
mod same;

/// Of the LAN devices, as the gateway is told.
const LAN_MTU: u32 = 1500;

/// Which endpoint changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Out,
    In,
}

impl Way {
    fn back(self) -> Self {
        match self {
            Way::Out => Way::In,
            Way::In => Way::Out,
        }
    }
}

/// Judges what became of `input`, which arrived at `port`.
pub fn check(
    rig: &Rig,
    memory: &mut Memory,
    port: Port,
    input: &[u8],
    outcome: &Outcome,
) -> Verdict {
    let Some(reason) = outcome.reason() else {
        let named = outcome
            .reasons
            .iter()
            .map(|&number| anabranch_policy::reasons()[number].name);
        let named: Vec<_> = named.collect();
        return wrong(format!("{:?} is no fate of {named:?}", outcome.action));
    };
    let mut case = Case {
        rig,
        memory,
        port,
        input,
        output: &outcome.frame,
        reason,
        is_hairpinned: outcome.is_hairpinned,
        is_returned: outcome.is_returned,
        is_well_marked: outcome.is_well_marked,
    };
    case.remember();
    let ended = case.may_end();
    let verdict = match (outcome.action, reason.fate) {
        (Action::Drop, _) => Ok(()),
        (Action::Pass, _) => case.passed(),
        (_, Fate::Refused) if reason.name == "PROBE_ANSWERED" => case.released(),
        (_, Fate::Refused) => case.answered(),
        _ => case.sent(),
    };
    let verdict = verdict.and_then(|()| case.limited()).and(ended);
    verdict.map_err(|words| format!("{port}, {}: {words}", reason.name))
}

struct Case<'a> {
    rig: &'a Rig,
    memory: &'a mut Memory,
    port: Port,
    input: &'a [u8],
    output: &'a [u8],
    reason: &'static Reason,
    is_hairpinned: bool,
    is_returned: bool,
    is_well_marked: bool,
}

impl<'a> Case<'a> {
    fn came(&self) -> Result<Ip<'a>, String> {
        let offset = self.port.header();
        let is_ip = |ip: &Ip| offset == 0 || self.input[12..14] == ether_type(ip.is_ipv6());
        let ip = Ip::of(&self.input[offset..]).filter(is_ip);
        let ip = ip.ok_or("what is no whole IP packet was taken for one")?;
        demand_sum(&ip, "the packet that came")?;
        Ok(ip)
    }

    fn left(&self) -> Result<Ip<'a>, String> {
        let is_bare = self.port.header() == 0 && self.is_returned;
        let offset = if is_bare { 0 } else { ETHERNET };
        // The room before a packet of a layer-3 link is written to when its neighbour is resolved.
        let is_bare = self.port.header() == 0;
        let is_ip = |ip: &Ip| is_bare || self.output[12..14] == ether_type(ip.is_ipv6());
        let ip = Ip::of(&self.output[offset..]).filter(is_ip);
        let ip = ip.ok_or("what left is no whole IP packet")?;
        demand_sum(&ip, "the packet that left")?;
        Ok(ip)
    }

    /// What the packet says of those that follow it. A mapping may hear who its host spoke to, whatever became of the packet.
    fn remember(&mut self) {
        let Ok(came) = self.came() else { return };
        let is_sent = self.reason.fate == Fate::Sent;
        let left = is_sent.then(|| self.left().ok()).flatten();
        self.memory.begin(self.port, &came, left.as_ref());
        let seen = match self.port {
            Port::Lan(_) => Some(&came),
            Port::Link(_) => left.as_ref(),
        };
        let sent = seen.and_then(stream);
        if let (Some(stream), Some(segment)) = (sent, came.segment()) {
            self.memory.send(stream, &segment);
        }
        let is_of_mapping = came.proto() != TCP && !came.is_icmp_error();
        if let (Port::Lan(_), true) = (self.port, is_of_mapping) {
            self.remember_remote(&came);
        }
    }

    /// A later fragment speaks, too, and may begin a mapping where its first fragment's has ended.
    fn remember_remote(&mut self, came: &Ip) {
        let begun: Vec<_> = self.memory.ports_of(self.port, came).collect();
        let flows = came
            .ports()
            .map_or(begun, |ports| vec![(came.proto(), ports)]);
        for (proto, ports) in flows {
            let (local, remote) = ends(Way::Out, came, ports);
            if let Ok(flow) = self.flow(proto, local, remote) {
                let mapping = (proto, local, flow.opened_ns);
                self.memory.speak(mapping, remote.0);
            }
        }
    }

    /// Passing with a source of the LAN is leaving, unless the packet is the kernel's own or its NAT takes it.
    fn passed(&self) -> Verdict {
        demand!(self.output == self.input, "left to the kernel, but changed");
        demand!(
            self.is_well_marked,
            "left to the kernel with a mark that says nothing"
        );
        let lan = matches!(self.port, Port::Lan(_));
        match self.reason.name {
            "NOT_IP" => {
                let kind = self.input.get(12..14).filter(|_| self.port.header() > 0);
                let is_ip = [false, true].map(|is_ipv6| kind == Some(&ether_type(is_ipv6)));
                demand!(is_ip == [false; 2], "it is IP");
            }
            "TAGGED" => {}
            "SPECIFIC_ROUTE" if lan => {
                let came = self.came()?;
                let to = came.dst();
                demand!(is_kernels(to), "{to} is the internet's");
                let is_of_line = came.is_neighbour() && is_never_forwarded(came.src());
                if !is_never_forwarded(to) && !is_of_line {
                    self.demand_lan_source(&came)?;
                }
            }
            // The fallback's NAT translates or refuses it: shown by the packets sent for real.
            name if lan && name.starts_with("FALLBACK_") => {
                demand!(self.rig.told.fallback, "the kernel's NAT is not there");
            }
            "FORWARD_IN" | "FORWARD_OUT" => {
                demand!(self.rig.told.forwards, "the kernel has no forwards");
            }
            "OTHER_HOST" => {
                let is_ours = self.input.starts_with(&GATEWAY_MAC);
                demand!(!is_ours, "it is for the device's own address");
            }
            "DHCP" => {
                let came = self.came()?;
                let ports = came.ports().filter(|_| came.proto() == UDP);
                demand!(
                    matches!(ports, Some((67, 68) | (547, 546))),
                    "it is no answer of a DHCP server"
                );
                demand!(
                    lan || lan_of(came.dst()).is_none(),
                    "a client in the LAN is none of the host's"
                );
            }
            "STRAY" | "NO_FLOW_IN" | "OTHER_PROTOCOL" | "TRANSIT_IN" if !lan => {
                let ip = self.came()?;
                // The kernel takes no packet that claims one of its own addresses (RFC 1812 section 5.3.7).
                let (from, to) = (ip.src(), ip.dst());
                let own = |address| family_of(address).gateway.contains(&address);
                demand!(
                    own(from) || lan_of(from).is_none(),
                    "its source is of the LAN"
                );
                demand!(lan_of(to).is_none(), "it is for the LAN");
            }
            _ => return wrong("the checker knows no rule by which the kernel may have it"),
        }
        Ok(())
    }

    /// A limit is held against who has reached it, and nobody else.
    fn limited(&self) -> Verdict {
        let reached = match self.reason.name {
            "REFUSED_QUOTA" => self.is_at(&[Limit::Quota]),
            "REFUSED_MAPPINGS" => self.is_at(&[Limit::Mappings]),
            "REFUSED_DEVICE" => self.is_at(&[Limit::Device]),
            "FALLBACK_QUOTA" => self.is_at(&[Limit::Quota, Limit::Mappings, Limit::Device]),
            "REFUSED_UNCONFIRMED" => self.is_at(&[Limit::Unconfirmed]),
            "REFUSED_FULL" => self.is_at(&[Limit::Table]),
            "FALLBACK_FULL" => self.is_at(&[Limit::Unconfirmed, Limit::Table]),
            "REFUSED_HOSTS" => self.is_at(&[Limit::Hosts]),
            "REFUSED_PORTS" | "FALLBACK_PORTS" => self.rig.told.ports > 0,
            "NO_LINK" => self.rig.told.usable == 0,
            "REFUSED_RATE_HOST" => self.is_at(&[Limit::Fallbacks]),
            "UNKNOWN_RATE" => self.is_at(&[Limit::Unknown]),
            "REFUSED_RATE_ALL" => self.is_at(&[Limit::AllFallbacks]),
            _ => true,
        };
        demand!(reached, "a limit that its sender has not reached");
        Ok(())
    }

    /// Whether the sender has reached one of these.
    fn is_at(&self, limits: &[Limit]) -> bool {
        let sender = self.rig.sender(self.port, self.input);
        sender.is_some_and(|host| limits.iter().any(|&limit| self.rig.is_at(&host, limit)))
    }

    fn sent(&mut self) -> Verdict {
        match (self.port, self.reason.name) {
            (Port::Lan(_), "TRANSLATED_OUT" | "HAIRPIN") => self.translated(Way::Out),
            (Port::Lan(_), "PROBE_OUT") => self.probed(),
            (Port::Link(_), "TRANSLATED_IN") => self.translated(Way::In),
            (Port::Link(_), "HAIRPIN_SYN") => self.called(),
            (Port::Link(_), "CHALLENGE") => self.challenged(),
            (Port::Lan(_), "ERROR_OUT") => self.error(Way::Out),
            (Port::Link(_), "ERROR_IN") => self.error(Way::In),
            _ => wrong("the checker knows no rule by which it may be sent"),
        }
    }

    fn key(&self, proto: u8, local: End, remote: End) -> abi::FlowKey {
        let mut key = abi::FlowKey {
            local: local.0.into(),
            local_port: abi::BePort::new(local.1),
            proto,
            side: match self.port {
                Port::Lan(_) => abi::SIDE_LAN,
                Port::Link(link) => abi::side_of_link(link),
            },
            ..Default::default()
        };
        if proto == TCP {
            key.remote = remote.0.into();
            key.remote_port = abi::BePort::new(remote.1);
        }
        key
    }

    /// The flow of `local` and `remote` on this side.
    fn flow(&self, proto: u8, local: End, remote: End) -> Result<abi::Flow, String> {
        let flow = self.rig.find(&self.key(proto, local, remote));
        flow.ok_or_else(|| format!("sent, but there is no flow of {local:?} with {remote:?}"))
    }

    /// The changed endpoint is what the flow's entry says, and of the right side.
    fn demand_end(&self, way: Way, flow: &abi::Flow, end: End) -> Verdict {
        let told = (flow.other_local.ip(), flow.other_port.get());
        demand!(
            told == end,
            "the flow stands for {told:?}, but {end:?} was written"
        );
        match way {
            Way::Out => demand!(
                link_of(end.0) == Some(flow.link.into()),
                "{} is not the address of link {}",
                end.0,
                flow.link
            ),
            Way::In => demand!(lan_of(end.0).is_some(), "{} is not of the LAN", end.0),
        }
        Ok(())
    }

    /// A host has the link's address there, or its own with the prefix of the link; then its port stays, too.
    fn demand_external(&self, host: End, external: End) -> Verdict {
        let link = link_of(external.0).ok_or("it is no address of a link")?;
        let prefix = self.rig.told.prefix_of(link);
        let own = family_of(external.0).external[usize::from(link)];
        let kept = match (host.0, prefix) {
            (IpAddr::V6(host), Some(prefix)) => prefixes::translated(host, prefix),
            _ => None,
        };
        match kept {
            Some(kept) => demand!(
                (IpAddr::V6(kept), host.1) == external,
                "{host:?} is {kept} there, not {external:?}"
            ),
            None => demand!(
                external.0 == own,
                "{host:?} is {own} there, not {external:?}"
            ),
        }
        Ok(())
    }

    fn translated(&self, way: Way) -> Verdict {
        let (came, left) = (self.came()?, self.left()?);
        let address = changed_address(way, &left);
        self.demand_lan_source(&came)?;
        demand_hop(&came, &left)?;
        match (came.ports(), left.ports()) {
            (Some(from), Some(to)) => self.of_flow(way, &came, from, (address, end_of(way, to)))?,
            (None, None) if came.is_later_fragment() => self.of_datagram(way, &came, &left)?,
            _ => return wrong("sent without ports to find its flow by"),
        }
        let fixed_id = way == Way::In || (!came.may_fragment() && !came.is_fragment());
        demand!(!fixed_id || came.id() == left.id(), "the id changed");
        let mtu = match way {
            Way::Out => link_of(address).map(|link| self.rig.told.mtu[usize::from(link)]),
            Way::In => Some(LAN_MTU),
        };
        self.is_the_same(way, &came, &left, mtu)
    }

    /// What a LAN device brings is from there.
    fn demand_lan_source(&self, came: &Ip) -> Verdict {
        let Port::Lan(lan) = self.port else {
            return Ok(());
        };
        let from = came.src();
        let on = lan_of(from);
        // A router may report with any of its addresses.
        let is_loose = self.rig.told.loose || came.is_icmp_error();
        let is_there = on == Some(lan) || (on.is_some() && is_loose);
        demand!(is_there, "{from} is of another LAN device, or of none");
        Ok(())
    }

    /// Its flow has the end that was written, and lets it pass.
    fn of_flow(&self, way: Way, came: &Ip, from: (u16, u16), end: End) -> Verdict {
        let (local, remote) = ends(way, came, from);
        let flow = self.flow(came.proto(), local, remote)?;
        self.demand_end(way, &flow, end)?;
        if way == Way::In {
            return self.may_speak(came, &flow, end);
        }
        self.demand_external(local, end)?;
        let is_usable = self.rig.told.usable >> flow.link & 1 == 1;
        let is_call = flow.state & abi::STATE_HAIRPIN != 0;
        demand!(is_usable || is_call, "link {} takes no flows", flow.link);
        let is_kept = flow.state & abi::STATE_PREFIX != 0;
        let is_given = !came.is_icmp() && end.1 != 0 && !is_kept;
        demand!(
            !is_given || !self.rig.told.reserved().contains(&end.1),
            "port {} is reserved",
            end.1
        );
        Ok(())
    }

    /// Nobody on a link has an address of ours (RFC 2827), and a mapping hears whom its host spoke to.
    fn may_speak(&self, came: &Ip, flow: &abi::Flow, local: End) -> Verdict {
        if self.is_hairpinned {
            return Ok(());
        }
        let from = came.src();
        let is_ours = lan_of(from).is_some() || link_of(from).is_some();
        demand!(!is_ours, "{from} is not on a link");
        demand!(!is_never_forwarded(from), "{from} is nobody's to the LAN");
        let is_open = self.rig.told.udp_open && came.proto() == UDP;
        let mapping = (came.proto(), local, flow.opened_ns);
        let hears = is_open || came.proto() == TCP || self.memory.hears(mapping, from);
        demand!(hears, "{local:?} never spoke to {from}");
        let segment = came.segment().filter(|segment| segment.flags & SYN != 0);
        let answer = segment.and_then(|segment| segment.ack);
        // What answers no SYN of the flow's is its host's to judge, and binds nothing.
        let is_young = flow.state & abi::STATE_CONFIRMED == 0 && self.reason.name != "CHALLENGE";
        let stream = (local, (from, came.ports().map_or(0, |(port, _)| port)));
        demand!(
            !is_young || answer.is_none_or(|ack| self.memory.may_be_sent(stream, ack)),
            "{answer:?} is not what the SYN of {stream:?} is answered with: {:?}",
            self.rig.find(&self.key(TCP, stream.0, stream.1))
        );
        Ok(())
    }

    /// A later fragment goes where its first does, under the same id.
    fn of_datagram(&self, way: Way, came: &Ip, left: &Ip) -> Verdict {
        let address = changed_address(way, left);
        let mut begun = self.memory.ports_of(self.port, came);
        let is_begun = begun.any(|(proto, from)| {
            let (local, remote) = ends(way, came, from);
            let flow = self.flow(proto, local, remote);
            flow.is_ok_and(|flow| {
                self.demand_end(way, &flow, (address, flow.other_port.get()))
                    .is_ok()
            })
        });
        demand!(is_begun, "{address}: not that of its first fragment");
        let id = self.memory.id_of(self.port, came);
        let is_same = id.is_none_or(|id| id == left.id());
        demand!(is_same, "id {}, its first fragment's is {id:?}", left.id());
        Ok(())
    }

    /// The SYN of one LAN host to an endpoint that another stands for, though they have no flow.
    fn called(&self) -> Verdict {
        let (came, left) = (self.came()?, self.left()?);
        demand_hop(&came, &left)?;
        demand!(
            came.flags().is_some_and(|flags| flags & 0x12 == 2),
            "it is no SYN"
        );
        demand!(link_of(came.src()).is_some(), "from outside");
        let ports = came.ports().zip(left.ports());
        let ((_, outer), (_, inner)) = ports.ok_or("it has no ports")?;
        demand!(
            self.rig
                .stands_for((came.dst(), outer), (left.dst(), inner)),
            "{}:{inner} does not stand for it",
            left.dst()
        );
        self.is_the_same(Way::In, &came, &left, Some(LAN_MTU))
    }

    /// A bare ACK to a SYN that nothing has answered (RFC 9293 section 3.10.7.4), or a SYN/ACK that acknowledges another number.
    fn challenged(&self) -> Verdict {
        let came = self.came()?;
        let says = came.segment().ok_or("it is no segment")?;
        let occupied = says.end.wrapping_sub(says.seq);
        let answers = [(ACK, 0), (SYN | ACK, 1)].contains(&(says.flags & 0x17, occupied));
        demand!(answers, "{says:?} is neither a bare ACK nor a SYN/ACK");
        let ports = came.ports().ok_or("it has no ports")?;
        let (local, remote) = ends(Way::In, &came, ports);
        let flow = self.flow(TCP, local, remote)?;
        let has_heard = abi::STATE_CONFIRMED | abi::STATE_REPLIED | abi::STATE_CLOSED;
        demand!(flow.state & has_heard == 0, "its SYN was answered");
        self.translated(Way::In)
    }

    /// What the gateway says itself: an ICMP error about the packet, or a RST in the remote end's name.
    fn answered(&self) -> Verdict {
        let (came, left) = (self.came()?, self.left()?);
        demand!(left.dst() == came.src(), "answered to {}", left.dst());
        demand!(
            sum::transport(&left) == Some(0xffff),
            "the answer's checksum is wrong"
        );
        let turned = [&self.input[6..12], &self.input[..6]].concat();
        demand!(
            self.port.header() == 0 || self.output[..12] == turned,
            "answered to another device"
        );
        if left.proto() == TCP {
            demand!(left.src() == came.dst(), "a RST from {}", left.src());
            demand!(
                left.flags().is_some_and(|flags| flags & !0x10 == 4),
                "no RST"
            );
            let turned = came.ports().map(|(from, to)| (to, from));
            demand!(left.ports() == turned, "a RST between other ports");
            return Ok(());
        }
        let is_own = match self.port {
            Port::Lan(lan) => left.src() == family_of(came.src()).gateway[usize::from(lan)],
            Port::Link(link) => link_of(left.src()) == Some(link),
        };
        demand!(is_own, "answered as {}", left.src());
        demand!(left.is_icmp_error(), "an answer that is no ICMP error");
        demand!(
            !came.is_icmp_error() && !came.is_later_fragment(),
            "answered what must not be"
        );
        let quoted = &left.body()[8..];
        let whole = came.length().min(came.header() + 8);
        demand!(quoted.len() >= whole, "quotes too little");
        // Room for an answer is made behind what a test run takes for an Ethernet header, on a layer-3 link as well.
        let behind = ETHERNET - self.port.header();
        demand!(
            came.bytes[behind..].starts_with(&quoted[behind..]),
            "quotes what did not come"
        );
        Ok(())
    }
}

fn demand_sum(ip: &Ip, what: &str) -> Verdict {
    let holds = ip.is_ipv6() || sum::sum(&ip.bytes[..ip.header()]) == 0xffff;
    demand!(holds, "{what} has a wrong IP checksum");
    Ok(())
}

fn demand_hop(came: &Ip, left: &Ip) -> Verdict {
    let (before, after) = (came.ttl(), left.ttl());
    demand!(
        before > 1 && after == before - 1,
        "TTL {before} became {after}"
    );
    Ok(())
}

/// Local and remote end of a packet with these ports.
fn ends(way: Way, ip: &Ip, (from, to): (u16, u16)) -> (End, End) {
    match way {
        Way::Out => ((ip.src(), from), (ip.dst(), to)),
        Way::In => ((ip.dst(), to), (ip.src(), from)),
    }
}

fn end_of(way: Way, (from, to): (u16, u16)) -> u16 {
    match way {
        Way::Out => from,
        Way::In => to,
    }
}

fn changed_address(way: Way, ip: &Ip) -> IpAddr {
    match way {
        Way::Out => ip.src(),
        Way::In => ip.dst(),
    }
}

/// What the kernel says on the line itself.
fn is_of_line(ip: &Ip) -> bool {
    ip.is_ipv6() && (is_never_forwarded(ip.src()) || is_never_forwarded(ip.dst()))
}

/// What a clone looked like when it left by a device.
pub fn check_clone(port: Port, frame: &[u8]) -> Verdict {
    let kinds = [false, true].map(ether_type);
    let has_ethernet = kinds.iter().any(|kind| frame.get(12..14) == Some(kind));
    if !has_ethernet && port.header() > 0 {
        return Ok(());
    }
    let offset = if has_ethernet { ETHERNET } else { 0 };
    let ip = Ip::of(&frame[offset..]).ok_or(format!("{port}: no whole IP packet left"))?;
    demand_sum(&ip, "a clone")?;
    match port {
        Port::Link(link) => demand!(
            link_of(ip.src()) == Some(link) || is_of_line(&ip),
            "{port}: a clone left with source {}: {}",
            ip.src(),
            to_hex(frame)
        ),
        Port::Lan(lan) => demand!(
            lan_of(ip.dst()) == Some(lan) || (ip.is_ipv6() && is_never_forwarded(ip.dst())),
            "{port}: a clone left for {}: {}",
            ip.dst(),
            to_hex(frame)
        ),
    }
    Ok(())
}
