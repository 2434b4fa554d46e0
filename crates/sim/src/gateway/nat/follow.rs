//! Packets of flows that are bound, either way: `bpf/lib/gateway/tcp.h` and `inbound.h`.

use anabranch_core::{LinkId, Time};
use anabranch_policy::Tried;
use anabranch_policy::abi::{
    STATE_CLOSED, STATE_CONFIRMED, STATE_FIN_LOCAL, STATE_FIN_REMOTE, STATE_REPLIED, STATE_ROUTED,
};

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
        let kind = segment.kind;
        let entry = self.entries.get_mut(opener.index())?;
        if entry.opener != opener {
            return None;
        }
        entry.seen = net.now();
        let confirms = entry.is(STATE_REPLIED) && !entry.is(STATE_CONFIRMED) && kind != Kind::Syn;
        let is_open = entry.tried != Tried::default() || entry.attempt.is_race() || entry.probed;
        let moved = confirms && is_open;
        // What has ended stays among the embryos.
        entry.note(STATE_CONFIRMED, confirms && !entry.is(STATE_CLOSED));
        entry.note(STATE_FIN_LOCAL, kind == Kind::Fin);
        let (link, peer) = (entry.link(), entry.peer);
        let is_of_flow = entry.state & (STATE_REPLIED | STATE_ROUTED) != 0;
        let resets = kind == Kind::Rst && (is_of_flow || !is_earlier(segment.number));
        let over = entry.is(STATE_FIN_LOCAL | STATE_FIN_REMOTE) || resets;
        let class = entry.class;
        if let Some(flow) = net.flow_of(opener).filter(|_| moved) {
            self.remember(net, flow, class, link);
        }
        self.count_tx(link, bytes);
        if over {
            self.close(opener.index());
        }
        Some((link, peer))
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
        match segment.kind {
            _ if entry.attempt.waits() => return Heard::Early,
            Kind::Rst => {}
            Kind::SynAck if is_own && !entry.is_refused() => {}
            Kind::SynAck => return Heard::Stray,
            _ if is_own && entry.has_heard(segment) => {}
            Kind::Ack if is_own && entry.is_challenged(segment) => return Heard::Challenge,
            _ => return Heard::Early,
        }
        self.entries[place].note(STATE_REPLIED, segment.kind == Kind::SynAck);
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
        entry.note(STATE_FIN_REMOTE, segment.kind == Kind::Fin);
        let over = entry.is(STATE_FIN_LOCAL | STATE_FIN_REMOTE) || segment.kind == Kind::Rst;
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
        if over {
            self.close(place);
        }
    }

    /// The host has forgotten the flow. A sweep takes away what it left open.
    pub(in crate::gateway) fn forget(&mut self, opener: SideId) {
        let Some(entry) = self.entry(opener) else {
            return;
        };
        if !entry.is(STATE_CLOSED) {
            let silent = Silent {
                runs_out: entry.seen + entry.timer(),
                link: entry.link(),
                confirmed: entry.is(STATE_CONFIRMED),
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
