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

/// A captive link is tried after this at least, and more rarely the more often it fell.
pub const TRIAL: Duration = Duration::from_secs(30);

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
    outstanding: Unanswered,
    window: Window,
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
        self.window.loss()
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

    /// Whether a check of the operator's is down.
    pub fn set_check(&mut self, now: Time, fails: bool) {
        self.check_fails = fails;
        self.follow_bar(now);
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
