//! What the daemon asks of the gateway: rules, choices, counters, and the end of flows.

use std::collections::BTreeMap;

use anabranch_core::{ClassId, Ended, LinkCounters, LinkId, Opening as Opened, Question, Time};
use anabranch_peers::Table;
use anabranch_policy::abi::{Choice, STATE_CLOSED};
use anabranch_policy::paths::{Prefix, syn_sent};
use anabranch_policy::{PerFamily, Rules, tcp};

use super::{NO_ENTRY, Nat, grow};
use crate::gateway::FAMILY;
use crate::net::Net;
use crate::tcp::{Kind, Segment};

impl Nat {
    pub(in crate::gateway) fn install(&mut self, class: ClassId, choice: &Choice) {
        grow(&mut self.choices, class.index(), Choice::default());
        self.choices[class.index()] = *choice;
    }

    /// Routes that bind new flows, of classes of any choice.
    pub(in crate::gateway) fn set_table(&mut self, table: Option<Table>) {
        self.table = table;
    }

    /// Which class new flows are of.
    pub fn set_rules(&mut self, rules: Box<Rules>) {
        self.rules = rules;
    }

    pub(in crate::gateway) fn counters(&mut self, now: Time) -> Vec<LinkCounters> {
        while let Some(first) = self.silent.first_entry().filter(|e| e.key().runs_out < now) {
            let (silent, flows) = first.remove_entry();
            self.gauges.target[silent.link.index()].closed += flows;
            self.release(silent.class, silent.charged, flows as u32);
        }
        let all = self.traffic.iter().zip(&self.gauges.target);
        all.map(|(&traffic, &flows)| LinkCounters {
            traffic: PerFamily::only(FAMILY, traffic),
            flows,
        })
        .collect()
    }

    /// Those that are open; a handshake under way moves with its next SYN. One without NAT is forgotten, and what its host sends
    /// next joins another link (`end_entry` of bpf/lib/gateway/sweep.h).
    pub(in crate::gateway) fn end_flows(
        &mut self,
        net: &mut Net,
        class: ClassId,
        link: LinkId,
    ) -> Ended {
        let mut ended = Ended::default();
        for place in 0..self.entries.len() {
            let entry = self.entries[place];
            let is_there = (entry.class, entry.link()) == (class, link);
            if !is_there || !tcp::ends_with_link(entry.state) {
                continue;
            }
            if tcp::is_told_of_end(entry.state) {
                ended.tcp += 1;
                net.tell(Segment::bare(Kind::Rst), entry.peer, entry.opener);
            } else if !entry.is(STATE_CLOSED) {
                ended.udp += 1;
            }
            self.close(place);
            self.entries[place] = NO_ENTRY;
        }
        let silent = self.end_silent(class, link);
        match self.is_routed(link) {
            true => ended.udp += silent,
            false => ended.tcp += silent,
        }
        ended
    }

    /// The same of those whose host went away: how many there were.
    fn end_silent(&mut self, class: ClassId, link: LinkId) -> u64 {
        let (gone, stays): (BTreeMap<_, _>, _) = std::mem::take(&mut self.silent)
            .into_iter()
            .partition(|(it, _)| it.ends_with_link && (it.class, it.link) == (class, link));
        self.silent = stays;
        for (silent, flows) in &gone {
            self.release(silent.class, silent.charged, *flows as u32);
        }
        let ended = gone.values().sum();
        self.gauges.target[link.index()].closed += ended;
        ended
    }

    pub(in crate::gateway) fn openings(&mut self) -> Vec<Opened> {
        std::mem::take(&mut self.opened)
    }

    /// The answer to a question that was asked of a destination of a class (`hear_survey` of bpf/lib/gateway/survey.h).
    pub(in crate::gateway) fn hear_survey(&mut self, now: Time, question: &Question, asked: Time) {
        let choice = &self.choices[question.class.index()];
        let sent = syn_sent(asked.as_nanos());
        let of = (Prefix::of(question.to.ip()), question.link);
        self.told.learn_of(now, choice, sent, of);
    }
}
