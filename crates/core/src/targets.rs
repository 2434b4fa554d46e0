//! Whom to ask whether a link works, and whose answers and silence count.
//!
//! A *far* target stands on the internet: its answer proves the link. A *near* one, the link's own gateway, proves the
//! access line and nothing behind it; it is heard where far targets say nothing at all, because somebody filters them:
//!
//! - A far answer always counts.
//! - A near answer counts only while every far target is *given up*: it was asked and has never answered over this link, or
//!   has been silent for [`Config::far_silence`](crate::Config::far_silence).
//! - A lost probe counts unless its target is *mute*: another one, whose answers count, has answered since, and this one
//!   has never answered, or has missed [`MUTE_AFTER`] in a row. If the other answered later, the loss is taken back.
//!
//! Targets are asked in different ways ([`Kind`]), and what stands between filters one way rather than one target. So a
//! kind is mute by the same rule as a target is: its losses are those of all its targets since any of them answered. Probes
//! go to the kinds in turn, so that losses in a row are never of one kind while there are others.
//!
//! Within a kind, probes go in turn to the targets that have answered and are not mute; every [`TRY_EVERY`]th goes to one of
//! the rest, but not while a link is suspected ([`Asks`]): what these lose counts for nothing, and delays the verdict.
//!
//! A page ([`Kind::Http`]) has an expected answer. It is asked beside the others, in its own time, unless nothing else is
//! there to be asked. Somebody who answers otherwise stands in the way: a captive portal, or an ISP whose customer has used
//! up his data. One page that answers as expected, after another did not, says that the other has changed.

use std::fmt;
use std::time::Duration;

use crate::time::Time;

/// Names a probe of one link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProbeId(pub u64);

/// How much of the way an answer proves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// The access line: the link's gateway, or whatever else is in the link's own network.
    Near,
    /// Into the internet.
    Far,
}

/// How a target is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A question to a resolver.
    Dns,
    /// An echo request.
    Icmp,
    /// A connection.
    Tcp,
    /// A page, whose contents are known.
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

/// What is known of a target before it is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TargetSpec {
    /// Where it stands.
    pub reach: Reach,
    /// How it is asked.
    pub kind: Kind,
}

/// A target, or a kind of them, that has answered is mute after so many lost probes in a row.
pub const MUTE_AFTER: u32 = 3;
/// One probe of so many asks a target that is not relied on.
pub const TRY_EVERY: u64 = 8;
/// A kind that has never answered is called filtered after so many lost probes.
const FILTERED_AFTER: u32 = 2;

/// What became of the probes to one target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TargetRecord {
    /// Where it stands.
    pub reach: Reach,
    /// How it is asked.
    pub kind: Kind,
    /// Since it was set.
    pub sent: u64,
    /// Of those.
    pub answered: u64,
    /// Since its last answer.
    pub lost_in_a_row: u32,
    /// None before the first.
    pub last_answer: Option<Time>,
    /// When the first probe was sent that was lost after the last answer.
    pub losing_since: Option<Time>,
    /// Of the last answer.
    pub round_trip: Option<Duration>,
    /// Since when it answers otherwise than expected.
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

    /// It answered as expected after another page began not to, or will be asked whether it still does.
    fn contradicts(&self, since: Time) -> bool {
        let has_since = self.wrong_since.is_none() && self.last_answer > Some(since);
        has_since || self.answers_as_expected()
    }
}

/// Of a target, or of all targets of a kind.
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
    /// Of a kind.
    pub fn last(&self, kind: Kind) -> Option<Time> {
        self.0[kind as usize]
    }

    /// One of that kind answered then.
    pub fn hear(&mut self, kind: Kind, at: Option<Time>) {
        let last = &mut self.0[kind as usize];
        *last = (*last).max(at);
    }

    /// What is known of these and of others.
    pub fn with(self, others: KindsHeard) -> KindsHeard {
        KindsHeard(std::array::from_fn(|kind| self.0[kind].max(others.0[kind])))
    }
}

/// The targets that are asked in one way.
#[derive(Clone, Debug)]
struct Group {
    spec: TargetSpec,
    silence: Silence,
    /// When any of them was last asked, ...
    asked: Option<Time>,
    /// ... and when the last of the probes that were lost was sent.
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

    /// It is a witness of what is beyond the gateway.
    fn is_far(&self) -> bool {
        self.spec.reach == Reach::Far
    }

    fn is_heard(&self, since: Time) -> bool {
        self.silence.last_answer > Some(since)
    }

    /// In a row, if any of them was sent since.
    fn lost_since(&self, since: Time) -> u32 {
        match self.lost > Some(since) {
            true => self.silence.lost_in_a_row,
            false => 0,
        }
    }

    /// Not heard since and not asked, or the last answer is missing and fewer are than are enough.
    fn is_to_be_asked(&self, since: Time, enough: u32) -> bool {
        let is_lost = self.lost >= self.asked && self.silence.lost_in_a_row < enough;
        !self.is_heard(since) && (self.asked <= Some(since) || is_lost)
    }
}

/// Whom a probe may ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asks {
    /// Nothing depends on it: one that was never asked is as good as any of its kind.
    All,
    /// Those that have answered, and now and then one of the rest.
    Known,
    /// A verdict depends on it: those that have answered.
    Trusted,
}

/// The targets of one link.
#[derive(Clone, Debug)]
pub(crate) struct Targets {
    records: Vec<TargetRecord>,
    groups: Vec<Group>,
    sent: u64,
    /// Of those, how many went to such as are relied on since another was tried.
    untried: u64,
    /// Where the turn begins among those relied on, among the rest, among pages, and among kinds.
    turns: [usize; 4],
}

impl Targets {
    /// There is at least one.
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

    /// All that was learnt was of another line.
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

    /// No far target has anything to say.
    pub fn are_far_given_up(&self, now: Time, far_silence: Duration) -> bool {
        let mut far = self
            .records
            .iter()
            .enumerate()
            .filter(|(index, record)| record.reach == Reach::Far && !self.is_beside(*index));
        far.all(|(_, record)| record.is_given_up(now, far_silence))
    }

    /// `near_counts`: answers of near targets do.
    pub fn counts(&self, index: usize, near_counts: bool) -> bool {
        self.records
            .get(index)
            .is_some_and(|record| record.reach == Reach::Far || near_counts)
    }

    /// By itself, or as all of its kind.
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

    /// Kinds of far targets that somebody filters: others answer meanwhile.
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

    /// The one to ask next.
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

    /// A list for each kind: those of it that have answered, or all where none has.
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

    /// It was not asked after all.
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

    /// A probe that was sent then.
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

    // ---- kinds as witnesses: all targets of a kind are one, for what filters or forges one answers for all

    /// When far targets of each kind last answered.
    pub fn heard(&self) -> KindsHeard {
        let mut heard = KindsHeard::default();
        for group in self.groups.iter().filter(|group| group.is_far()) {
            heard.hear(group.spec.kind, group.silence.last_answer);
        }
        heard
    }

    /// Kinds of far targets that have answered since.
    pub fn kinds_heard(&self, since: Time) -> usize {
        let far = self.groups.iter().filter(|group| group.is_far());
        far.filter(|group| group.is_heard(since)).count()
    }

    /// Kinds of far targets that have not answered since, and how many probes each has lost in a row, if any of these was sent since.
    /// Pages are asked in their own time.
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

    /// There is one that [`Targets::next_unheard`] gives.
    pub fn has_unheard(&self, since: Time, enough: u32) -> bool {
        self.unheard(since, enough).is_some()
    }

    /// A target of a kind that was not heard since, and of which fewer losses are known than are `enough`.
    pub fn next_unheard(&mut self, since: Time, enough: u32) -> Option<usize> {
        let spec = self.unheard(since, enough)?;
        Some(self.next_of_kind(spec))
    }

    /// A far target, of each kind in turn.
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

    /// Asked in its own time, beside the others.
    fn is_beside(&self, index: usize) -> bool {
        let is_other =
            |record: &TargetRecord| record.reach == Reach::Far && record.kind != Kind::Http;
        self.records[index].kind == Kind::Http && self.records.iter().any(is_other)
    }

    /// Whether there are any that are asked beside the others.
    pub fn has_pages_beside(&self) -> bool {
        (0..self.records.len()).any(|index| self.is_beside(index))
    }

    /// The page to ask next.
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

    /// It answered, and otherwise than expected.
    pub fn answered_wrong(&mut self, index: usize, now: Time) {
        if let Some(record) = self.records.get_mut(index) {
            record.wrong_since.get_or_insert(now);
        }
    }

    /// A page that answers otherwise than expected, unless another one contradicts it.
    pub fn portal(&self) -> Option<usize> {
        let stands = |record: &TargetRecord| {
            let wrong = |since| !self.pages().any(|page| page.contradicts(since));
            record.wrong_since.is_some_and(wrong)
        };
        self.records.iter().position(stands)
    }

    /// A page answers otherwise than expected, and what another said is older than that.
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
