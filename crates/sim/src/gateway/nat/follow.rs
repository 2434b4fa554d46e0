//! Packets of flows that are bound, either way: `bpf/lib/gateway/tcp.h` and `inbound.h`.

use anabranch_core::{LinkId, Time};
use anabranch_policy::Tried;
use anabranch_policy::abi::{
    STATE_CLOSED, STATE_CONFIRMED, STATE_FIN_LOCAL, STATE_FIN_REMOTE, STATE_REPLIED, STATE_ROUTED,
    TCP_ACK, TCP_FIN, TCP_RST, TCP_SYN,
};
use anabranch_policy::tcp::{self, Hearing};

use super::{Heard, NO_ENTRY, Nat, Silent, is_earlier};
use crate::net::{Net, Packet, SideId};
use crate::tcp::{Kind, Segment};

impl Nat {
    /// A packet of the LAN: its link and the connection at the server; none if it belongs to no flow.
    pub(in crate::gateway) fn follow_out(
        &mut self,
        net: &Net,
        opener: SideId,
        segment: &Segment,
        bytes: u32,
    ) -> Option<(LinkId, SideId)> {
        let flags = flags_of(segment.kind);
        let entry = self.entries.get_mut(opener.index())?;
        if entry.opener != opener {
            return None;
        }
        entry.seen = net.now();
        let confirms = !entry.is(STATE_CONFIRMED) && tcp::completes_handshake(entry.state, flags);
        let is_open = entry.tried != Tried::default() || entry.attempt.is_race() || entry.probed;
        // What has ended stays among the unconfirmed flows.
        entry.note(STATE_CONFIRMED, confirms && tcp::may_confirm(entry.state));
        let (link, peer, class) = (entry.link(), entry.peer, entry.class);
        let ends = flags & (TCP_FIN | TCP_RST) != 0
            && !tcp::answers_challenge(entry.state, flags, !is_earlier(segment.number));
        if ends {
            self.follow_end(opener.index(), flags, STATE_FIN_LOCAL);
        }
        if let Some(flow) = net.flow_of(opener).filter(|_| confirms && is_open) {
            self.remember(net, flow, class, link);
        }
        self.count_tx(link, bytes);
        Some((link, peer))
    }

    /// A FIN or RST of one end, of whose FIN the state has this bit.
    fn follow_end(&mut self, place: usize, flags: u8, fin: u32) {
        let entry = &mut self.entries[place];
        entry.note(fin, flags & TCP_FIN != 0);
        if flags & TCP_RST != 0 || tcp::is_finished(entry.state) {
            self.close(place);
        }
    }

    /// A packet from a link (`follow_tcp_in` of bpf/lib/gateway/inbound.h).
    pub(in crate::gateway) fn follow_in(
        &mut self,
        now: Time,
        link: LinkId,
        packet: &Packet,
    ) -> Heard {
        let (place, segment) = (packet.to.index(), &packet.segment);
        let Some(entry) = self.entry(packet.to).copied() else {
            return Heard::Stray;
        };
        let is_own = (entry.peer, entry.link()) == (packet.from, link);
        if !is_own && self.earlier_peer(packet.to, link) != Some(packet.from) {
            return Heard::Stray;
        }
        if entry.attempt.waits() {
            return Heard::Early;
        }
        // A RST ends the flow whatever it is for, and a confirmed flow has its handshake behind it.
        let is_judged = segment.kind != Kind::Rst && !(is_own && entry.is(STATE_CONFIRMED));
        let of_try = if is_own { entry.state } else { 0 };
        let heard = is_judged.then(|| tcp::hear(entry.state, of_try, &arrived(segment)));
        match heard {
            None | Some(Hearing::More) => {}
            Some(Hearing::Answer) if is_own => self.entries[place].note(STATE_REPLIED, true),
            Some(Hearing::Answer | Hearing::Late) => return Heard::Stray,
            Some(Hearing::Earlier) if is_own => return Heard::Challenge,
            Some(_) => return Heard::Early,
        }
        self.hear(now, link, packet, is_own);
        Heard::InFlow
    }

    /// The same from a link without NAT, which judges nothing (`follow_routed_in` of bpf/lib/gateway/inbound.h). Whatever its flow
    /// hears answers it.
    pub(in crate::gateway) fn follow_routed_in(
        &mut self,
        now: Time,
        link: LinkId,
        packet: &Packet,
    ) {
        let Some(entry) = self
            .entry(packet.to)
            .copied()
            .filter(|e| e.is(STATE_ROUTED))
        else {
            return;
        };
        if packet.segment.kind == Kind::SynAck && !entry.is(STATE_REPLIED) {
            let one = self.one_try(&entry, entry.link());
            let choice = &self.choices[entry.class.index()];
            self.told.answer(now, choice, one);
        }
        let is_own = entry.link() == link;
        let replies = packet.segment.kind != Kind::Rst;
        self.entries[packet.to.index()].note(STATE_REPLIED, replies);
        self.hear(now, link, packet, is_own);
    }

    /// A flow hears a packet from a link, its own or not.
    fn hear(&mut self, now: Time, link: LinkId, packet: &Packet, is_own: bool) {
        let (place, segment) = (packet.to.index(), &packet.segment);
        let entry = &mut self.entries[place];
        entry.seen = now;
        let traffic = &mut self.traffic[link.index()];
        traffic.rx_packets += 1;
        traffic.rx_bytes += u64::from(packet.bytes);
        let is_routed = entry.is(STATE_ROUTED);
        let acked = if is_own || is_routed {
            &mut entry.acked
        } else {
            &mut 0
        };
        if segment.ack > *acked && !is_earlier(segment.ack) {
            *acked = segment.ack;
            // What another link without NAT brings says nothing of the one that the flow's packets take.
            traffic.rx_progress += u64::from(is_own || !is_routed);
        }
        if matches!(segment.kind, Kind::Fin | Kind::Rst) {
            self.follow_end(place, flags_of(segment.kind), STATE_FIN_REMOTE);
        }
    }

    /// The host has forgotten the flow. A sweep takes away what it left open.
    pub(in crate::gateway) fn forget(&mut self, opener: SideId) {
        let Some(entry) = self.entry(opener) else {
            return;
        };
        if !entry.is(STATE_CLOSED) {
            let silent = Silent {
                runs_out: entry.seen + tcp::timer(&self.settings, entry.state, false),
                link: entry.link(),
                ends_with_link: tcp::ends_with_link(entry.state),
                class: entry.class,
                charged: entry.charged,
            };
            *self.silent.entry(silent).or_default() += 1;
        }
        self.entries[opener.index()] = NO_ENTRY;
        self.earlier.remove(&opener.index());
        self.told.forget(opener.index());
    }
}

/// As they stand in TCP's header.
fn flags_of(kind: Kind) -> u8 {
    match kind {
        Kind::Syn => TCP_SYN,
        Kind::SynAck => TCP_SYN | TCP_ACK,
        Kind::Data | Kind::Ack => TCP_ACK,
        Kind::Fin => TCP_FIN | TCP_ACK,
        Kind::Rst => TCP_RST,
    }
}

/// A segment of the remote end, as the decision on it has it.
pub(super) fn arrived(segment: &Segment) -> tcp::Segment {
    let flags = flags_of(segment.kind);
    tcp::Segment {
        length: u32::from(segment.payload_bytes) + u32::from(flags & (TCP_SYN | TCP_FIN) != 0),
        flags,
        acks_syn: u8::from(!is_earlier(segment.ack)),
        ..tcp::Segment::default()
    }
}
