//! Tries of a connection attempt, as in bpf/lib/gateway/attempt.h, race_copy.h and held.h: an attempt that goes on over another link,
//! one that races, one that waits for a probe.

use anabranch_core::{LinkId, Time};
use anabranch_policy::abi::{Answer, STATE_CLOSED};
use anabranch_policy::tcp::{self, Hearing};

use super::follow::arrived;
use super::{Entry, Nat};
use crate::net::{Packet, SideId};

/// A SYN-ACK that was the first.
pub(in crate::gateway) struct Won {
    /// Another connection than the attempt's is the flow's from here on.
    pub earlier: bool,
    /// Of a race: the other links, and the connections at the server, which are to be reset.
    pub losing_copies: Vec<(LinkId, SideId)>,
}

impl Nat {
    /// The connection at the server that an earlier try over this link began.
    pub(in crate::gateway) fn earlier_peer(&self, opener: SideId, link: LinkId) -> Option<SideId> {
        let tries = self.earlier.get(&opener.index())?;
        let one = tries.iter().find(|(tried, _)| *tried == link)?;
        Some(one.1)
    }

    /// The attempt goes on over another link; its earlier tries may still answer.
    pub(in crate::gateway) fn go_on(
        &mut self,
        now: Time,
        opener: SideId,
        peer: SideId,
        link: LinkId,
    ) {
        let entry = self.entries[opener.index()];
        if !entry.attempt.others().any(|tried| tried == link.0) {
            let one = self.one_try(&entry, link);
            let choice = &self.choices[entry.class.index()];
            self.told.send(now, choice, one);
        }
        let entry = &mut self.entries[opener.index()];
        let before = (entry.link(), std::mem::replace(&mut entry.peer, peer));
        let given_up = entry.attempt.go_on(link.0).map(LinkId);
        let tries = self.earlier.entry(opener.index()).or_default();
        tries.retain(|(tried, _)| *tried != link && Some(*tried) != given_up);
        tries.push(before);
        if let Some(given_up) = given_up {
            self.told.give_up(opener.index(), given_up);
        }
        self.gauges.target[link.index()].dispatched += 1;
        self.count_move(before.0, link);
        self.reassigned += 1;
    }

    /// The other links of a race that nothing has answered yet, in the order in which its SYN takes them, and the connections
    /// at the server that it began there.
    pub(in crate::gateway) fn race_copies(&self, opener: SideId) -> Vec<(LinkId, Option<SideId>)> {
        let entry = self.entry(opener);
        let races = |entry: &&Entry| {
            entry.attempt.is_race() && entry.attempt.is_open() && !entry.attempt.waits()
        };
        let race = entry.filter(races);
        let links = race.into_iter().flat_map(|entry| entry.attempt.others());
        let links = links.map(LinkId);
        links
            .map(|link| (link, self.earlier_peer(opener, link)))
            .collect()
    }

    /// The SYN of a race takes another link as well, where it has begun this connection.
    pub(in crate::gateway) fn begin_race_copy(
        &mut self,
        opener: SideId,
        link: LinkId,
        peer: SideId,
    ) {
        let tries = self.earlier.entry(opener.index()).or_default();
        tries.retain(|(tried, _)| *tried != link);
        tries.push((link, peer));
        self.gauges.target[link.index()].dispatched += 1;
    }

    /// The links that have a probe each while the SYN waits, as bits; 0: it does not.
    pub(in crate::gateway) fn probes(&self, opener: SideId) -> u64 {
        let entry = self.entry(opener).filter(|entry| entry.attempt.waits());
        entry.map_or(0, |entry| {
            let others = entry.attempt.others();
            others.fold(1 << entry.link().0, |all, link| all | 1 << link)
        })
    }

    /// A probe takes a link, which may be another than the attempt's own.
    pub(in crate::gateway) fn count_probe(&mut self, opener: SideId, link: LinkId, bytes: u32) {
        let is_own = self.entry(opener).is_some_and(|entry| entry.link() == link);
        self.gauges.target[link.index()].dispatched += u64::from(!is_own);
        self.count_tx(link, bytes);
    }

    /// The answer to a probe (`follow_probe` of bpf/lib/gateway/tcp.h). Whether it is the first for a SYN that waits, which is
    /// to take its link now.
    pub(in crate::gateway) fn answer_probe(
        &mut self,
        link: LinkId,
        opener: SideId,
        bytes: u32,
    ) -> bool {
        let is_waited_for = self.probes(opener) >> link.0 & 1 == 1;
        let entry = self.entries.get_mut(opener.index());
        let Some(entry) = entry.filter(|entry| is_waited_for && !entry.is(STATE_CLOSED)) else {
            return false;
        };
        let before = entry.link();
        let is_first = entry.attempt.answer_probe(link.0);
        let traffic = &mut self.traffic[link.index()];
        traffic.rx_packets += 1;
        traffic.rx_bytes += u64::from(bytes);
        traffic.rx_progress += 1;
        if is_first && before != link {
            self.count_move(before, link);
        }
        is_first
    }

    /// A SYN-ACK: what it has won, if it is the first.
    pub(in crate::gateway) fn answer(
        &mut self,
        now: Time,
        link: LinkId,
        packet: &Packet,
    ) -> Option<Won> {
        let (opener, from) = (packet.to, packet.from);
        let earlier = self.earlier_peer(opener, link) == Some(from);
        let place = opener.index();
        let entry = self.entries.get_mut(place)?;
        if entry.opener != opener {
            return None;
        }
        let current = (entry.link(), entry.peer);
        if entry.attempt.waits() || !earlier && current != (link, from) {
            return None;
        }
        if tcp::hear(entry.state, 0, &arrived(&packet.segment)) != Hearing::Answer {
            return None;
        }
        if entry.attempt.answer(link.0) != Answer::First {
            return None;
        }
        entry.peer = from;
        let entry = *entry;
        let one = self.one_try(&entry, link);
        let choice = &self.choices[entry.class.index()];
        self.told.answer(now, choice, one);
        let is_race = entry.attempt.is_race();
        let others = self.earlier.remove(&place).unwrap_or_default();
        if earlier {
            self.count_move(current.0, link);
        }
        let all = others.into_iter().chain([current]);
        let losing_copies: Vec<_> = all.filter(|(lost, _)| is_race && *lost != link).collect();
        for &(lost, peer) in &losing_copies {
            let one = self.one_try(&entry, lost);
            self.told.lose(peer, entry.class, one);
        }
        Some(Won {
            earlier,
            losing_copies,
        })
    }

    /// The connection at the server that a race has begun answers when another has won it (`answers_losing_copy` of
    /// bpf/lib/gateway/tcp.h). If a later attempt of the same ends has that link, the answer is taken for its own.
    pub(in crate::gateway) fn answer_late(&mut self, now: Time, link: LinkId, packet: &Packet) {
        let (opener, from) = (packet.to, packet.from);
        let is_here = |entry: &&Entry| entry.opener != SideId::NOBODY && entry.link() == link;
        let later = self.entries.get(opener.index()).filter(is_here);
        if later.is_some() || self.earlier_peer(opener, link).is_some() {
            return;
        }
        if let Some((class, sent, one)) = self.told.take_losing_copy(from) {
            self.told
                .learn_late(now, &self.choices[class.index()], sent, one);
        }
    }
}
