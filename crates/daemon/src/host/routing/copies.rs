//! Copies rules of others to before ours.
//!
//! A rule that is added without a priority gets one that depends on the existing rules: on a host without the gateway, just before
//! the main table's. To let it win in any position, a copy of it, with all that it matches, is placed before our own rules. The
//! copy has our protocol number, follows changes of the original, and is removed with it.
//!
//! Some programs (wg-quick for one) remove their rules by deleting repeatedly by a common property until nothing matches, and that
//! matches our rules and copies, too. If we restored these at once, such a program would never finish. So as long as an original is
//! still there, what was deleted is restored only after a while.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::Context;
use netlink_packet_route::route::RouteProtocol;
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleFlags, RuleMessage};

use super::super::ids::{Ids, PROTOCOL};
use super::message::{Aim, aim_of_message};
use crate::observe::Netlink;
use crate::observe::rules::{ForeignRule, MAIN_PRIORITY};

/// Longer than the time between two deletions of such a program.
const PATIENCE: Duration = Duration::from_secs(1);

/// Our rules of one family on the host, and which of them others have deleted.
#[derive(Debug, Default)]
pub struct Memory {
    left: Vec<Aim>,
    lost: BTreeSet<Aim>,
    lost_at: Option<Instant>,
}

/// Kinds of rules that must not be restored yet.
#[derive(Debug, Default)]
pub struct Waits(BTreeSet<Aim>);

impl Waits {
    pub fn contains(&self, aim: Aim) -> bool {
        self.0.contains(&aim)
    }
}

impl Memory {
    /// `meant` are the kinds of which others have rules; `copied` and `rules` are those of ours that exist.
    pub fn look(
        &mut self,
        meant: &BTreeSet<Aim>,
        copied: &[RuleMessage],
        rules: &[RuleMessage],
    ) -> Waits {
        let present = copied.iter().chain(rules).map(aim_of_message);
        let mut gone = self.left.clone();
        for aim in present {
            if let Some(at) = gone.iter().position(|left| *left == aim) {
                gone.swap_remove(at);
            }
        }
        let lost: BTreeSet<Aim> = gone.into_iter().filter(|aim| meant.contains(aim)).collect();
        if !lost.is_empty() {
            self.lost.extend(lost);
            self.lost_at = Some(Instant::now());
        }
        if self.lost_at.is_some_and(|at| at.elapsed() > PATIENCE) {
            self.lost.clear();
            self.lost_at = None;
        }
        self.lost.retain(|aim| meant.contains(aim));
        Waits(self.lost.clone())
    }

    /// Records which of our rules exist from now on.
    pub fn keep(&mut self, left: Vec<Aim>) {
        self.left = left;
    }
}

/// The copies of those rules that the kernel would look up after ours.
pub fn of<'a>(ids: Ids, others: impl Iterator<Item = &'a ForeignRule>) -> Vec<RuleMessage> {
    let behind = ids.copy_priority() + 1..MAIN_PRIORITY;
    let others = others.filter(|rule| behind.contains(&rule.priority()) && can_be_copied(rule));
    others.map(|rule| copy(ids, &rule.message)).collect()
}

/// A rule that jumps to another rule cannot be copied: it would jump past ours.
pub fn can_be_copied(rule: &ForeignRule) -> bool {
    let action = rule.message.header.action;
    !matches!(action, RuleAction::Goto | RuleAction::Nop)
}

fn copy(ids: Ids, message: &RuleMessage) -> RuleMessage {
    let mut copy = plain(message);
    let priority = RuleAttribute::Priority(ids.copy_priority());
    let protocol = RuleAttribute::Protocol(RouteProtocol::Other(PROTOCOL));
    copy.attributes.extend([priority, protocol]);
    copy
}

/// What a rule matches and its action, without the parts in which a rule and its copy differ.
fn plain(message: &RuleMessage) -> RuleMessage {
    let mut plain = message.clone();
    plain.header.flags &= RuleFlags::Invert;
    plain.attributes.retain(|attribute| {
        !matches!(
            attribute,
            RuleAttribute::Priority(_)
                | RuleAttribute::Protocol(_)
                | RuleAttribute::SuppressPrefixLen(u32::MAX)
                | RuleAttribute::SuppressIfGroup(u32::MAX)
        )
    });
    plain
}

/// Brings the copies into the order of the originals: copies without an original are removed, then those after the first difference
/// are created again.
pub async fn apply(
    netlink: &Netlink,
    wanted: &[RuleMessage],
    present: Vec<RuleMessage>,
    waits: &Waits,
) -> Vec<anyhow::Error> {
    let wanted: Vec<&RuleMessage> = wanted
        .iter()
        .filter(|copy| !waits.contains(aim_of_message(copy)))
        .collect();
    let is = |copy: &RuleMessage, message: &RuleMessage| plain(copy) == plain(message);
    let (mut kept, mut stale): (Vec<_>, Vec<_>) = present
        .into_iter()
        .partition(|message| wanted.iter().any(|copy| is(copy, message)));
    let pairs = kept.iter().zip(&wanted);
    let same = pairs
        .take_while(|(message, copy)| is(copy, message))
        .count();
    stale.extend(kept.drain(same..));
    let mut failed = Vec::new();
    for message in stale {
        let deleted = netlink.handle.rule().del(message).execute().await;
        failed.extend(deleted.context("delete the copy of a routing rule").err());
    }
    for copy in &wanted[same..] {
        let mut request = netlink.handle.rule().add();
        *request.message_mut() = (*copy).clone();
        let added = request.execute().await;
        failed.extend(added.context("copy a routing rule of another's").err());
    }
    failed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::TABLE_MAIN;
    use crate::observe::rules::tests::{not, rule};

    const TUNNEL: u32 = 51_820;

    fn ids() -> Ids {
        Ids::of("default")
    }

    #[test]
    fn what_stands_behind_ours_is_said_again_in_its_order_and_leads_nowhere_else() {
        let mark = RuleAttribute::FwMark(TUNNEL);
        let mut skipping = rule(32_700, 0, vec![RuleAttribute::Goto(32_766)]);
        skipping.message.header.action = RuleAction::Goto;
        let others = [
            rule(5270, 52, vec![]),
            skipping,
            rule(32_764, TABLE_MAIN, vec![]),
            not(rule(32_765, TUNNEL, vec![mark])),
            rule(40_000, 99, vec![]),
        ];
        let copies = of(ids(), others.iter());
        let told: Vec<Aim> = copies.iter().map(aim_of_message).collect();
        assert_eq!(told, [(TABLE_MAIN, false), (TUNNEL, false)]);
        let original = &others[3].message;
        assert_eq!(plain(&copies[1]), plain(original));
        assert!(copies[1].header.flags.contains(RuleFlags::Invert));
        let priority = RuleAttribute::Priority(ids().copy_priority());
        assert!(
            copies
                .iter()
                .all(|copy| copy.attributes.contains(&priority))
        );
    }

    #[test]
    fn what_somebody_takes_away_waits_as_long_as_there_is_what_was_meant() {
        let ours = [rule(1, TUNNEL, vec![]).message, rule(2, 7, vec![]).message];
        let [tunnel, other] = [(TUNNEL, false), (7, false)];
        let meant = BTreeSet::from([tunnel]);
        let mut memory = Memory::default();
        assert!(!memory.look(&meant, &[], &ours).contains(tunnel));
        memory.keep(vec![tunnel, other]);
        let waits = memory.look(&meant, &[], &[]);
        assert!(waits.contains(tunnel) && !waits.contains(other));
        memory.keep(vec![other]);
        assert!(memory.look(&meant, &[], &ours[1..]).contains(tunnel));
        let none = BTreeSet::new();
        assert!(!memory.look(&none, &[], &ours[1..]).contains(tunnel));
    }
}
