//! What a packet of the LAN asks for, until its flow is bound: `bpf/lib/gateway/outbound.h` and `open.h`.

use anabranch_core::{ClassId, LinkId, Opening as Opened, Time};
use anabranch_policy::abi::STATE_ROUTED;
use anabranch_policy::tries::Attempt;
use anabranch_policy::{
    Granularity, NO_TABLE, Request, Syn, Tried, Why, Without, choose_and_race, session_word,
};

use super::{Begun, Entry, NO_ENTRY, NO_HASH, Nat, OWN, Opening, Pair, Session, Settled, grow};
use crate::net::{FlowId, Net, SideId};
use crate::tcp::Kind;

/// A choice that was made.
#[derive(Clone, Copy, Debug)]
struct Chosen {
    link: LinkId,
    /// That the SYN takes as well, as bits.
    race_copies: u32,
    /// Probes take them, and the SYN waits.
    waits: bool,
    /// What no other flow is to ask of its destination's prefix: links, as bits.
    asked: u32,
}

impl Nat {
    /// Whether what is no SYN may begin a flow: its host has one that is not known here, as after the end of a link.
    pub(in crate::gateway) fn may_join(&self, opener: SideId) -> bool {
        self.routed != 0 && self.entry(opener).is_none()
    }

    /// A SYN of the LAN, or a packet that may join (`settle_tcp` of bpf/lib/gateway/outbound.h).
    pub(in crate::gateway) fn settle(&mut self, net: &Net, flow: FlowId, kind: Kind) -> Settled {
        match kind {
            Kind::Syn => self.settle_syn(net, flow),
            Kind::Rst if !self.is_per_packet(self.opening(flow).class) => Settled::Unknown,
            _ => self.open(net, flow, Tried::default(), !self.routed, false),
        }
    }

    /// A SYN of the LAN (`settle_syn` of bpf/lib/gateway/outbound.h).
    fn settle_syn(&mut self, net: &Net, flow: FlowId) -> Settled {
        let (opener, _) = net.sides(flow);
        let Some(entry) = self.entry(opener).copied() else {
            return self.open(net, flow, Tried::default(), 0, true);
        };
        let is_of_other = self.opening(flow).class != entry.class;
        let choice = &self.choices[entry.class.index()];
        match choice.judge_syn(entry.state, !entry.joined, &entry.attempt) {
            Syn::Again | Syn::GoesOn if is_of_other => {
                self.begin_anew(net, flow, entry, Tried::default())
            }
            Syn::Follows => Settled::Bound,
            Syn::Again => {
                self.repeat(net.now(), flow, &entry);
                match entry.attempt.is_race() && self.take_race(net.now(), entry.class) {
                    true => Settled::Again,
                    false => Settled::Bound,
                }
            }
            Syn::GoesOn => {
                self.repeat(net.now(), flow, &entry);
                self.leave(net, flow, entry)
            }
            Syn::Anew => {
                self.close(opener.index());
                self.entries[opener.index()] = NO_ENTRY;
                self.open(net, flow, Tried::default(), 0, !entry.attempt.waits())
            }
        }
    }

    /// A SYN that nothing has answered is repeated (`count_syn_retry` of bpf/lib/gateway/outbound.h).
    fn repeat(&mut self, now: Time, flow: FlowId, entry: &Entry) {
        let Pair { user, server } = self.opening(flow).pair;
        let link = entry.link().index();
        let news = self.witnesses[link].repeat(user, server, now.as_nanos());
        let traffic = &mut self.traffic[link];
        traffic.syn_retries += 1;
        traffic.retrying_hosts += u64::from(news.host);
        traffic.retried_ends += u64::from(news.end);
        let others = entry.attempt.others().map(LinkId);
        let race_copies = others.filter(|_| entry.attempt.is_race());
        for link in race_copies.chain([entry.link()]) {
            let one = self.one_try(entry, link);
            let choice = &self.choices[entry.class.index()];
            self.told.repeat(now, choice, one);
        }
    }

    /// An attempt that nothing answered is forgotten for one outside the links `tried`: by the rules of today it is of another
    /// class (`judge_syn` of bpf/lib/gateway/outbound.h), or it goes on where its address is another.
    fn begin_anew(&mut self, net: &Net, flow: FlowId, entry: Entry, tried: Tried) -> Settled {
        let place = entry.opener.index();
        let mut tries = self.earlier.remove(&place).unwrap_or_default();
        tries.push((self.side_of(entry.link()), entry.peer));
        self.close(place);
        self.entries[place] = NO_ENTRY;
        let known = |side: LinkId| {
            let one = tries.iter().find(|(tried, _)| *tried == side);
            one.map(|(_, peer)| *peer)
        };
        match self.open(net, flow, tried, 0, true) {
            Settled::Fresh(begun) => {
                let side = self.side_of(begun.link);
                if let Some(own) = known(OWN).filter(|_| side != OWN) {
                    self.earlier.insert(place, vec![(OWN, own)]);
                }
                Settled::Anew(begun, known(side))
            }
            Settled::Alone(link) => Settled::AloneAnew(link, known(OWN)),
            settled => settled,
        }
    }

    fn is_per_packet(&self, class: ClassId) -> bool {
        self.choice(class).granularity == u32::from(Granularity::Packet)
    }

    /// A packet of a class that keeps no flows (`route_by_itself` of bpf/lib/gateway/route.h).
    fn send_alone(&mut self, net: &Net, flow: FlowId, class: ClassId) -> Settled {
        if self.routed == 0 {
            return self.without_link(class);
        }
        let chosen = self.choose(net, flow, class, Tried::default(), !self.routed, false);
        match chosen.filter(|chosen| self.is_routed(chosen.link)) {
            Some(Chosen { link, .. }) => Settled::Alone(link),
            None => self.without_link(class),
        }
    }

    /// What goes over a link by itself.
    pub(in crate::gateway) fn count_alone(&mut self, link: LinkId, bytes: u32) {
        self.gauges.target[link.index()].dispatched += 1;
        self.count_tx(link, bytes);
    }

    /// A new flow outside the links `tried`, and outside those of `barred` whatever else is left, which may race or not.
    fn open(
        &mut self,
        net: &Net,
        flow: FlowId,
        tried: Tried,
        barred: u64,
        may_race: bool,
    ) -> Settled {
        let Opening { class, pair, .. } = self.opening(flow);
        if self.is_per_packet(class) {
            return self.send_alone(net, flow, class);
        }
        let quota = self.choice(class).flows_per_host;
        let held = self.shares.get(&(class, pair.user)).copied();
        if quota > 0 && held.unwrap_or_default() >= quota {
            return Settled::NoLink;
        }
        let may_race = may_race && self.routed == 0;
        let Some(chosen) = self.choose(net, flow, class, tried, barred, may_race) else {
            return self.without_link(class);
        };
        let Chosen {
            link,
            race_copies,
            waits,
            ..
        } = chosen;
        if barred >> link.0 & 1 == 1 {
            return Settled::Unknown;
        }
        self.note_asked(net, flow, chosen);
        self.note_opening(flow, class);
        self.remember(net, flow, class, link);
        Settled::Fresh(Begun {
            class,
            link,
            race_copies,
            waits,
            tried,
            joins: barred != 0,
        })
    }

    /// What becomes of a flow for which its class has no link (`reason_without_link` of bpf/lib/gateway/open.h).
    fn without_link(&self, class: ClassId) -> Settled {
        match Without::try_from(self.choice(class).without) {
            Ok(Without::Drop) => Settled::Dropped,
            _ => Settled::NoLink,
        }
    }

    /// The attempt goes on elsewhere, if there is a link for it (`go_on` of bpf/lib/gateway/outbound.h).
    fn leave(&mut self, net: &Net, flow: FlowId, entry: Entry) -> Settled {
        let link = entry.link();
        let tried = self.choice(entry.class).tried_with(entry.tried, link.0);
        let mark = self.draws.mark();
        let Some(chosen) = self.choose(net, flow, entry.class, tried, 0, false) else {
            return self.without_link(entry.class);
        };
        let next = chosen.link;
        if self.is_routed(link) != self.is_routed(next) {
            self.draws.repeat(mark);
            return self.begin_anew(net, flow, entry, tried);
        }
        self.note_asked(net, flow, chosen);
        let place = &mut self.entries[entry.opener.index()];
        (place.tried, place.probed) = (tried, false);
        match next == link {
            true => Settled::Bound,
            false if self.is_routed(link) => self.move_over(entry, next),
            false => Settled::Onward(next),
        }
    }

    /// To the server, nothing happens.
    fn move_over(&mut self, entry: Entry, next: LinkId) -> Settled {
        self.entries[entry.opener.index()].attempt = Attempt::new(next.0);
        self.gauges.target[next.index()].dispatched += 1;
        self.count_move(entry.link(), next);
        self.reassigned += 1;
        Settled::Bound
    }

    /// Whether a class has a race left, which is then gone (`bpf/policy/race.h`).
    fn take_race(&mut self, now: Time, class: ClassId) -> bool {
        let full_ns = self.races.get(&class).copied().unwrap_or_default();
        let next = self.choice(class).spend_race(full_ns, now.as_nanos());
        next.map(|next| self.races.insert(class, next)).is_some()
    }

    /// No other flow asks what this one is to tell (`note_asked` of bpf/lib/gateway/paths.h).
    fn note_asked(&mut self, net: &Net, flow: FlowId, chosen: Chosen) {
        let prefix = self.opening(flow).prefix;
        self.told.ask(net.now(), prefix, chosen.asked);
    }

    /// Who surveys hears of it (`report_opening` of bpf/lib/gateway/survey.h).
    fn note_opening(&mut self, flow: FlowId, class: ClassId) {
        if let Some(to) = self
            .opening(flow)
            .to
            .filter(|_| self.choice(class).surveys != 0)
        {
            self.opened.push(Opened { class, to });
        }
    }

    /// The link of a new flow (`choose_link` of bpf/lib/gateway/open.h), which may race or not. Those of `avoided` it takes if no
    /// other is left.
    fn choose(
        &mut self,
        net: &Net,
        flow: FlowId,
        class: ClassId,
        tried: Tried,
        avoided: u64,
        may_race: bool,
    ) -> Option<Chosen> {
        let choice = self.choices.get(class.index()).unwrap_or(&self.choices[0]);
        let known = |session| {
            let word = *self.sessions.get(&session)?;
            choice.session_link(word, NO_HASH, net.now().as_nanos())
        };
        let session = self.session(flow, class).and_then(known);
        let (user, prefix) = self.between(flow);
        let route = self.table.as_ref().map(|table| table.link(user, prefix).0);
        let mut request = Request {
            tried,
            full: avoided,
            route,
            hash: net.label(flow),
            session,
            known: self
                .told
                .know(net.now(), choice, (user, prefix), avoided == 0),
            ..Request::default()
        };
        if may_race && choice.may_race(&request, 0) {
            request.race = self.take_race(net.now(), class);
        }
        let choice = self.choices.get(class.index()).unwrap_or(&self.choices[0]);
        request.draw = self.draws.next(class, choice, request.race);
        let (decision, race_copies, asked) =
            choose_and_race(choice, &self.gauges, &NO_TABLE, &request);
        Some(Chosen {
            link: LinkId(decision.target?),
            race_copies,
            waits: decision.why == Why::Probed,
            asked: if request.known.tells() { asked } else { 0 },
        })
    }

    /// What binds the flows of a pair, or of a user, to one link.
    fn session(&self, flow: FlowId, class: ClassId) -> Option<Session> {
        let Opening { pair, port, .. } = self.opening(flow);
        match self.choice(class).reach(port) {
            Granularity::Connection | Granularity::Packet => None,
            Granularity::Session => Some((class, pair.user, Some(pair.server))),
            Granularity::Host => Some((class, pair.user, None)),
        }
    }

    pub(super) fn remember(&mut self, net: &Net, flow: FlowId, class: ClassId, link: LinkId) {
        if let Some(session) = self.session(flow, class) {
            let word = session_word(NO_HASH, link.0, net.now().as_nanos());
            self.sessions.insert(session, word);
        }
    }

    pub(in crate::gateway) fn bind(&mut self, net: &Net, flow: FlowId, begun: Begun) {
        let Begun { class, link, .. } = begun;
        let (opener, peer) = net.sides(flow);
        let has_quota = self.choice(class).flows_per_host > 0;
        let charged = has_quota.then(|| self.opening(flow).pair.user);
        if let Some(user) = charged {
            *self.shares.entry((class, user)).or_default() += 1;
        }
        grow(&mut self.entries, opener.index(), NO_ENTRY);
        let entry = Entry {
            opener,
            peer,
            attempt: match begun.race_copies {
                0 => Attempt::new(link.0),
                race_copies if begun.waits => Attempt::probe(link.0, race_copies),
                race_copies => Attempt::race(link.0, race_copies),
            },
            state: if self.is_routed(link) {
                STATE_ROUTED
            } else {
                0
            },
            class,
            prefix: self.opening(flow).prefix,
            user: self.opening(flow).pair.user,
            charged,
            tried: begun.tried,
            joined: begun.joins,
            probed: begun.waits,
            seen: net.now(),
            ..NO_ENTRY
        };
        self.entries[opener.index()] = entry;
        self.send_syns(net.now(), &entry);
        let gauge = &mut self.gauges.target[link.index()];
        gauge.dispatched += 1;
        gauge.opened += 1;
    }

    /// The SYN of a flow that was bound takes its link, or all those of its race.
    fn send_syns(&mut self, now: Time, entry: &Entry) {
        self.told.forget(entry.opener.index());
        let links = entry.attempt.others().map(LinkId);
        let tells = !entry.joined && !entry.probed;
        for link in links.chain([entry.link()]).filter(|_| tells) {
            let one = self.one_try(entry, link);
            let choice = &self.choices[entry.class.index()];
            self.told.send(now, choice, one);
        }
    }
}
