//! Decides whether one link works: the state machine of Guo 2004, figure 2. docs/availability.md explains it for users.
//!
//! ```text
//!            suspicion                 probes lost (foolsm)
//!    UP  ───────────────►  POSSIBLY DOWN  ───────────────►  DOWN
//!    │▲ ◄───── evidence ─────     ▲  link still used           │
//!    │└──────────── answers in a row, little loss ◄────────────┘
//!    │              and not held down
//!    └── users' SYNs fail, at most one kind of targets answers ──►  CAPTIVE: keeps its flows, takes no new ones
//! ```
//!
//! *Evidence* that the link works is weak (any packet came in) or strict (a TCP segment acknowledged new data, or a probe was
//! answered: both directions work). A *suspicion* arises when packets were sent and nothing came in ([`Suspicion::Silent`]), when
//! nothing that came in proved that sent packets arrive ([`Suspicion::OneWay`]), or when nothing came in for long
//! ([`Suspicion::Idle`]). A suspicion only causes probes. It also arises when traffic merely ends, because a download that was cut
//! off and one that is complete look alike. Any packet ends `Silent` and `Idle`, only strict evidence ends `OneWay`.
//!
//! Only lost probes take a link down, by the rule of foolsm: too many in a row, or too many in the window. On a link that loses
//! probes anyway, the row must be so long that chance produces it only once in [`CHANCE`] rows. A probe is lost at its deadline.
//! The deadline allows for the measured round trip, and for the queue that the link's own load explains. Towards the internet, that
//! is what was sent and cannot have left yet. Towards the LAN the queue is at the ISP and cannot be seen, so the allowance is a
//! fixed time as long as packets keep arriving. If an answer comes after the deadline, the loss is taken back.
//!
//! If all links fail at once, the cause is probably not the links. So a verdict waits for a packet or answer over another link
//! ([`Others`]). While no link has one, answers of the gateways count. After [`COMMON`] the link is declared down without it.
//!
//! [`targets`](crate::targets) says which targets count. Users' traffic counts more: if users' flows prove that the link works
//! after a probe was sent, the probe's loss does not count, and such evidence also brings a link up that is down.
//!
//! Users can also show that a link fails although its probes are answered ([`Complaint`]): SYNs are retransmitted over it, and are
//! counted by distinct hosts and distinct remote ends. Two hosts and two ends outweigh the answers of near targets and of one kind
//! of far targets, but not of two kinds. So do three ends of one host, if another kind of targets is silent as well that answers
//! over another link. Both count only while connections make progress over another link. Such a link is *captive*: it answers
//! probes but carries no new connections. This evidence can be forged, so it ends no flows. The link is used again when a second
//! kind of targets answers, when users' flows prove that it works, or for a trial after [`TRIAL`].
//!
//! Over links without NAT, answers may come back over another link, so retransmitted SYNs are no evidence against the link. Silence
//! still makes it suspect, and its probes decide. Where answers are not counted at all ([`Answers::Uncounted`]), a late probe gets
//! the allowance for queues as long as packets are sent.
//!
//! A link that goes down repeatedly is held down: it is not used although it answers. The first failure causes no hold-down. The
//! time doubles with each further one, from [`Config::hold_down`] to [`Config::hold_down_max`], and one failure is forgotten after
//! each [`Config::hold_forget`] without another. The caller ends the hold-down of the last remaining link
//! ([`Availability::release`]).
//!
//! If a page answers otherwise than expected, a captive portal is in the way, and the link goes down until a page answers as
//! expected. A check of the operator ([`checks`](crate::checks)) that is down has the same effect; it is reported by
//! [`Availability::set_check`]. Some probes are sent *beside* those of suspicions: to pages, and with [`Config::measures`] to one
//! target now and then on busy links. They provide figures for display, and their loss takes no link down.
//!
//! The state machine reads no clock and sends nothing. It never declares a link down for being slow or lossy while TCP connections
//! make progress over it.

mod asking;
mod complaint;
mod evidence;
mod falls;
mod others;
mod outstanding;
mod round_trip;
mod row;
mod state;
mod verdict;
mod window;

use std::time::Duration;

use crate::bandwidth::LinkLoad;
use crate::config::Config;
use crate::link::{LinkState, Missing};
use crate::quality::{ProbeQuality, Probes};
pub use crate::targets::KindsHeard;
use crate::targets::{Kind, Reach, TargetRecord, TargetSpec, Targets};
use crate::time::Time;
use complaint::Complaint;
use evidence::Watch;
use falls::Falls;
use outstanding::Unanswered;
use round_trip::RoundTrip;
use row::Row;
use window::Window;

pub use asking::Probe;
pub use others::Others;
pub use row::{CHANCE, COMMON};
pub use state::{DownCause, State, Suspicion};

/// Over which links answers to users' packets come back, and whether counters show them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answers {
    /// Over this link.
    Here,
    /// Over any link without NAT.
    Anywhere,
    /// Over any link without NAT; and packets that belong to no flow are not counted.
    Uncounted,
}

/// Minimum time before a captive link is tried again. It is longer after repeated failures.
pub const TRIAL: Duration = Duration::from_secs(30);

/// The state machine of one link. `observe`, `answer`, `set_link_state`, `set_targets`, `release` and `tick` take input;
/// `next_probe` and `next_timeout` say what is to be done; [`Availability::state`] is the result.
#[derive(Clone, Debug)]
pub struct Availability {
    config: Config,
    metered: bool,
    answers: Answers,
    state: State,
    /// Time of the last evidence of any kind.
    heard: Time,
    /// Time at which counters last showed sent packets.
    sent: Option<Time>,
    /// Time at which users' flows last proved enough to end the present suspicion.
    proved: Option<Time>,
    weak: Watch,
    strict: Watch,
    complaint: Complaint,
    /// While users complain, a kind of targets counts as silent after this many losses in a row.
    silent_after: u32,
    others: Others,
    /// When a connection last made progress over it.
    progressed: Option<Time>,
    /// When a host beyond the gateway was last heard: progress of a connection, or the answer of a far target.
    far_heard: Option<Time>,
    /// When it became captive the last time.
    captive_since: Time,
    targets: Targets,
    /// Smoothed round trips of near and of far targets.
    round_trips: [Option<RoundTrip>; 2],
    outstanding: Unanswered,
    window: Window,
    row: Row,
    answered_in_a_row: u32,
    next_probe: Option<Time>,
    quality: Probes,
    /// Number of probes that could not be sent.
    not_sent: u64,
    /// Time of the last probe to any target.
    asked: Option<Time>,
    /// Time of the last probe to a page.
    page_asked: Option<Time>,
    /// Whether a check of the operator is down.
    check_fails: bool,
    was_present: bool,
    /// Whether the address is missing and may come back: no probes are sent and nothing is judged meanwhile.
    is_changing: bool,
    falls: Falls,
    /// End of the hold-down, or of the minimum time as captive.
    held_until: Time,
}

impl Availability {
    /// A link whose device is still unknown, with one far target. `config` must be valid.
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
            outstanding: Unanswered::default(),
            window: Window::default(),
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

    /// The state as of the last input.
    pub fn state(&self) -> State {
        self.state
    }

    /// Time of the last packet or answer.
    pub fn heard(&self) -> Time {
        self.heard
    }

    /// Whether it has a device, carrier, address and gateway.
    pub fn is_present(&self) -> bool {
        !matches!(self.state, State::Down(DownCause::Absent(_)))
    }

    /// Whether it waits for its address to come back.
    pub fn is_changing(&self) -> bool {
        self.is_changing
    }

    /// Whether it was present at any time.
    pub fn was_present(&self) -> bool {
        self.was_present
    }

    /// Whether the last probe that was judged is lost.
    pub fn is_losing(&self) -> bool {
        self.row.lost() > 0
    }

    /// How many losses in a row cannot be chance on this link.
    pub fn beyond_chance(&self, now: Time) -> u32 {
        let least = self.config.down_consecutive;
        self.row.beyond_chance(self.quality(now), least)
    }

    /// Since when probes are lost and nothing else is heard; none otherwise.
    pub fn silent_since(&self) -> Option<Time> {
        let is_silent = matches!(
            self.state,
            State::PossiblyDown(_) | State::Down(DownCause::Unanswered(_))
        );
        self.row.since().filter(|_| is_silent)
    }

    /// Whether no other link is in use.
    pub fn is_alone(&self) -> bool {
        self.others.heard.is_none()
    }

    /// Whether it went down while no other link was heard.
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

    /// Number of lost probes and of all probes in the window.
    pub fn loss(&self) -> (usize, usize) {
        self.window.loss()
    }

    /// Smoothed round trip of far targets, or of near ones if no far target answers.
    pub fn round_trip(&self) -> Option<Duration> {
        let [near, far] = self.round_trips;
        far.or(near).map(|round_trip| round_trip.smoothed)
    }

    /// Probes since the start.
    pub fn probes_sent(&self) -> u64 {
        self.targets.sent()
    }

    /// Those of them that could not be sent.
    pub fn probes_not_sent(&self) -> u64 {
        self.not_sent
    }

    /// The targets, in the order of [`Availability::set_targets`].
    pub fn targets(&self) -> &[TargetRecord] {
        self.targets.records()
    }

    /// Whether only near targets answer, which do not prove that the internet is reachable.
    pub fn is_near_only(&self, now: Time) -> bool {
        let near =
            |record: &TargetRecord| record.reach == Reach::Near && record.last_answer.is_some();
        self.near_counts(now) && self.targets().iter().any(near)
    }

    /// Figures of the last minute's probes.
    pub fn quality(&self, now: Time) -> ProbeQuality {
        let near_counts = self.near_counts(now);
        self.quality
            .quality(now, |target| self.targets.is_mute(target, near_counts))
    }

    /// Kinds of probes that are filtered somewhere while other kinds are answered.
    pub fn filtered(&self) -> Vec<Kind> {
        self.targets.filtered().collect()
    }

    /// Index of a page that answers otherwise than expected, unless another page contradicts it.
    pub fn portal(&self) -> Option<usize> {
        self.targets.portal()
    }

    /// How often it went down within the last hour; 20 may be more.
    pub fn falls_within_an_hour(&self, now: Time) -> usize {
        self.falls.within_an_hour(now)
    }

    /// Until when it is held down or captive.
    pub fn held_until(&self) -> Option<Time> {
        let is_held = matches!(
            self.state,
            State::Captive | State::Down(DownCause::HeldDown)
        );
        is_held.then_some(self.held_until)
    }

    /// Number of failures that are not forgotten, and the time of the first.
    pub fn falls(&self, now: Time) -> (usize, Option<Time>) {
        let mut recent = self.falls.recent(now, self.config.hold_forget);
        let first = recent.next();
        (usize::from(first.is_some()) + recent.count(), first)
    }

    // ---- input

    /// Changes the configuration and keeps the state. `config` must be valid.
    pub fn configure(&mut self, config: Config, metered: bool) {
        self.config = config;
        self.metered = metered;
    }

    /// Sets over which links answers to users' packets come back.
    pub fn set_answers(&mut self, answers: Answers) {
        self.answers = answers;
    }

    /// Sets the targets; at least one. If they are unchanged, what is known of them is kept.
    pub fn set_targets(&mut self, specs: &[TargetSpec]) {
        if !self.targets.are(specs) {
            self.targets = Targets::new(specs);
            self.quality.forget();
            self.page_asked = None;
        }
    }

    /// Reports a change of device, carrier, address or gateway. A link that is seen for the first time is used while it is probed;
    /// one that was absent is used when it has answered. If a link loses its address and has it back in time, its state does not
    /// change.
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
                self.next_probe = self.state.is_probed().then_some(now);
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

    /// Reports the state of the family's other links.
    pub fn set_others(&mut self, now: Time, others: Others) {
        self.others = others;
        self.row.hear(now, others.heard);
        self.judge_complaint(now);
    }

    /// Another link needs this one for comparison, so probe it soon.
    pub fn ask_soon(&mut self, now: Time) {
        if self.state == State::Up && !self.is_changing {
            self.enter(now, State::PossiblyDown(Suspicion::Idle));
        }
    }

    /// Reports whether a check of the operator is down.
    pub fn set_check(&mut self, now: Time, fails: bool) {
        self.check_fails = fails;
        self.follow_bar(now);
    }

    /// Ends a hold-down, because no other link is left.
    pub fn release(&mut self, now: Time) {
        if self.state == State::Down(DownCause::HeldDown) {
            self.enter(now, State::Up);
        }
    }

    /// Handles deadlines of probes, and suspicions that are due.
    ///
    /// If a probe is late while packets arrive, it may be queued behind them, and gets more time.
    pub fn tick(&mut self, now: Time, load: &LinkLoad) {
        self.outstanding.forget_old(now);
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

    /// When to call [`Availability::tick`].
    pub fn next_timeout(&self) -> Option<Time> {
        let deadlines = self
            .outstanding
            .iter()
            .filter(|probe| !probe.judged)
            .map(|probe| probe.deadline());
        deadlines
            .chain(self.held_until())
            .chain(self.row.ripe_at())
            .chain(self.suspicions().into_iter().filter_map(|(_, due)| due))
            .min()
    }

    fn near_counts(&self, now: Time) -> bool {
        self.others.all_silent || self.targets.are_far_given_up(now, self.config.far_silence)
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
