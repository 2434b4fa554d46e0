//! Whether one link works: the machine of Guo 2004, figure 2, and what each signal proves. docs/availability.md tells the whole.
//!
//! ```text
//!            suspicion                 probes lost (foolsm)
//!    UP  ───────────────►  POSSIBLY DOWN  ───────────────►  DOWN
//!    │▲ ◄───── evidence ─────     ▲  link still used           │
//!    │└──────────── answers in a row, little loss ◄────────────┘
//!    │              and not held down
//!    └── users complain, one witness speaks for the link ──►  CAPTIVE: keeps its flows, takes no new ones
//! ```
//!
//! *Evidence* of life is weak (any packet came in) or strict (a TCP segment acknowledged new data, or a probe was
//! answered: both directions work). *Suspicion* arises when packets were sent and nothing came in ([`Suspicion::Silent`]),
//! when what came in proved nothing about the way out ([`Suspicion::OneWay`]), or when nothing was heard for long
//! ([`Suspicion::Idle`]). It costs a probe and nothing else: packets that merely ended raise it too, because a
//! download that died and one that finished look alike. Silence is cleared by any packet, the others by strict evidence.
//!
//! Only lost probes take a link down, by foolsm's rule: too many in a row, or too many in the window. On a link that loses probes
//! anyway, it takes as many in a row as would come by chance once in [`CHANCE`] rows. A probe is lost at
//! its deadline, which grants the round trip last measured and the queue that the link's own load explains: towards the
//! internet what was sent and cannot have left yet; towards the LAN, where the queue is at the ISP and unseen, a fixed
//! time as long as packets keep arriving. An answer after the deadline is an answer: the loss is taken back.
//!
//! What all links show at once is explained by what they have in common. So a verdict waits until another link is heard of
//! ([`Others`]); while none is, the gateways' answers count, and after [`COMMON`] the link is down.
//!
//! Which targets count is told in [`targets`](crate::targets). Traffic outweighs them all: what users' flows prove after a probe
//! was sent makes up for its loss, and such proofs bring up a link that is down.
//!
//! *Witnesses* speak against a link whose probes are answered ([`Complaint`]): hosts that repeat SYNs, and the ends that do not
//! answer, each counted once. Two hosts and two ends outweigh near targets and far ones of one kind, and no more; so do three
//! ends of one host, where another kind of targets is silent as well that answers over another link; and only where another link carries
//! connections meanwhile. Such a link is captive: it answers, and carries nothing. Witnesses can be forged, so they end no flow. A link
//! is tried again when a second kind answers, users' flows prove it, or after [`TRIAL`].
//!
//! Of a link without NAT users never complain: what is sent over it may be answered over any other. Silence makes it
//! suspect, as ever, and its probes have the last word. Where answers are not counted ([`Answers::Uncounted`]), late probes may
//! be queued with them as long as packets are sent.
//!
//! A link that goes down repeatedly is held down: it answers, and is not used. The time doubles with every further fall
//! from [`Config::hold_down`] to [`Config::hold_down_max`], and one fall is forgotten with every [`Config::hold_forget`]
//! that passes without another. The first costs nothing. Whoever drives the machine lifts the hold-down of the last link
//! ([`Availability::release`]).
//!
//! A page that answers otherwise than expected takes a link down: a captive portal stands in the way. It comes back when a
//! page answers as expected. So does a check of the operator's ([`checks`](crate::checks)) that is down: its verdict is told from outside
//! ([`Availability::set_check`]), and until it is up the link is not used, whatever else speaks for it. What is asked *beside* the suspicions (pages, and where [`Config::measures`] says so one target
//! now and then while users keep the link busy) tells how the link fares, and its loss takes nothing down.
//!
//! The machine never reads a clock, never sends anything, and never declares a link down for being slow or lossy while
//! TCP makes progress over it.

mod complaint;
mod falls;
mod row;

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use anabranch_policy::abi::Traffic;

use crate::bandwidth::LinkLoad;
use crate::config::Config;
use crate::link::{LinkState, Missing};
use crate::quality::{ProbeQuality, Probes};
pub use crate::targets::KindsHeard;
use crate::targets::{Asks, Kind, ProbeId, Reach, TargetRecord, TargetSpec, Targets};
use crate::time::Time;
use complaint::Complaint;
use falls::Falls;
use row::Row;
pub use row::{CHANCE, COMMON};

/// Why a link is probed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suspicion {
    /// Seen for the first time: nothing is known of it.
    Unproven,
    /// Packets were sent and nothing came in.
    Silent,
    /// Packets were sent, and nothing that came in proves that they arrive.
    OneWay,
    /// Nothing was heard for long.
    Idle,
}

impl fmt::Display for Suspicion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Suspicion::Unproven => "not heard yet",
            Suspicion::Silent => "silent while packets are sent",
            Suspicion::OneWay => "no sign that packets arrive",
            Suspicion::Idle => "nothing heard for long",
        })
    }
}

/// Why a link is down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DownCause {
    /// Probes that this suspicion started were lost.
    Unanswered(Suspicion),
    /// It lacks what it needs to carry packets.
    Absent(Missing),
    /// It is present again after an absence, and has not answered yet.
    Returning,
    /// It answers, and has gone down too often to be trusted already.
    HeldDown,
    /// Somebody else than who was asked answers for pages.
    Portal,
    /// A check of the operator's is down.
    Check,
}

impl fmt::Display for DownCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DownCause::Unanswered(suspicion) => write!(f, "{suspicion}, and probes are lost"),
            DownCause::Absent(missing) => missing.fmt(f),
            DownCause::Returning => f.write_str("present again, not heard yet"),
            DownCause::HeldDown => f.write_str("held down: it answers, and went down too often"),
            DownCause::Portal => {
                f.write_str("captive portal: a page answers otherwise than it should")
            }
            DownCause::Check => f.write_str("a check fails"),
        }
    }
}

/// UP, POSSIBLY DOWN, DOWN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// In use.
    Up,
    /// In use, and probes are on their way.
    PossiblyDown(Suspicion),
    /// It answers, and carries nothing of what users begin: it keeps its flows, and takes new ones where no other link is left.
    Captive,
    /// Out of use.
    Down(DownCause),
}

/// Where what users send over a link is answered, as far as its counters tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answers {
    /// By the link itself.
    Here,
    /// By any link without NAT.
    Anywhere,
    /// The same, and those to packets of no flow are not counted.
    Uncounted,
}

/// A probe to send at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Of no other probe of this link.
    pub id: ProbeId,
    /// When it counts as lost, or later if load explains it. Answers after that still count, see [`Availability::answer`].
    pub deadline: Time,
    /// In the list of [`Availability::set_targets`].
    pub target_index: usize,
}

#[derive(Clone, Copy, Debug)]
struct Outstanding {
    id: ProbeId,
    target: usize,
    sent: Time,
    /// On a link without load.
    due: Time,
    /// For queues.
    allowance: Duration,
    judged: bool,
    /// Its loss was noted for the link's quality.
    noted: bool,
    /// It takes no link down.
    beside: bool,
}

impl Outstanding {
    fn deadline(&self) -> Time {
        self.due + self.allowance
    }
}

#[derive(Clone, Copy, Debug)]
struct Sample {
    /// None: passive evidence on a link that is down.
    id: Option<ProbeId>,
    at: Time,
    /// The target that did not answer.
    lost: Option<usize>,
}

/// Since when evidence of one kind is due: since the first packet sent after the last evidence.
#[derive(Clone, Copy, Debug, Default)]
struct Watch(Option<Time>);

impl Watch {
    fn see(&mut self, now: Time, sent: bool, heard: bool) {
        if heard {
            self.0 = None;
        }
        if sent {
            self.0.get_or_insert(now);
        }
    }

    fn due(self, patience: Duration) -> Option<Time> {
        self.0.map(|since| since + patience)
    }
}

/// What is known of the other links of a family, while one is judged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Others {
    /// When any of them was last heard of; none: there are no others.
    pub heard: Option<Time>,
    /// When a connection last made progress over one of them.
    pub carried: Option<Time>,
    /// All of them and this one fell silent at once, and nothing beyond any gateway was heard since.
    pub all_silent: bool,
    /// When each kind of far targets last answered over any of them.
    pub kinds: KindsHeard,
    /// Since when one host complains of one of them: which kinds answer over the others is asked.
    pub complained: Option<Time>,
}

impl Others {
    /// What is known of these and of one more.
    pub fn with(self, one: Others) -> Others {
        Others {
            heard: self.heard.max(one.heard),
            carried: self.carried.max(one.carried),
            all_silent: self.all_silent,
            kinds: self.kinds.with(one.kinds),
            complained: self.complained.max(one.complained),
        }
    }
}

/// A captive link is tried after this at least, and more rarely the more often it fell.
pub const TRIAL: Duration = Duration::from_secs(30);

/// Smoothed round trip of probes, after RFC 6298 §2, with a lower first variation: a wrong loss costs a sample, not data.
#[derive(Clone, Copy, Debug)]
struct RoundTrip {
    smoothed: Duration,
    variation: Duration,
}

impl RoundTrip {
    /// What the link's load explains of a measured round trip is not the link's own.
    fn update(before: Option<RoundTrip>, measured: Duration, allowance: Duration) -> RoundTrip {
        let Some(RoundTrip {
            smoothed,
            variation,
        }) = before
        else {
            return RoundTrip {
                smoothed: measured,
                variation: measured / 8,
            };
        };
        let sample = measured
            .saturating_sub(allowance)
            .max(measured.min(smoothed));
        RoundTrip {
            smoothed: (smoothed * 7 + sample) / 8,
            variation: (variation * 3 + smoothed.abs_diff(sample)) / 4,
        }
    }

    fn patience(self) -> Duration {
        self.smoothed + (self.variation * 4).max(Duration::from_millis(50))
    }
}

/// The machine of one link. `observe`, `answer`, `set_link_state`, `set_targets`, `release` and `tick` take input;
/// `next_probe` and `next_timeout` say what is to be done; [`Availability::state`] is the result.
#[derive(Clone, Debug)]
pub struct Availability {
    config: Config,
    metered: bool,
    answers: Answers,
    state: State,
    /// Any evidence.
    heard: Time,
    /// When users were last seen to send.
    sent: Option<Time>,
    /// Evidence by users' flows that settles what the link's state leaves open.
    proved: Option<Time>,
    weak: Watch,
    strict: Watch,
    complaint: Complaint,
    /// While users complain, a kind that is not heard is silent after so many losses.
    silent_after: u32,
    others: Others,
    /// When a connection last made progress over it.
    progressed: Option<Time>,
    /// When anything beyond the gateway was last heard: that, or a far answer.
    far_heard: Option<Time>,
    /// Since when it is captive, or was.
    captive_since: Time,
    targets: Targets,
    /// Of near and of far targets.
    round_trips: [Option<RoundTrip>; 2],
    outstanding: VecDeque<Outstanding>,
    window: VecDeque<Sample>,
    row: Row,
    answered_in_a_row: u32,
    next_probe: Option<Time>,
    quality: Probes,
    /// Probes that never left the host.
    not_sent: u64,
    /// When any target was asked last.
    asked: Option<Time>,
    /// When a page was asked last.
    page_asked: Option<Time>,
    /// A check of the operator's is down.
    check_fails: bool,
    was_present: bool,
    /// It lacks its address for a moment: nothing is asked, and nothing is judged.
    is_changing: bool,
    falls: Falls,
    /// Held down, or captive.
    held_until: Time,
}

/// Answers to probes older than this are not waited for.
const FORGET_AFTER: Duration = Duration::from_secs(30);
const OUTSTANDING_MAX: usize = 128;
/// Between two questions for a page, ...
const PAGE: Duration = Duration::from_secs(30);
/// ... while somebody else answers them, ...
const PAGE_PORTAL: Duration = Duration::from_secs(5);
/// ... and while one page answers as expected and another does not.
const PAGE_AGAIN: Duration = Duration::from_secs(1);
/// Times these on metered links: a page has a thousand bytes.
const PAGE_METERED: u32 = 4;

impl Availability {
    /// A link whose device is not known yet, with one far target. `config` is valid.
    pub fn new(now: Time, config: Config, metered: bool) -> Self {
        Availability {
            row: Row::new(now, config.down_consecutive),
            config,
            metered,
            answers: Answers::Here,
            state: State::Down(DownCause::Absent(Missing::Device)),
            heard: now,
            sent: None,
            proved: None,
            weak: Watch::default(),
            strict: Watch::default(),
            complaint: Complaint::default(),
            silent_after: 1,
            others: Others::default(),
            progressed: None,
            far_heard: None,
            captive_since: now,
            targets: Targets::new(&[TargetSpec {
                reach: Reach::Far,
                kind: Kind::Dns,
            }]),
            round_trips: [None; 2],
            outstanding: VecDeque::new(),
            window: VecDeque::new(),
            answered_in_a_row: 0,
            next_probe: None,
            quality: Probes::default(),
            not_sent: 0,
            asked: None,
            page_asked: None,
            check_fails: false,
            was_present: false,
            is_changing: false,
            falls: Falls::default(),
            held_until: now,
        }
    }

    // ---- getters

    /// What it is by now.
    pub fn state(&self) -> State {
        self.state
    }

    /// When anything was heard last.
    pub fn heard(&self) -> Time {
        self.heard
    }

    /// Whether it has what it needs to carry packets.
    pub fn is_present(&self) -> bool {
        !matches!(self.state, State::Down(DownCause::Absent(_)))
    }

    /// Whether it waits for its address to come back.
    pub fn is_changing(&self) -> bool {
        self.is_changing
    }

    /// Whether it ever had.
    pub fn was_present(&self) -> bool {
        self.was_present
    }

    /// The last probe that was judged is lost.
    pub fn is_losing(&self) -> bool {
        self.row.lost() > 0
    }

    /// So many losses in a row are no chance on this link.
    pub fn beyond_chance(&self, now: Time) -> u32 {
        let least = self.config.down_consecutive;
        self.row.beyond_chance(self.quality(now), least)
    }

    /// Since when probes are lost and nothing else is heard, if so.
    pub fn silent_since(&self) -> Option<Time> {
        let is_silent = matches!(
            self.state,
            State::PossiblyDown(_) | State::Down(DownCause::Unanswered(_))
        );
        self.row.since().filter(|_| is_silent)
    }

    /// No other link is in use.
    pub fn is_alone(&self) -> bool {
        self.others.heard.is_none()
    }

    /// It went down without word of any other link.
    pub fn fell_unseen(&self) -> bool {
        let is_unanswered = matches!(self.state, State::Down(DownCause::Unanswered(_)));
        is_unanswered && self.others.heard.is_some() && self.row.is_without_word()
    }

    /// When a connection last made progress over it.
    pub fn progressed(&self) -> Option<Time> {
        self.progressed
    }

    /// When anything beyond its gateway was last heard.
    pub fn far_heard(&self) -> Option<Time> {
        self.far_heard
    }

    /// When far targets of each kind last answered.
    pub fn kinds_heard(&self) -> KindsHeard {
        self.targets.heard()
    }

    /// Lost and all probes of the window.
    pub fn loss(&self) -> (usize, usize) {
        (
            self.window
                .iter()
                .filter(|sample| sample.lost.is_some())
                .count(),
            self.window.len(),
        )
    }

    /// Smoothed over the last probes of far targets, or of near ones if no other answers.
    pub fn round_trip(&self) -> Option<Duration> {
        let [near, far] = self.round_trips;
        far.or(near).map(|round_trip| round_trip.smoothed)
    }

    /// Since the beginning.
    pub fn probes_sent(&self) -> u64 {
        self.targets.sent()
    }

    /// Of those, what never left the host.
    pub fn probes_not_sent(&self) -> u64 {
        self.not_sent
    }

    /// In the order of [`Availability::set_targets`].
    pub fn targets(&self) -> &[TargetRecord] {
        self.targets.records()
    }

    /// It is used on the word of near targets: nothing that they prove is on the internet.
    pub fn is_near_only(&self, now: Time) -> bool {
        let near =
            |record: &TargetRecord| record.reach == Reach::Near && record.last_answer.is_some();
        self.near_counts(now) && self.targets().iter().any(near)
    }

    /// What probes tell of the last minute.
    pub fn quality(&self, now: Time) -> ProbeQuality {
        let near_counts = self.near_counts(now);
        self.quality
            .quality(now, |target| self.targets.is_mute(target, near_counts))
    }

    /// Ways of asking that somebody filters, while others are answered.
    pub fn filtered(&self) -> Vec<Kind> {
        self.targets.filtered().collect()
    }

    /// A page that answers otherwise than expected, while that counts.
    pub fn portal(&self) -> Option<usize> {
        self.targets.portal()
    }

    /// How often it went down within the last hour; 20 may be more.
    pub fn falls_within_an_hour(&self, now: Time) -> usize {
        self.falls.within_an_hour(now)
    }

    /// Until when it is held down or captive, if it is.
    pub fn held_until(&self) -> Option<Time> {
        let is_held = matches!(
            self.state,
            State::Captive | State::Down(DownCause::HeldDown)
        );
        is_held.then_some(self.held_until)
    }

    /// How often it went down of late, and the first of those times.
    pub fn falls(&self, now: Time) -> (usize, Option<Time>) {
        let mut recent = self.falls.recent(now, self.config.hold_forget);
        let first = recent.next();
        (usize::from(first.is_some()) + recent.count(), first)
    }

    // ---- input

    /// Goes on with other windows. `config` is valid.
    pub fn configure(&mut self, config: Config, metered: bool) {
        self.config = config;
        self.metered = metered;
    }

    /// Where users' answers are met.
    pub fn set_answers(&mut self, answers: Answers) {
        self.answers = answers;
    }

    /// Whom to probe; at least one. What is known of them stays if they are the same.
    pub fn set_targets(&mut self, specs: &[TargetSpec]) {
        if !self.targets.are(specs) {
            self.targets = Targets::new(specs);
            self.quality.forget();
            self.page_asked = None;
        }
    }

    /// The device, its carrier, address or gateway came or went. A link seen for the first time is used while it is
    /// probed; one that was absent is used when it has answered. A change of address is no absence: a link that had its
    /// address back in time goes on as it was.
    pub fn set_link_state(&mut self, now: Time, link_state: LinkState) {
        match link_state {
            LinkState::Absent(missing) => {
                self.is_changing = false;
                self.forget_probes();
                self.enter(now, State::Down(DownCause::Absent(missing)));
            }
            LinkState::Changing if self.is_present() && !self.is_changing => {
                self.is_changing = true;
                self.forget_probes();
            }
            LinkState::Changing => {}
            LinkState::Present if self.is_changing => {
                self.is_changing = false;
                self.heard = now;
                self.next_probe = is_probed(self.state).then_some(now);
            }
            LinkState::Present if self.is_present() => {}
            LinkState::Present => {
                self.forget_probes();
                self.round_trips = [None; 2];
                self.targets.forget();
                let first = !std::mem::replace(&mut self.was_present, true);
                let unproven = State::PossiblyDown(Suspicion::Unproven);
                self.enter(
                    now,
                    if first {
                        unproven
                    } else {
                        State::Down(DownCause::Returning)
                    },
                );
            }
        }
    }

    /// `carried` went over the link since the last call.
    pub fn observe(&mut self, now: Time, carried: &Traffic, load: &LinkLoad) {
        if !self.is_present() || self.is_changing {
            return;
        }
        let sent = carried.tx_packets > 0;
        let heard = carried.rx_packets > 0;
        let proved = carried.rx_progress > 0;
        self.weak.see(now, sent, heard);
        self.strict.see(now, sent, proved);
        if sent {
            self.sent = Some(now);
        }
        if self.answers == Answers::Here {
            self.complaint.see(now, carried);
        }
        if heard {
            self.heard = now;
        }
        if proved || (heard && self.is_settled_by_any_packet()) {
            self.proved = Some(now);
        }
        if proved {
            (self.progressed, self.far_heard) = (Some(now), Some(now));
        }
        match self.state {
            State::Captive if proved => self.enter(now, State::Up),
            State::PossiblyDown(Suspicion::Silent | Suspicion::Idle) if heard => {
                self.enter(now, State::Up)
            }
            State::PossiblyDown(_) if proved => self.enter(now, State::Up),
            State::Down(_) if self.proved == Some(now) && self.may_count_passive(now) => {
                self.win(now, None)
            }
            State::Up
                if carried.syn_retries > 0
                    && self
                        .strict
                        .due(self.config.silence)
                        .is_some_and(|due| due <= now) =>
            {
                self.enter(now, State::PossiblyDown(Suspicion::OneWay));
            }
            _ => {}
        }
        self.tick(now, load);
    }

    /// How the other links of its family fare by now.
    pub fn set_others(&mut self, now: Time, others: Others) {
        self.others = others;
        self.row.hear(now, others.heard);
        self.judge_complaint(now);
    }

    /// Another link wants to be compared with this one.
    pub fn ask_soon(&mut self, now: Time) {
        if self.state == State::Up && !self.is_changing {
            self.enter(now, State::PossiblyDown(Suspicion::Idle));
        }
    }

    /// Nothing but silence speaks against the link.
    fn is_settled_by_any_packet(&self) -> bool {
        let (State::PossiblyDown(suspicion) | State::Down(DownCause::Unanswered(suspicion))) =
            self.state
        else {
            return false;
        };
        matches!(suspicion, Suspicion::Silent | Suspicion::Idle)
    }

    /// Probe `id` was answered `round_trip` after it was sent, in time or not.
    pub fn answer(&mut self, now: Time, id: ProbeId, round_trip: Duration) {
        let Some(at) = self.outstanding.iter().position(|probe| probe.id == id) else {
            return;
        };
        let Some(probe) = self.outstanding.remove(at) else {
            return;
        };
        let counts = self.targets.counts(probe.target, self.near_counts(now));
        let before = self.targets.records().get(probe.target);
        let before = before.and_then(|record| record.round_trip);
        self.quality
            .answered(now, (id, probe.target), round_trip, before);
        self.targets.answered(probe.target, now, round_trip);
        if self.targets.counts(probe.target, false) {
            self.far_heard = Some(now);
        }
        self.follow_bar(now);
        if self.state == State::Captive && self.targets.kinds_heard(self.captive_since) > 1 {
            self.enter(now, State::Up);
        }
        let smoothed = self.round_trip_of(probe.target);
        // A busy link is slower than it is by itself.
        if probe.beside && smoothed.is_some() {
            return;
        }
        *smoothed = Some(RoundTrip::update(*smoothed, round_trip, probe.allowance));
        if !counts || probe.beside {
            return;
        }
        self.heard = now;
        self.weak = Watch::default();
        self.strict = Watch::default();
        self.win(now, Some(id));
    }

    /// Probe `id` never left the host, which proves nothing of the link.
    pub fn withdraw(&mut self, id: ProbeId) {
        let Some(at) = self.outstanding.iter().position(|probe| probe.id == id) else {
            return;
        };
        if let Some(probe) = self.outstanding.remove(at) {
            self.not_sent += 1;
            self.targets.withdrawn(probe.target);
        }
    }

    /// Who answers probe `id` is not who was asked.
    pub fn answer_wrong(&mut self, now: Time, id: ProbeId) {
        let Some(at) = self.outstanding.iter().position(|probe| probe.id == id) else {
            return;
        };
        if let Some(probe) = self.outstanding.remove(at) {
            self.targets.answered_wrong(probe.target, now);
            self.follow_bar(now);
        }
    }

    /// Whether a check of the operator's is down.
    pub fn set_check(&mut self, now: Time, fails: bool) {
        self.check_fails = fails;
        self.follow_bar(now);
    }

    /// What keeps the link out of use though it answers.
    fn bar(&self) -> Option<DownCause> {
        match self.targets.portal() {
            _ if self.check_fails => Some(DownCause::Check),
            Some(_) => Some(DownCause::Portal),
            None => None,
        }
    }

    fn follow_bar(&mut self, now: Time) {
        match (self.state, self.bar()) {
            (
                State::Up
                | State::PossiblyDown(_)
                | State::Captive
                | State::Down(DownCause::HeldDown | DownCause::Portal | DownCause::Check),
                Some(bar),
            ) => self.enter(now, State::Down(bar)),
            (State::Down(DownCause::Portal | DownCause::Check), None) => {
                let next = self.admitted(now);
                self.enter(now, next);
            }
            _ => {}
        }
    }

    /// What becomes of a link that answers.
    fn admitted(&self, now: Time) -> State {
        if let Some(bar) = self.bar() {
            State::Down(bar)
        } else if now < self.held_until {
            State::Down(DownCause::HeldDown)
        } else {
            State::Up
        }
    }

    fn round_trip_of(&mut self, target: usize) -> &mut Option<RoundTrip> {
        let is_far = self.targets.counts(target, false);
        &mut self.round_trips[usize::from(is_far)]
    }

    /// Lifts a hold-down: no other link is left.
    pub fn release(&mut self, now: Time) {
        if self.state == State::Down(DownCause::HeldDown) {
            self.enter(now, State::Up);
        }
    }

    /// Time passes: probes miss their deadlines, and suspicions arise.
    ///
    /// A probe that meets its deadline while packets arrive, and may be queued with them, is waited for longer.
    pub fn tick(&mut self, now: Time, load: &LinkLoad) {
        while self
            .outstanding
            .front()
            .is_some_and(|probe| now.since(probe.due) > FORGET_AFTER)
        {
            self.outstanding.pop_front();
        }
        self.judge_late_probes(now, load);
        self.follow_bar(now);
        if self.held_until().is_some_and(|until| until <= now) {
            self.enter(now, State::Up);
        }
        if self.row.ripe_at().is_some() {
            self.judge_loss(now);
        }
        if let Some((suspicion, _)) = self
            .suspicions()
            .into_iter()
            .find(|(_, due)| due.is_some_and(|due| due <= now))
        {
            self.enter(now, State::PossiblyDown(suspicion));
        }
    }

    fn judge_late_probes(&mut self, now: Time, load: &LinkLoad) {
        let is_late = |probe: &&mut Outstanding| !probe.noted && probe.deadline() <= now;
        if self.may_be_queued(now, load) {
            for probe in self.outstanding.iter_mut().filter(is_late) {
                probe.allowance = self.config.queue_max;
            }
        }
        while let Some(probe) = self.outstanding.iter_mut().find(is_late) {
            probe.noted = true;
            let was_judged = std::mem::replace(&mut probe.judged, true);
            let probe = *probe;
            if !matches!(self.state, State::Down(_)) {
                self.quality.lost(now, (probe.id, probe.target));
            }
            match (was_judged, probe.beside) {
                (false, false) => self.lose(now, probe),
                _ => self.targets.lost(probe.target, probe.sent),
            }
        }
    }

    /// What a probe waits for may stand in the ISP's queue with what users receive.
    fn may_be_queued(&self, now: Time, load: &LinkLoad) -> bool {
        let lately = |at: Time| now.since(at) < self.config.silence;
        match self.answers {
            Answers::Uncounted => self.sent.is_some_and(lately),
            Answers::Here | Answers::Anywhere => load.may_queue_unseen() && lately(self.heard),
        }
    }

    // ---- output

    /// The probe to send at `now`, if one is due.
    pub fn next_probe(&mut self, now: Time, load: &LinkLoad) -> Option<Probe> {
        if self.next_probe.is_some_and(|due| due <= now) {
            let target = match self.state {
                State::Captive => self.targets.next_of_any_kind(),
                _ => {
                    let asks = self.asks();
                    self.targets.next(self.near_counts(now), asks)
                }
            };
            let probe = self.ask(now, load, target, false);
            self.next_probe = Some(now + self.pace(now, probe.deadline));
            return Some(probe);
        }
        if let Some(since) = self.comparison_since()
            && let Some(target) = self.targets.next_unheard(since, self.silent_after)
        {
            return Some(self.ask(now, load, target, true));
        }
        if self.page_due().is_some_and(|due| due <= now) {
            self.page_asked = Some(now);
            let target = self.targets.next_page()?;
            return Some(self.ask(now, load, target, true));
        }
        if self.measure_due().is_some_and(|due| due <= now) {
            let target = self.targets.next(self.near_counts(now), Asks::All);
            return Some(self.ask(now, load, target, true));
        }
        None
    }

    fn ask(&mut self, now: Time, load: &LinkLoad, target: usize, beside: bool) -> Probe {
        let probe = Outstanding {
            id: ProbeId(self.targets.sent() - 1),
            target,
            sent: now,
            due: now + self.patience(target),
            allowance: load.queue_up(now),
            judged: false,
            noted: false,
            beside,
        };
        if self.outstanding.len() == OUTSTANDING_MAX {
            self.outstanding.pop_front();
        }
        self.outstanding.push_back(probe);
        self.targets.asked(target, now);
        self.asked = Some(now);
        Probe {
            id: probe.id,
            deadline: probe.deadline(),
            target_index: target,
        }
    }

    /// Whom, by what depends on the answer.
    fn asks(&self) -> Asks {
        match self.state {
            State::PossiblyDown(Suspicion::Idle) if !self.is_losing() => Asks::All,
            State::PossiblyDown(Suspicion::Unproven) | State::Down(_) => Asks::Known,
            _ => Asks::Trusted,
        }
    }

    /// When to call [`Availability::next_probe`].
    pub fn probe_due(&self) -> Option<Time> {
        let unheard = self
            .comparison_since()
            .filter(|since| self.targets.has_unheard(*since, self.silent_after));
        let due = [
            self.next_probe,
            unheard,
            self.page_due(),
            self.measure_due(),
        ];
        due.into_iter().flatten().min()
    }

    fn page_due(&self) -> Option<Time> {
        let interval = match self.state {
            State::Down(DownCause::Portal) => PAGE_PORTAL,
            State::Up
            | State::PossiblyDown(_)
            | State::Captive
            | State::Down(DownCause::HeldDown | DownCause::Check) => PAGE,
            State::Down(_) => return None,
        };
        if !self.targets.has_pages_beside() {
            return None;
        }
        let interval = match (self.targets.is_portal_in_question(), self.metered) {
            (true, _) => PAGE_AGAIN,
            (false, true) => interval * PAGE_METERED,
            (false, false) => interval,
        };
        let asked = self.page_asked.map(|asked| asked + interval);
        Some(asked.unwrap_or(Time::ZERO))
    }

    /// Seldom enough that a link without traffic, which is asked for being idle, is not asked twice.
    fn measure_due(&self) -> Option<Time> {
        let is_due = self.config.measures && self.state == State::Up;
        let interval = self.slowed(self.config.idle_probe) * 6 / 5;
        self.asked.filter(|_| is_due).map(|asked| asked + interval)
    }

    /// When to call [`Availability::tick`].
    pub fn next_timeout(&self) -> Option<Time> {
        let deadlines = self
            .outstanding
            .iter()
            .filter(|probe| !probe.judged)
            .map(Outstanding::deadline);
        deadlines
            .chain(self.held_until())
            .chain(self.row.ripe_at())
            .chain(self.suspicions().into_iter().filter_map(|(_, due)| due))
            .min()
    }

    // ---- rules

    fn near_counts(&self, now: Time) -> bool {
        self.others.all_silent || self.targets.are_far_given_up(now, self.config.far_silence)
    }

    /// Since when users complain of a link that is in use, while connections are carried over another.
    fn complaint_since(&self) -> Option<Time> {
        let since = self.complaint.grave_since()?;
        let is_compared = self.others.carried > Some(since);
        (self.is_in_use() && is_compared).then_some(since)
    }

    /// The same, where it depends on what other links show.
    pub fn complaint_to_compare(&self) -> Option<Time> {
        let since = self.complaint_since();
        since.filter(|_| self.complaint.is_of_one_host())
    }

    /// Since when it is of weight which kinds of far targets answer over this link: users complain of it, or of another.
    fn comparison_since(&self) -> Option<Time> {
        let of_another = self.others.complained;
        let of_another = of_another.filter(|_| self.is_in_use() && !self.is_changing);
        self.complaint_since().max(of_another)
    }

    fn is_in_use(&self) -> bool {
        matches!(self.state, State::Up | State::PossiblyDown(_))
    }

    /// Once every kind of far targets was asked: whether more than one of them speaks for the link.
    fn judge_complaint(&mut self, now: Time) {
        let Some(since) = self.complaint_since() else {
            return;
        };
        let least = self.config.down_consecutive;
        self.silent_after = self.row.silent_after(self.quality(now), least);
        let is_silent = |(spec, lost): (TargetSpec, u32)| {
            let late = self.outstanding.iter().filter(|probe| {
                let is_late = probe.sent > since && probe.due <= now && !probe.noted;
                is_late && self.targets.is_of(probe.target, spec)
            });
            lost + late.count() as u32 >= self.silent_after
        };
        let unheard = || self.targets.kinds_unheard(since);
        // A kind that is silent on all links says nothing of this one.
        let is_heard_elsewhere =
            |(spec, _): (TargetSpec, u32)| self.others.kinds.last(spec.kind) > Some(since);
        let is_borne_out = !self.complaint.is_of_one_host() || unheard().any(is_heard_elsewhere);
        let are_silent = unheard().all(is_silent);
        if is_borne_out && are_silent && self.targets.kinds_heard(since) < 2 {
            self.enter(now, State::Captive);
        }
    }

    /// What would make this link suspect, and when.
    fn suspicions(&self) -> [(Suspicion, Option<Time>); 3] {
        let up = self.state == State::Up && !self.is_changing;
        let idle = self.heard + self.slowed(self.config.idle_probe);
        [
            (
                Suspicion::Silent,
                self.weak.due(self.config.silence).filter(|_| up),
            ),
            (
                Suspicion::OneWay,
                self.strict.due(self.config.one_way).filter(|_| up),
            ),
            (Suspicion::Idle, Some(idle).filter(|_| up)),
        ]
    }

    /// Segments that acknowledge new data say as much as one answer per probe interval.
    fn may_count_passive(&self, now: Time) -> bool {
        let last = self.window.iter().rev().find(|sample| sample.id.is_none());
        last.is_none_or(|sample| now.since(sample.at) >= self.config.probe_interval)
    }

    fn win(&mut self, now: Time, id: Option<ProbeId>) {
        if !matches!(self.state, State::Down(_)) {
            self.row.learn();
        }
        self.row.end();
        self.answered_in_a_row += 1;
        match self
            .window
            .iter_mut()
            .find(|sample| id.is_some() && sample.id == id)
        {
            Some(sample) => sample.lost = None,
            None => self.record(now, id, None),
        }
        let near_counts = self.near_counts(now);
        let targets = &self.targets;
        self.window.retain(|sample| {
            !sample
                .lost
                .is_some_and(|target| targets.is_mute(target, near_counts))
        });
        self.judge_answer(now);
    }

    fn judge_answer(&mut self, now: Time) {
        let (lost, _) = self.loss();
        match self.state {
            State::PossiblyDown(_) if !self.is_window_lost() => self.enter(now, State::Up),
            State::PossiblyDown(suspicion) => {
                self.enter(now, State::Down(DownCause::Unanswered(suspicion)))
            }
            State::Down(DownCause::Unanswered(_) | DownCause::Returning)
                if lost <= self.config.up_loss
                    && self.answered_in_a_row > self.config.up_consecutive =>
            {
                let next = self.admitted(now);
                self.enter(now, next);
            }
            State::Captive
            | State::Down(DownCause::HeldDown | DownCause::Portal | DownCause::Check) => {}
            State::Down(_) if self.answered_in_a_row == 1 => self.probe_soon(now),
            _ => {}
        }
    }

    fn lose(&mut self, now: Time, probe: Outstanding) {
        self.row
            .expect(self.quality(now), self.config.down_consecutive);
        self.targets.lost(probe.target, probe.sent);
        let near_counts = self.near_counts(now);
        let counts = self.targets.counts(probe.target, near_counts)
            && !self.targets.is_mute(probe.target, near_counts)
            && self.proved.is_none_or(|proved| proved < probe.sent);
        if counts {
            self.record(now, Some(probe.id), Some(probe.target));
            self.row.lose(probe.sent);
            self.answered_in_a_row = 0;
        }
        match self.state {
            State::PossiblyDown(_)
            | State::Captive
            | State::Down(DownCause::HeldDown | DownCause::Portal | DownCause::Check)
                if counts =>
            {
                self.probe_soon(now);
                self.judge_loss(now);
            }
            State::PossiblyDown(_)
            | State::Down(DownCause::HeldDown | DownCause::Portal | DownCause::Check) => {
                self.probe_soon(now);
            }
            State::Up | State::Captive | State::Down(_) => {}
        }
    }

    /// Down, if enough is lost, and the verdict is ripe or there is no other link.
    fn judge_loss(&mut self, now: Time) {
        let suspicion = match self.state {
            State::PossiblyDown(suspicion) => suspicion,
            _ => Suspicion::Idle,
        };
        if !self.is_too_much_lost() {
            self.row.rest();
            return;
        }
        if self.row.is_ripe(now) || self.is_alone() {
            self.enter(now, State::Down(DownCause::Unanswered(suspicion)));
        }
    }

    fn is_too_much_lost(&self) -> bool {
        self.row.is_enough() || self.is_window_lost()
    }

    /// On a link that loses probes anyway, they are no sign.
    fn is_window_lost(&self) -> bool {
        let is_clean = self.row.is_of_clean_link(self.config.down_consecutive);
        is_clean && self.loss().0 >= self.config.down_loss
    }

    fn probe_soon(&mut self, now: Time) {
        let soon = now + self.config.probe_interval;
        self.next_probe = self.next_probe.map(|due| due.min(soon));
    }

    fn record(&mut self, now: Time, id: Option<ProbeId>, lost: Option<usize>) {
        let (length, age) = (self.config.window, self.config.window_age);
        self.window.retain(|sample| now.since(sample.at) <= age);
        if self.window.len() == length {
            self.window.pop_front();
        }
        self.window.push_back(Sample { id, at: now, lost });
    }

    fn enter(&mut self, now: Time, state: State) {
        if state == self.state {
            return;
        }
        if !is_probed(state) {
            self.next_probe = None;
        } else if !is_probed(self.state) {
            self.next_probe = Some(now);
        }
        self.row.rest();
        if state == State::Up {
            self.row.end();
            self.outstanding
                .iter_mut()
                .filter(|probe| !probe.beside)
                .for_each(|probe| probe.judged = true);
        }
        let was_trusted = !matches!(
            self.state,
            State::Down(_) | State::PossiblyDown(Suspicion::Unproven)
        );
        if was_trusted && matches!(state, State::Down(_) | State::Captive) {
            self.fall(now, state);
        }
        // That it was lost is told by its state. How it fares begins anew when it is back.
        if matches!(state, State::Down(_)) {
            self.quality.forget_judged();
        }
        self.answered_in_a_row = 0;
        self.state = state;
    }

    fn fall(&mut self, now: Time, state: State) {
        let mut hold = self.falls.add(now, &self.config);
        if state == State::Captive {
            hold = hold.max(TRIAL);
            self.captive_since = now;
        }
        self.held_until = now + hold;
        self.complaint = Complaint::default();
    }

    /// How long until the probe after one with this deadline.
    fn pace(&self, now: Time, deadline: Time) -> Duration {
        match self.state {
            State::PossiblyDown(Suspicion::Idle) if !self.is_losing() => deadline.since(now),
            State::Captive
            | State::Down(DownCause::HeldDown | DownCause::Portal | DownCause::Check)
                if !self.is_losing() =>
            {
                self.slowed(self.config.idle_probe).max(deadline.since(now))
            }
            State::Down(_) if self.answered_in_a_row == 0 => self.slowed(self.config.down_interval),
            _ => self.config.probe_interval,
        }
    }

    fn patience(&self, target: usize) -> Duration {
        let is_far = self.targets.counts(target, false);
        let Some(round_trip) = self.round_trips[usize::from(is_far)] else {
            return self.config.deadline_unmeasured;
        };
        round_trip
            .patience()
            .clamp(self.config.deadline_min, self.config.deadline_max)
    }

    fn slowed(&self, interval: Duration) -> Duration {
        interval * self.config.times_rarer(self.metered)
    }

    fn forget_probes(&mut self) {
        self.outstanding.clear();
        self.window.clear();
        self.row.end();
        self.proved = None;
        self.sent = None;
        self.weak = Watch::default();
        self.strict = Watch::default();
        self.complaint = Complaint::default();
        self.next_probe = None;
        self.quality.forget();
        self.page_asked = None;
    }
}

/// Whether probes are sent at a pace of their own.
fn is_probed(state: State) -> bool {
    !matches!(state, State::Up | State::Down(DownCause::Absent(_)))
}
