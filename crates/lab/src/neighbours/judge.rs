//! What was lost without cause: a pure function of the events and of what the flows met.
//!
//! An event may excuse losses: a link that fails ends the flows on that link, and delays new flows of everybody for a moment.
//! It excuses nothing else, and only while it lasts and shortly afterwards. A loss that no event excuses is the gateway's.
//!
//! Flows that are to be spread are counted by link as well: a link that works and gets no share of them is a loss, too.

use std::collections::BTreeMap;

use serde::Serialize;

use super::plan::{LINKS, NAMES};

/// A new flow that begins later than this after a failure has to be established: fail-over takes a second at most, and a
/// busy machine may take another.
pub const FAIL_OVER_MS: u64 = 2000;
/// A new flow to one certain link, address or table has to be established when that has been back for so long.
pub const BACK_MS: u64 = 5000;
/// How long a new flow tries: a SYN that was lost is sent again after one second.
pub const PATIENCE_MS: u64 = 3000;
/// A flow that gets no answer for so long has ended. TCP may be silent for twice the length of an outage.
pub const SILENCE_MS: u64 = 8000;
/// A flow may end so long after its link works again: the gateway had given the link up just before.
pub const AFTER_MS: u64 = 3000;
/// Nobody whose new flows are tried several times a second goes without a result for so long.
pub const UNWATCHED_MS: u64 = 20_000;
/// A link that works gets at least this part of what it would get if all links got the same: policies may prefer others.
pub const SHARE: f64 = 0.25;
/// With less to expect, an absent share says nothing.
pub const FAIR_LEAST: f64 = 10.0;
/// A new flow follows a routing rule that has stood so long, and will for as long.
pub const STEERED_MS: u64 = 1000;
/// Events that are told beside a loss.
const TOLD_BEFORE: usize = 3;

/// What a flow depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// A link, by its index.
    Link(usize),
    /// The kernel's masquerade behind a link, by the link's index.
    Masquerade(usize),
    /// The address that VRRP moves between routers.
    VirtualAddress,
    /// The table of a routing rule.
    PolicyTable,
    /// What tells hosts their IPv6 router.
    Advertisements,
    /// The netfilter rules of the neighbours.
    Netfilter,
    /// The gateway, for what it carries, and what comes by links that the host's own routing does not lead to.
    Gateway,
    /// This machine: it was too busy to run anything.
    Machine,
}

/// What an event does to the part of the site that it is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Harm {
    /// None: no flow may notice.
    Nothing,
    /// New flows that need the part may fail; established ones live on.
    Interrupts(Part),
    /// The same of a link whose address goes for a moment: the kernel's masquerade forgets its connections then.
    Readdresses(usize),
    /// Flows that use the part may end, too.
    Ends(Part),
    /// None, but new flows of whoever is [`Way::Steered`] take this link.
    Steers(usize),
}

/// Which link carries a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// The one that its destination is reached by, if any.
    Fixed,
    /// Whichever works.
    Any,
    /// Whichever works, and each of those its share.
    Spread,
    /// As [`Way::Any`], but for a rule that comes and goes.
    Steered,
}

/// Something that was done to the site.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Event {
    /// Just before it was done.
    pub begun_ms: u64,
    /// When the part had become unusable, if it does.
    pub done_ms: u64,
    /// When the part was usable again; the run's end, if it never was.
    pub mended_ms: u64,
    /// For people.
    pub what: String,
    /// Whom it may hurt.
    pub harm: Harm,
}

/// A flow that is kept open.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Flow {
    /// Whose it is.
    pub neighbour: &'static str,
    /// TCP or UDP, and its ends.
    pub name: String,
    /// What it uses: known, since the server tells which source address it sees.
    pub uses: Vec<Part>,
    /// When it was established.
    pub opened_ms: u64,
    /// When it last got an answer.
    pub answered_ms: u64,
    /// When and how it ended, if it did.
    pub ended: Option<(u64, String)>,
}

/// An attempt to open a flow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Attempt {
    /// Whose it is.
    pub neighbour: &'static str,
    /// TCP or UDP, and the destination.
    pub name: String,
    /// What it cannot do without.
    pub needs: Vec<Part>,
    /// Which links it may take.
    pub way: Way,
    /// The link that it took, if it was established and the server saw a link's address.
    pub link: Option<usize>,
    /// When it began.
    pub begun_ms: u64,
    /// Why it failed, if it did.
    pub failed: Option<String>,
}

/// All that happened in one run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Record {
    /// In the order of their beginning.
    pub events: Vec<Event>,
    /// Flows that were kept open.
    pub flows: Vec<Flow>,
    /// New flows.
    pub attempts: Vec<Attempt>,
    /// The run's length.
    pub length_ms: u64,
}

/// What became of the flows of one neighbour.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Row {
    /// Whose flows.
    pub neighbour: &'static str,
    /// Flows that were kept open and checked.
    pub flows: usize,
    /// Of these, those that ended because of what they used.
    pub ended_excused: usize,
    /// Of these, those that ended without cause.
    pub ended_unexcused: usize,
    /// New flows that were tried.
    pub attempts: usize,
    /// Of these, those that failed during an event, within its bound.
    pub failed_excused: usize,
    /// Of these, those that failed beyond the bound.
    pub failed_unexcused: usize,
}

/// A loss that no event excuses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Loss {
    /// Whose.
    pub neighbour: &'static str,
    /// When.
    pub at_ms: u64,
    /// What was lost.
    pub what: String,
    /// The last events before it, with their times.
    pub before: Vec<String>,
}

/// The judgement of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// A row for every neighbour.
    pub rows: Vec<Row>,
    /// In the order of time.
    pub losses: Vec<Loss>,
}

/// Judges a run in which the flows of `neighbours` were to be checked.
pub fn judge(record: &Record, neighbours: &[&'static str]) -> Verdict {
    let row = |&neighbour: &&'static str| {
        let row = Row {
            neighbour,
            ..Row::default()
        };
        (neighbour, row)
    };
    let mut rows: BTreeMap<_, _> = neighbours.iter().map(row).collect();
    let mut losses = Vec::new();
    for flow in &record.flows {
        let row = rows.entry(flow.neighbour).or_default();
        losses.extend(judge_flow(flow, record, row));
    }
    for attempt in &record.attempts {
        let row = rows.entry(attempt.neighbour).or_default();
        losses.extend(judge_attempt(attempt, record, row));
    }
    losses.extend(neighbours.iter().filter_map(|it| unwatched(it, record)));
    losses.extend(neighbours.iter().flat_map(|it| unused(it, record)));
    losses.sort_by_key(|loss| loss.at_ms);
    let rows = neighbours.iter().filter_map(|it| rows.remove(it)).collect();
    Verdict { rows, losses }
}

fn judge_flow(flow: &Flow, record: &Record, row: &mut Row) -> Option<Loss> {
    row.flows += 1;
    let (ended_ms, how) = flow.ended.as_ref()?;
    let excused = |event: &Event| {
        let part = match event.harm {
            Harm::Ends(part) => part,
            Harm::Readdresses(link) => Part::Masquerade(link),
            Harm::Interrupts(_) | Harm::Steers(_) | Harm::Nothing => return false,
        };
        let uses = part == Part::Machine || flow.uses.contains(&part);
        let ended_before = *ended_ms < event.begun_ms;
        let answered_since = flow.answered_ms > event.mended_ms + AFTER_MS;
        uses && !ended_before && !answered_since
    };
    if record.events.iter().any(excused) {
        row.ended_excused += 1;
        return None;
    }
    row.ended_unexcused += 1;
    let lived_s = seconds(flow.answered_ms - flow.opened_ms);
    Some(Loss {
        neighbour: flow.neighbour,
        at_ms: *ended_ms,
        what: format!("{} ended after {lived_s}: {how}", flow.name),
        before: before(*ended_ms, record),
    })
}

fn judge_attempt(attempt: &Attempt, record: &Record, row: &mut Row) -> Option<Loss> {
    row.attempts += 1;
    let steered = steered_to(attempt, record);
    let Some(why) = &attempt.failed else {
        let (link, rule) = (attempt.link, steered?);
        let is_astray = link != Some(rule.link) && rule.stands && is_up(rule.link, attempt, record);
        return is_astray.then(|| {
            row.failed_unexcused += 1;
            let taken = link.map_or("no link", |link| NAMES[link]);
            let what = format!(
                "{} took {taken}, and a rule says {}",
                attempt.name, NAMES[rule.link]
            );
            attempt.lost(what, record)
        });
    };
    let needs = |part: &Part| {
        let of_rule = steered.is_some_and(|rule| *part == Part::Link(rule.link));
        of_rule || attempt.needs.contains(part)
    };
    let excused = |event: &Event| {
        let part = match event.harm {
            Harm::Ends(part) | Harm::Interrupts(part) => part,
            Harm::Readdresses(link) => Part::Link(link),
            Harm::Steers(_) | Harm::Nothing => return false,
        };
        let until_ms = match part {
            Part::Machine => event.mended_ms + FAIL_OVER_MS,
            _ if needs(&part) => event.mended_ms + BACK_MS,
            // Another link can take it as soon as the gateway has noticed.
            Part::Link(_) if attempt.way != Way::Fixed => event.done_ms + FAIL_OVER_MS,
            _ => return false,
        };
        let was_trying = attempt.begun_ms + PATIENCE_MS >= event.begun_ms;
        was_trying && attempt.begun_ms <= until_ms
    };
    if record.events.iter().any(excused) {
        row.failed_excused += 1;
        return None;
    }
    row.failed_unexcused += 1;
    Some(attempt.lost(
        format!("{} was not established: {why}", attempt.name),
        record,
    ))
}

impl Attempt {
    fn lost(&self, what: String, record: &Record) -> Loss {
        Loss {
            neighbour: self.neighbour,
            at_ms: self.begun_ms,
            what,
            before: before(self.begun_ms, record),
        }
    }
}

/// A routing rule that may have led an attempt.
#[derive(Clone, Copy)]
struct Steering {
    link: usize,
    /// All the time, beyond doubt.
    stands: bool,
}

fn steered_to(attempt: &Attempt, record: &Record) -> Option<Steering> {
    if attempt.way != Way::Steered {
        return None;
    }
    let began_ms = attempt.begun_ms;
    record.events.iter().find_map(|event| {
        let Harm::Steers(link) = event.harm else {
            return None;
        };
        let may =
            began_ms + PATIENCE_MS >= event.begun_ms && began_ms <= event.mended_ms + STEERED_MS;
        let stands =
            began_ms >= event.done_ms + STEERED_MS && began_ms + STEERED_MS <= event.mended_ms;
        may.then_some(Steering { link, stands })
    })
}

/// Whether nothing that happened to a link can have kept an attempt from it.
fn is_up(link: usize, attempt: &Attempt, record: &Record) -> bool {
    let at_ms = attempt.begun_ms;
    !record.events.iter().any(|event| {
        let of_link = match event.harm {
            Harm::Ends(part) | Harm::Interrupts(part) => {
                part == Part::Link(link) || attempt.needs.contains(&part)
            }
            Harm::Readdresses(other) => other == link,
            Harm::Steers(_) | Harm::Nothing => false,
        };
        of_link && at_ms + PATIENCE_MS >= event.begun_ms && at_ms <= event.mended_ms + BACK_MS
    })
}

/// Links that got less than their share of what a neighbour had to be spread while they worked.
fn unused(neighbour: &'static str, record: &Record) -> Vec<Loss> {
    let spread = |attempt: &&Attempt| {
        let is_own = attempt.neighbour == neighbour && attempt.way == Way::Spread;
        is_own && attempt.failed.is_none()
    };
    let spread: Vec<_> = record.attempts.iter().filter(spread).collect();
    let lost = (0..LINKS).filter_map(|link| {
        let meanwhile: Vec<_> = spread.iter().filter(|it| is_up(link, it, record)).collect();
        let fair = meanwhile.len() as f64 / LINKS as f64;
        let taken = meanwhile.iter().filter(|it| it.link == Some(link)).count();
        (fair >= FAIR_LEAST && (taken as f64) < fair * SHARE).then(|| {
            let of = meanwhile.len();
            let what = format!(
                "{} took {taken} of {of} new flows while it worked",
                NAMES[link]
            );
            Loss {
                neighbour,
                at_ms: record.length_ms,
                what,
                before: vec![],
            }
        })
    });
    lost.collect()
}

/// A neighbour whose flows nobody tried: nothing is known of them, which is no success.
fn unwatched(neighbour: &'static str, record: &Record) -> Option<Loss> {
    let tried = record
        .attempts
        .iter()
        .filter(|attempt| attempt.neighbour == neighbour)
        .map(|attempt| attempt.begun_ms);
    let mut times: Vec<_> = tried.chain([0, record.length_ms]).collect();
    times.sort_unstable();
    let gap = times
        .windows(2)
        .find(|pair| pair[1] - pair[0] > UNWATCHED_MS)?;
    Some(Loss {
        neighbour,
        at_ms: gap[0],
        what: format!("no new flow was tried for {}", seconds(gap[1] - gap[0])),
        before: before(gap[0], record),
    })
}

fn before(at_ms: u64, record: &Record) -> Vec<String> {
    let earlier: Vec<_> = record
        .events
        .iter()
        .filter(|event| event.begun_ms <= at_ms)
        .map(|event| format!("{} {}", seconds(event.begun_ms), event.what))
        .collect();
    earlier[earlier.len().saturating_sub(TOLD_BEFORE)..].to_vec()
}

/// Milliseconds as people read them.
pub fn seconds(ms: u64) -> String {
    format!("{:.1} s", ms as f64 / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAN: &str = "LAN";

    fn record() -> Record {
        Record {
            attempts: (0..120_000).step_by(1000).map(established).collect(),
            length_ms: 120_000,
            ..Record::default()
        }
    }

    fn established(begun_ms: u64) -> Attempt {
        Attempt {
            neighbour: LAN,
            name: "tcp to 192.0.2.10:7".into(),
            needs: vec![],
            way: Way::Spread,
            link: Some(begun_ms as usize / 1000 % LINKS),
            begun_ms,
            failed: None,
        }
    }

    fn refused(begun_ms: u64) -> Attempt {
        Attempt {
            failed: Some("refused".into()),
            ..established(begun_ms)
        }
    }

    fn flow(link: usize, answered_ms: u64, ended_ms: u64) -> Flow {
        Flow {
            neighbour: LAN,
            name: "tcp to 192.0.2.10:7".into(),
            uses: vec![Part::Link(link)],
            opened_ms: 1000,
            answered_ms,
            ended: Some((ended_ms, "reset".into())),
        }
    }

    fn event(begun_ms: u64, mended_ms: u64, harm: Harm) -> Event {
        Event {
            begun_ms,
            done_ms: begun_ms + 10,
            mended_ms,
            what: "one fails".into(),
            harm,
        }
    }

    fn link_one_fails() -> Event {
        event(50_000, 54_000, Harm::Ends(Part::Link(1)))
    }

    fn losses(record: &Record) -> usize {
        judge(record, &[LAN]).losses.len()
    }

    #[test]
    fn a_run_in_which_nothing_ends_is_without_loss() {
        let verdict = judge(&record(), &[LAN]);
        assert_eq!(verdict.losses, []);
        assert_eq!(verdict.rows[0].attempts, 120);
    }

    #[test]
    fn a_flow_on_a_failed_link_may_end_and_one_on_a_healthy_link_may_not() {
        let mut record = record();
        record.events = vec![link_one_fails()];
        record.flows = vec![flow(1, 50_100, 50_600)];
        assert_eq!(losses(&record), 0);
        record.flows.push(flow(0, 50_100, 50_600));
        let verdict = judge(&record, &[LAN]);
        let row = &verdict.rows[0];
        assert_eq!(
            (row.flows, row.ended_excused, row.ended_unexcused),
            (2, 1, 1)
        );
        assert_eq!(verdict.losses[0].at_ms, 50_600);
        assert_eq!(verdict.losses[0].before, ["50.0 s one fails"]);
    }

    #[test]
    fn a_failure_excuses_neither_what_ended_before_nor_what_lived_through_it() {
        let mut record = record();
        record.events = vec![link_one_fails()];
        record.flows = vec![flow(1, 49_000, 49_500)];
        assert_eq!(losses(&record), 1, "it ended before");
        record.flows = vec![flow(1, 57_500, 57_600)];
        assert_eq!(losses(&record), 1, "it was answered long after");
        record.flows = vec![flow(1, 52_000, 60_000)];
        assert_eq!(losses(&record), 0, "it was silent from then on");
    }

    #[test]
    fn what_only_interrupts_ends_no_flow() {
        let mut record = record();
        record.events = vec![event(50_000, 51_000, Harm::Interrupts(Part::Link(1)))];
        record.flows = vec![flow(1, 50_100, 50_600)];
        assert_eq!(losses(&record), 1);
        record.events = vec![event(50_000, 51_000, Harm::Nothing)];
        assert_eq!(losses(&record), 1);
    }

    #[test]
    fn an_address_that_goes_for_a_moment_ends_what_is_masqueraded_and_nothing_else() {
        let mut record = record();
        record.events = vec![event(50_000, 51_000, Harm::Readdresses(1))];
        record.flows = vec![flow(1, 50_100, 50_600)];
        assert_eq!(losses(&record), 1);
        record.flows[0].uses.push(Part::Masquerade(0));
        assert_eq!(losses(&record), 1);
        record.flows[0].uses.push(Part::Masquerade(1));
        assert_eq!(losses(&record), 0);
    }

    #[test]
    fn a_new_flow_that_may_take_another_link_has_to_do_so_within_the_bound() {
        let mut record = record();
        record.events = vec![link_one_fails()];
        record
            .attempts
            .extend([refused(49_500), refused(50_000 + FAIL_OVER_MS)]);
        assert_eq!(losses(&record), 0);
        record.attempts.push(refused(50_200 + FAIL_OVER_MS));
        assert_eq!(
            losses(&record),
            1,
            "the link is still dead, but others work"
        );
        record.attempts.pop();
        record.attempts.push(refused(46_000));
        assert_eq!(losses(&record), 1, "it had given up before the link failed");
    }

    #[test]
    fn a_new_flow_to_one_link_may_fail_until_that_is_back() {
        let to_link = |link, begun_ms| Attempt {
            needs: vec![Part::Link(link)],
            way: Way::Fixed,
            ..refused(begun_ms)
        };
        let mut record = record();
        record.events = vec![link_one_fails()];
        record.attempts.push(to_link(1, 54_000 + BACK_MS));
        assert_eq!(losses(&record), 0);
        record.attempts.push(to_link(1, 54_001 + BACK_MS));
        assert_eq!(losses(&record), 1);
        record.attempts.push(to_link(0, 50_500));
        assert_eq!(losses(&record), 2, "its link never failed");
    }

    #[test]
    fn a_neighbour_that_was_not_tried_is_a_loss() {
        let mut record = record();
        let verdict = judge(&record, &[LAN, "container"]);
        assert_eq!(verdict.losses.len(), 1);
        assert_eq!(verdict.losses[0].neighbour, "container");
        record.attempts.retain(|attempt| attempt.begun_ms < 60_000);
        assert_eq!(losses(&record), 1);
    }

    #[test]
    fn a_link_that_works_gets_its_share_of_what_is_to_be_spread() {
        let mut record = record();
        let all_by = |record: &mut Record, links: &[usize]| {
            for (attempt, link) in record.attempts.iter_mut().zip(links.iter().cycle()) {
                attempt.link = Some(*link);
            }
        };
        all_by(&mut record, &[0]);
        let verdict = judge(&record, &[LAN]);
        let told: Vec<_> = verdict.losses.iter().map(|loss| &loss.what).collect();
        let unused = |name| format!("{name} took 0 of 120 new flows while it worked");
        assert_eq!(told, [&unused("two"), &unused("three")]);
        all_by(&mut record, &[0, 0, 0, 1, 0, 0, 0, 2]);
        assert_eq!(losses(&record), 0, "a policy may prefer a link");
        all_by(&mut record, &[0, 1]);
        assert_eq!(losses(&record), 1);
        record.events = vec![event(10_000, 110_000, Harm::Ends(Part::Link(2)))];
        assert_eq!(losses(&record), 0, "it hardly worked");
        let ways = |way| {
            let mut record = record.clone();
            record.events.clear();
            record.attempts.iter_mut().for_each(|it| it.way = way);
            losses(&record)
        };
        assert_eq!(ways(Way::Any), 0, "nobody spreads them");
    }

    #[test]
    fn a_rule_leads_new_flows_while_it_stands_and_its_link_works() {
        let steered = |begun_ms, link| Attempt {
            way: Way::Steered,
            link: Some(link),
            ..established(begun_ms)
        };
        let mut record = record();
        record.attempts.iter_mut().for_each(|it| it.way = Way::Any);
        record.events = vec![event(50_000, 56_000, Harm::Steers(2))];
        record.attempts.extend([
            steered(49_000, 0),
            steered(50_500, 0),
            steered(53_000, 2),
            steered(55_500, 0),
            steered(60_000, 0),
        ]);
        assert_eq!(losses(&record), 0);
        record.attempts.push(steered(53_000, 0));
        let verdict = judge(&record, &[LAN]);
        let what = "tcp to 192.0.2.10:7 took one, and a rule says three";
        assert_eq!(verdict.losses[0].what, what);
        record
            .events
            .push(event(51_000, 52_000, Harm::Ends(Part::Link(2))));
        assert_eq!(losses(&record), 0, "its link may not be back yet");
        record.attempts.push(Attempt {
            failed: Some("no answer".into()),
            ..steered(54_500, 2)
        });
        assert_eq!(losses(&record), 0, "another link may not take it");
    }

    #[test]
    fn a_machine_that_stood_still_is_no_fault_of_the_gateway() {
        let mut record = record();
        record.events = vec![event(50_000, 55_000, Harm::Ends(Part::Machine))];
        record.flows = vec![flow(0, 49_900, 58_000)];
        record.attempts.push(refused(52_000));
        assert_eq!(losses(&record), 0);
    }
}
