//! Probe targets of a link: which is probed next, and whose answers and losses count.
//!
//! A *far* target is a host on the internet: its answer proves that the link works. A *near* one, the link's own gateway, proves
//! only the access line. It counts only where no far target answers at all, because all are filtered:
//!
//! - A far answer always counts.
//! - A near answer counts only while every far target is *given up*: it was probed and never answered over this link, or
//!   has been silent for [`Config::far_silence`](crate::Config::far_silence).
//! - A lost probe counts unless its target is *mute*: another target whose answers count has answered since, and this one
//!   has never answered, or has missed [`MUTE_AFTER`] probes in a row. If the other target answers later, the loss is taken back.
//!
//! Targets are probed in different ways ([`Kind`]), and filters usually block a kind of packet, not a host. So a
//! kind is mute by the same rule as a target is: its losses are those of all its targets since any of them answered. Probes
//! take the kinds in turn, so that losses in a row are never all of one kind if there are several.
//!
//! Within a kind, probes take those targets in turn that have answered and are not mute. Every [`TRY_EVERY`]th probe goes to one of
//! the others, but not while a link is suspected ([`Asks`]): their losses count for nothing and would delay the verdict.
//!
//! A page ([`Kind::Http`]) has an expected content. Pages are probed in addition to other targets, at their own intervals, unless
//! there are no other targets. A different content means that something else answers: a captive portal, or an ISP whose customer
//! has used up the data volume. If one page answers as expected after another did not, the page of the other has probably changed.

use std::fmt;
use std::time::Duration;

use crate::time::Time;

/// Number of a probe, unique within a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProbeId(pub u64);

/// How far the path of a probe goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// To the end of the access line: the link's gateway, or another host in the link's own network.
    Near,
    /// To a host on the internet.
    Far,
}

/// The kind of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A DNS query.
    Dns,
    /// An echo request.
    Icmp,
    /// A TCP connection.
    Tcp,
    /// A page with known content, over HTTP.
    Http,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Dns => "DNS over UDP",
            Kind::Icmp => "ICMP echo",
            Kind::Tcp => "TCP",
            Kind::Http => "HTTP",
        })
    }
}

/// The properties of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TargetSpec {
    /// Where it is.
    pub reach: Reach,
    /// How it is probed.
    pub kind: Kind,
}

/// A target or kind that has answered before is mute after this many lost probes in a row.
pub const MUTE_AFTER: u32 = 3;
/// One of this many probes goes to a target that has not proved reliable.
pub const TRY_EVERY: u64 = 8;
/// A kind that has never answered is shown as filtered after this many lost probes.
const FILTERED_AFTER: u32 = 2;

/// The history of one target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TargetRecord {
    /// Where it is.
    pub reach: Reach,
    /// How it is probed.
    pub kind: Kind,
    /// Probes since the target was set.
    pub sent: u64,
    /// Those that were answered.
    pub answered: u64,
    /// Losses since its last answer.
    pub lost_in_a_row: u32,
    /// None before the first answer.
    pub last_answer: Option<Time>,
    /// When the first probe was sent that was lost after the last answer.
    pub losing_since: Option<Time>,
    /// Round trip of the last answer.
    pub round_trip: Option<Duration>,
    /// Since when a page answers otherwise than expected.
    pub wrong_since: Option<Time>,
}

impl TargetRecord {
    fn new(TargetSpec { reach, kind }: TargetSpec) -> Self {
        TargetRecord {
            reach,
            kind,
            sent: 0,
            answered: 0,
            lost_in_a_row: 0,
            last_answer: None,
            losing_since: None,
            round_trip: None,
            wrong_since: None,
        }
    }

    fn spec(&self) -> TargetSpec {
        TargetSpec {
            reach: self.reach,
            kind: self.kind,
        }
    }

    fn silence(&self) -> Silence {
        Silence {
            lost_in_a_row: self.lost_in_a_row,
            last_answer: self.last_answer,
            losing_since: self.losing_since,
        }
    }

    fn is_given_up(&self, now: Time, far_silence: Duration) -> bool {
        self.losing_since
            .is_some_and(|since| self.last_answer.is_none() || now.since(since) >= far_silence)
    }

    fn answers_as_expected(&self) -> bool {
        self.wrong_since.is_none() && self.last_answer.is_some() && self.losing_since.is_none()
    }

    /// Whether it shows that another page, wrong since `since`, has merely changed: it answered as expected after that, or has
    /// still to be probed.
    fn contradicts(&self, since: Time) -> bool {
        let has_since = self.wrong_since.is_none() && self.last_answer > Some(since);
        has_since || self.answers_as_expected()
    }
}

/// Losses since the last answer, of a target or of a kind.
#[derive(Clone, Copy, Debug, Default)]
struct Silence {
    lost_in_a_row: u32,
    last_answer: Option<Time>,
    losing_since: Option<Time>,
}

impl Silence {
    fn lose(&mut self, sent: Time) {
        self.lost_in_a_row += 1;
        self.losing_since.get_or_insert(sent);
    }

    fn is_its_own(&self, mut others: impl Iterator<Item = Silence>) -> bool {
        let enough = match self.last_answer {
            None => 1,
            Some(_) => MUTE_AFTER,
        };
        let answers =
            |other: Silence| other.losing_since.is_none() && other.last_answer > self.losing_since;
        self.lost_in_a_row >= enough && others.any(answers)
    }
}

/// When far targets of each kind last answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KindsHeard([Option<Time>; 4]);

impl KindsHeard {
    /// When this kind last answered.
    pub fn last(&self, kind: Kind) -> Option<Time> {
        self.0[kind as usize]
    }

    /// Reports that this kind answered at `at`.
    pub fn hear(&mut self, kind: Kind, at: Option<Time>) {
        let last = &mut self.0[kind as usize];
        *last = (*last).max(at);
    }

    /// The later of both times for each kind.
    pub fn with(self, others: KindsHeard) -> KindsHeard {
        KindsHeard(std::array::from_fn(|kind| self.0[kind].max(others.0[kind])))
    }
}

/// All targets with the same reach and kind.
#[derive(Clone, Debug)]
struct Group {
    spec: TargetSpec,
    silence: Silence,
    /// When any of them was last probed, ...
    asked: Option<Time>,
    /// ... and when the last of the lost probes was sent.
    lost: Option<Time>,
}

impl Group {
    fn new(spec: TargetSpec) -> Self {
        Group {
            spec,
            silence: Silence::default(),
            asked: None,
            lost: None,
        }
    }

    /// Whether it is beyond the gateway.
    fn is_far(&self) -> bool {
        self.spec.reach == Reach::Far
    }

    fn is_heard(&self, since: Time) -> bool {
        self.silence.last_answer > Some(since)
    }

    /// Losses in a row, if a probe after `since` is among them.
    fn lost_since(&self, since: Time) -> u32 {
        match self.lost > Some(since) {
            true => self.silence.lost_in_a_row,
            false => 0,
        }
    }

    /// Whether it has not answered since `since` and needs another probe: it was not probed, or has lost fewer than `enough`.
    fn is_to_be_asked(&self, since: Time, enough: u32) -> bool {
        let is_lost = self.lost >= self.asked && self.silence.lost_in_a_row < enough;
        !self.is_heard(since) && (self.asked <= Some(since) || is_lost)
    }
}

/// Which targets a probe may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asks {
    /// Nothing depends on the answer: also targets that were never probed.
    All,
    /// Targets that have answered, and now and then another.
    Known,
    /// A verdict depends on the answer: only targets that have answered.
    Trusted,
}

/// The targets of one link.
#[derive(Clone, Debug)]
pub(crate) struct Targets {
    records: Vec<TargetRecord>,
    groups: Vec<Group>,
    sent: u64,
    /// Number of probes to reliable targets since another one was tried.
    untried: u64,
    /// Positions in the turns of reliable targets, of other targets, of pages, and of kinds.
    turns: [usize; 4],
}

impl Targets {
    /// `specs` has at least one.
    pub fn new(specs: &[TargetSpec]) -> Self {
        let mut groups: Vec<Group> = Vec::new();
        for &spec in specs {
            if !groups.iter().any(|group| group.spec == spec) {
                groups.push(Group::new(spec));
            }
        }
        Targets {
            records: specs.iter().copied().map(TargetRecord::new).collect(),
            groups,
            sent: 0,
            untried: 0,
            turns: [0; 4],
        }
    }

    pub fn records(&self) -> &[TargetRecord] {
        &self.records
    }

    pub fn are(&self, specs: &[TargetSpec]) -> bool {
        let own = self.records.iter().map(TargetRecord::spec);
        own.eq(specs.iter().copied())
    }

    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Forgets the history, because it is that of another line.
    pub fn forget(&mut self) {
        for record in &mut self.records {
            *record = TargetRecord {
                sent: record.sent,
                answered: record.answered,
                ..TargetRecord::new(record.spec())
            };
        }
        for group in &mut self.groups {
            *group = Group::new(group.spec);
        }
    }

    /// Whether every far target is given up.
    pub fn are_far_given_up(&self, now: Time, far_silence: Duration) -> bool {
        let mut far = self
            .records
            .iter()
            .enumerate()
            .filter(|(index, record)| record.reach == Reach::Far && !self.is_beside(*index));
        far.all(|(_, record)| record.is_given_up(now, far_silence))
    }

    /// Whether answers of this target count; `near_counts`: those of near targets do.
    pub fn counts(&self, index: usize, near_counts: bool) -> bool {
        self.records
            .get(index)
            .is_some_and(|record| record.reach == Reach::Far || near_counts)
    }

    /// Whether the target or its whole kind is mute.
    pub fn is_mute(&self, index: usize, near_counts: bool) -> bool {
        let Some(record) = self.records.get(index) else {
            return true;
        };
        let others = (0..self.records.len())
            .filter(|&other| other != index && self.counts(other, near_counts));
        let others = others.map(|other| self.records[other].silence());
        record.silence().is_its_own(others) || self.is_kind_mute(record.spec(), near_counts)
    }

    fn is_kind_mute(&self, spec: TargetSpec, near_counts: bool) -> bool {
        let is_other =
            |group: &&Group| group.spec != spec && (group.spec.reach == Reach::Far || near_counts);
        let others = self.groups.iter().filter(is_other);
        let own = self.groups.iter().find(|group| group.spec == spec);
        own.is_some_and(|own| own.silence.is_its_own(others.map(|group| group.silence)))
    }

    /// Kinds of far targets that never answer while other kinds do.
    pub fn filtered(&self) -> impl Iterator<Item = Kind> {
        let is_filtered = |group: &&Group| {
            group.spec.reach == Reach::Far
                && group.silence.lost_in_a_row >= FILTERED_AFTER
                && self.is_kind_mute(group.spec, true)
        };
        self.groups
            .iter()
            .filter(is_filtered)
            .map(|group| group.spec.kind)
    }

    /// The target of the next probe.
    pub fn next(&mut self, near_counts: bool, asks: Asks) -> usize {
        let relied_on = self.relied_on(near_counts, asks == Asks::All);
        let is_rest = |index: &usize| !relied_on.iter().any(|kind| kind.contains(index));
        let rest: Vec<usize> = (0..self.records.len())
            .filter(|index| is_rest(index) && !self.is_beside(*index))
            .collect();
        self.sent += 1;
        self.untried += 1;
        let tries = asks != Asks::Trusted && !rest.is_empty() && self.untried >= TRY_EVERY;
        if tries {
            self.untried = 0;
        }
        let (among, turn) = match tries || relied_on.is_empty() {
            true => (vec![rest], &mut self.turns[1]),
            false => (relied_on, &mut self.turns[0]),
        };
        let kind = &among[*turn % among.len()];
        let index = kind[*turn / among.len() % kind.len()];
        *turn += 1;
        self.records[index].sent += 1;
        index
    }

    /// For each kind its targets that have answered, or all of them if none has.
    fn relied_on(&self, near_counts: bool, explores: bool) -> Vec<Vec<usize>> {
        let may = |index: &usize| {
            self.counts(*index, near_counts)
                && !self.is_mute(*index, near_counts)
                && !self.is_beside(*index)
        };
        let known = |index: &usize| {
            let record = &self.records[*index];
            record.last_answer.is_some() || explores && record.lost_in_a_row == 0
        };
        let of_kind = |group: &Group| {
            let all: Vec<usize> = (0..self.records.len())
                .filter(|index| self.records[*index].spec() == group.spec && may(index))
                .collect();
            let has_answered = |index: &usize| self.records[*index].last_answer.is_some();
            match all.iter().any(has_answered) {
                true => all.into_iter().filter(known).collect(),
                false => all,
            }
        };
        let kinds = self.groups.iter().map(of_kind);
        kinds.filter(|kind: &Vec<usize>| !kind.is_empty()).collect()
    }

    /// The last probe to it was not sent.
    pub fn withdrawn(&mut self, index: usize) {
        if let Some(record) = self.records.get_mut(index) {
            record.sent = record.sent.saturating_sub(1);
        }
    }

    pub fn answered(&mut self, index: usize, now: Time, round_trip: Duration) {
        let Some(record) = self.records.get_mut(index) else {
            return;
        };
        record.answered += 1;
        record.lost_in_a_row = 0;
        record.losing_since = None;
        record.last_answer = Some(now);
        record.round_trip = Some(round_trip);
        record.wrong_since = None;
        if let Some(group) = self.kind_of(index) {
            group.silence = Silence {
                last_answer: Some(now),
                ..Silence::default()
            };
        }
    }

    /// A probe that was sent at `sent` is lost.
    pub fn lost(&mut self, index: usize, sent: Time) {
        let Some(record) = self.records.get_mut(index) else {
            return;
        };
        record.lost_in_a_row += 1;
        record.losing_since.get_or_insert(sent);
        if let Some(group) = self.kind_of(index) {
            group.silence.lose(sent);
            group.lost = Some(sent);
        }
    }

    /// A probe to it is sent.
    pub fn asked(&mut self, index: usize, now: Time) {
        if let Some(group) = self.kind_of(index) {
            group.asked = Some(now);
        }
    }

    fn kind_of(&mut self, index: usize) -> Option<&mut Group> {
        let spec = self.records.get(index)?.spec();
        self.groups.iter_mut().find(|group| group.spec == spec)
    }

    // ---- kinds as evidence: all targets of a kind count as one, because a filter or forger treats them alike

    /// When far targets of each kind last answered.
    pub fn heard(&self) -> KindsHeard {
        let mut heard = KindsHeard::default();
        for group in self.groups.iter().filter(|group| group.is_far()) {
            heard.hear(group.spec.kind, group.silence.last_answer);
        }
        heard
    }

    /// Number of kinds of far targets that have answered since then.
    pub fn kinds_heard(&self, since: Time) -> usize {
        let far = self.groups.iter().filter(|group| group.is_far());
        far.filter(|group| group.is_heard(since)).count()
    }

    /// Kinds of far targets that have not answered since then, each with its losses in a row if a probe after `since` is among
    /// them. Pages are left out unless there are only pages.
    pub fn kinds_unheard(&self, since: Time) -> impl Iterator<Item = (TargetSpec, u32)> {
        let kinds = self.judged_kinds();
        let unheard = kinds.filter(move |group| !group.is_heard(since));
        unheard.map(move |group| (group.spec, group.lost_since(since)))
    }

    pub fn is_of(&self, index: usize, spec: TargetSpec) -> bool {
        self.records
            .get(index)
            .is_some_and(|record| record.spec() == spec)
    }

    /// Whether [`Targets::next_unheard`] has a target.
    pub fn has_unheard(&self, since: Time, enough: u32) -> bool {
        self.unheard(since, enough).is_some()
    }

    /// A target of a kind that has not answered since then and has lost fewer than `enough` probes.
    pub fn next_unheard(&mut self, since: Time, enough: u32) -> Option<usize> {
        let spec = self.unheard(since, enough)?;
        Some(self.next_of_kind(spec))
    }

    /// A far target; kinds take turns.
    pub fn next_of_any_kind(&mut self) -> usize {
        let kinds: Vec<TargetSpec> = self.judged_kinds().map(|group| group.spec).collect();
        self.turns[3] += 1;
        match kinds[..] {
            [] => self.next(true, Asks::All),
            _ => self.next_of_kind(kinds[self.turns[3] % kinds.len()]),
        }
    }

    fn judged_kinds(&self) -> impl Iterator<Item = &Group> {
        let far = || self.groups.iter().filter(|group| group.is_far());
        let only_pages = far().all(|group| group.spec.kind == Kind::Http);
        far().filter(move |group| only_pages || group.spec.kind != Kind::Http)
    }

    fn unheard(&self, since: Time, enough: u32) -> Option<TargetSpec> {
        let mut kinds = self.judged_kinds();
        let unheard = kinds.find(|group| group.is_to_be_asked(since, enough))?;
        Some(unheard.spec)
    }

    fn next_of_kind(&mut self, spec: TargetSpec) -> usize {
        let of_kind: Vec<usize> = (0..self.records.len())
            .filter(|index| self.records[*index].spec() == spec)
            .collect();
        let index = of_kind[self.sent as usize % of_kind.len()];
        self.sent += 1;
        self.records[index].sent += 1;
        index
    }

    // ---- pages

    /// Whether it is a page that is probed at its own interval.
    fn is_beside(&self, index: usize) -> bool {
        let is_other =
            |record: &TargetRecord| record.reach == Reach::Far && record.kind != Kind::Http;
        self.records[index].kind == Kind::Http && self.records.iter().any(is_other)
    }

    /// Whether there are such pages.
    pub fn has_pages_beside(&self) -> bool {
        (0..self.records.len()).any(|index| self.is_beside(index))
    }

    /// The next page to probe.
    pub fn next_page(&mut self) -> Option<usize> {
        let pages: Vec<usize> = (0..self.records.len())
            .filter(|index| self.is_beside(*index))
            .collect();
        let index = *pages.get(self.turns[2] % pages.len().max(1))?;
        self.turns[2] += 1;
        self.sent += 1;
        self.records[index].sent += 1;
        Some(index)
    }

    /// It answered otherwise than expected.
    pub fn answered_wrong(&mut self, index: usize, now: Time) {
        if let Some(record) = self.records.get_mut(index) {
            record.wrong_since.get_or_insert(now);
        }
    }

    /// A page that answers otherwise than expected, unless another page contradicts it.
    pub fn portal(&self) -> Option<usize> {
        let stands = |record: &TargetRecord| {
            let wrong = |since| !self.pages().any(|page| page.contradicts(since));
            record.wrong_since.is_some_and(wrong)
        };
        self.records.iter().position(stands)
    }

    /// Whether a page answers otherwise than expected, and the other pages' answers are older than that.
    pub fn is_portal_in_question(&self) -> bool {
        let since = self.pages().filter_map(|page| page.wrong_since).min();
        let is_older = |page: &TargetRecord| page.answers_as_expected() && page.last_answer < since;
        since.is_some() && self.pages().any(is_older)
    }

    fn pages(&self) -> impl Iterator<Item = &TargetRecord> {
        let is_page = |record: &&TargetRecord| record.kind == Kind::Http;
        self.records.iter().filter(is_page)
    }
}
