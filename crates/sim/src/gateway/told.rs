//! What flows tell of the way to their destinations, as bpf/lib/gateway/paths.h has it. Here no prefix has to make room for
//! another.

use std::collections::BTreeMap;

use anabranch_core::{ClassId, LinkId, Time};
use anabranch_policy::abi::Choice;
use anabranch_policy::paths::{Known, Paths, Prefix, Silence, syn_sent};

use crate::net::SideId;

/// As many as the programs remember.
const LOSING_COPIES_MAX: usize = 4096;

/// A SYN over one link.
#[derive(Clone, Copy, Debug)]
pub(super) struct Try {
    /// Of its opener.
    pub place: usize,
    /// What tells it from the others of its attempt.
    pub side: LinkId,
    /// That it takes.
    pub link: LinkId,
    /// That it goes to.
    pub prefix: Prefix,
    /// Whose it is.
    pub user: u32,
}

/// What was told, and what the SYNs that are under way will tell.
#[derive(Debug, Default)]
pub(super) struct Told {
    prefixes: BTreeMap<Prefix, Paths>,
    /// What users have met on the way to a prefix.
    silences: BTreeMap<(u32, Prefix), Silence>,
    /// When the SYN of a try took its link: by its place and side. What was sent
    /// twice is not among them.
    sent: BTreeMap<(usize, LinkId), u32>,
    /// Of tries that lost a race, by their connection at the server, which will answer them all the same: class and time of
    /// their SYN.
    lost: BTreeMap<SideId, (ClassId, u32, Try)>,
}

impl Told {
    pub(super) fn paths(&self, prefix: Prefix) -> Option<&Paths> {
        self.prefixes.get(&prefix)
    }

    /// What a choice knows of a prefix for a flow of a user; `tells`: the answer of its SYN will tell.
    pub(super) fn know(&self, now: Time, choice: &Choice, of: (u32, Prefix), tells: bool) -> Known {
        let tells = tells && choice.surveys == 0;
        let mut known = choice.know(self.paths(of.1), now.as_nanos(), tells);
        if let Some(silence) = self.silences.get(&of) {
            choice.heed(&mut known, silence, now.as_nanos());
        }
        known
    }

    /// A flow is to tell of these links, as bits.
    pub(super) fn ask(&mut self, now: Time, prefix: Prefix, links: u32) {
        let Some(paths) = self.prefixes.get_mut(&prefix).filter(|_| links != 0) else {
            return;
        };
        for (link, path) in paths.path.iter_mut().enumerate() {
            if links >> link & 1 == 1 {
                path.asked_ns = now.as_nanos();
            }
        }
    }

    /// The SYN of a try takes its link, for the first time.
    pub(super) fn send(&mut self, now: Time, choice: &Choice, one: Try) {
        if choice.learns() && choice.surveys == 0 {
            let sent = syn_sent(now.as_nanos());
            self.sent.insert((one.place, one.side), sent);
        }
    }

    /// A try is the first of its attempt to be answered.
    pub(super) fn answer(&mut self, now: Time, choice: &Choice, one: Try) {
        if let Some(sent) = self.sent.remove(&(one.place, one.side)) {
            self.learn(now, choice, sent, one);
        }
    }

    /// The SYN that a try sent at `sent`, of [`syn_sent`], has been answered.
    pub(super) fn learn(&mut self, now: Time, choice: &Choice, sent: u32, one: Try) {
        self.learn_of(now, choice, sent, (one.prefix, one.link));
    }

    /// The same of a losing try, which tells nothing of a prefix that is not known: it no longer counts for a host.
    pub(super) fn learn_late(&mut self, now: Time, choice: &Choice, sent: u32, one: Try) {
        if self.prefixes.contains_key(&one.prefix) {
            self.learn(now, choice, sent, one);
        }
    }

    /// What took a link to a prefix at `sent` has been answered.
    pub(super) fn learn_of(
        &mut self,
        now: Time,
        choice: &Choice,
        sent: u32,
        (prefix, link): (Prefix, LinkId),
    ) {
        if choice.learns() {
            let paths = self.prefixes.entry(prefix).or_default();
            let path = &mut paths.path[link.index()];
            choice.learn_answer(path, sent, now.as_nanos());
        }
    }

    /// Another try of its race was answered first. `peer` is the connection at the server that this one began.
    pub(super) fn lose(&mut self, peer: SideId, class: ClassId, one: Try) {
        if let Some(sent) = self.sent.remove(&(one.place, one.side)) {
            self.lost.insert(peer, (class, sent, one));
        }
        if self.lost.len() > LOSING_COPIES_MAX {
            self.lost.pop_first();
        }
    }

    /// What that was, which is now answered.
    pub(super) fn take_losing_copy(&mut self, peer: SideId) -> Option<(ClassId, u32, Try)> {
        self.lost.remove(&peer)
    }

    /// Its SYN is repeated before it was answered.
    pub(super) fn repeat(&mut self, now: Time, choice: &Choice, one: Try) {
        if !choice.learns() {
            return;
        }
        let sent = self.sent.remove(&(one.place, one.side));
        if let Some((sent, paths)) = sent.zip(self.prefixes.get_mut(&one.prefix)) {
            let path = &mut paths.path[one.link.index()];
            let silence = self.silences.entry((one.user, one.prefix)).or_default();
            choice.learn_silence(path, silence, one.link.0, sent, now.as_nanos());
        }
    }

    /// A try is given up.
    pub(super) fn give_up(&mut self, place: usize, side: LinkId) {
        self.sent.remove(&(place, side));
    }

    /// So are all of the opener at `place`.
    pub(super) fn forget(&mut self, place: usize) {
        let all = (place, LinkId(0))..=(place, LinkId(u16::MAX));
        let tries: Vec<_> = self.sent.range(all).map(|(one, _)| *one).collect();
        for one in tries {
            self.sent.remove(&one);
        }
    }
}
