//! What is sent, when, and what its acknowledgements mean.

mod choose;
mod hear;
mod repair;

use std::num::NonZeroU32;

use super::control::Window;
use super::pacing::Paced;
use super::phase::Phase;
use super::rack::Rack;
use super::scoreboard::Scoreboard;
use super::timer::RetransmissionTimeout;
use super::undo::Undo;
use super::{Recovery, TcpConfig};

/// The first number after the SYN.
pub(super) const FIRST: u32 = 1;
/// A sender with this end never runs out of data.
const ENDLESS: u32 = u32::MAX - 1;

/// What the sender's deadline is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Alarm {
    /// RFC 6298.
    Retransmission,
    /// Nothing was heard for two round trips, RFC 8985 section 7.
    Probe,
    /// Something is late, RFC 8985 section 6.
    Reordering,
}

/// Events of one sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SenderCounters {
    /// Segments, whether for the first time or again.
    pub sent: u32,
    /// Of them, those sent again.
    pub retransmitted: u32,
    /// Recoveries begun without a timeout.
    pub fast_retransmits: u32,
    /// Timeouts that ran out.
    pub timeouts: u32,
    /// Reductions of the window that were taken back.
    pub undone: u32,
    /// Probes of the tail.
    pub probes: u32,
    /// Reductions of the window because packets were marked.
    pub marked: u32,
}

#[derive(Debug)]
pub struct Sender {
    una: u32,
    next: u32,
    /// Everything below was sent at least once.
    high: u32,
    end: u32,
    closed: bool,
    /// Segments shorter than the MSS, ends of what was written: number and bytes.
    short: Vec<(u32, u32)>,
    window: Window,
    phase: Phase,
    duplicates: u32,
    recover: u32,
    /// Whether this recovery has seen a partial acknowledgement.
    partial: bool,
    /// Send `una` whatever the window says.
    force: bool,
    /// The window was reduced, of which the receiver is to be told (RFC 3168).
    reduced: bool,
    /// What was sent before this was marked before the window was reduced.
    reduced_until: u32,
    board: Scoreboard,
    /// Whether departures or losses go by time: pacing and RACK. The rest, which is most, is not asked for either at every
    /// segment.
    by_time: bool,
    /// Of those senders alone whose segments have a time.
    paced: Option<Box<Paced>>,
    /// Of those that find losses by time.
    rack: Option<Box<Rack>>,
    undo: Option<Box<Undo>>,
    alarm: Alarm,
    pub(super) timeout: RetransmissionTimeout,
    /// The segment whose round trip is measured, and when it was sent.
    timed: Option<(NonZeroU32, u64)>,
    pub(super) deadline_ns: u64,
    counters: SenderCounters,
}

impl Sender {
    /// `seed` is for what the congestion control draws.
    pub fn new(config: &TcpConfig, seed: u64) -> Self {
        let paced = Paced::new(config, FIRST, seed);
        Sender {
            una: FIRST,
            next: FIRST,
            high: FIRST,
            end: FIRST,
            closed: false,
            short: Vec::new(),
            window: Window::new(config.initial_window),
            phase: Phase::Open,
            duplicates: 0,
            recover: 0,
            partial: false,
            force: false,
            reduced: false,
            reduced_until: 0,
            board: Scoreboard::new(FIRST),
            by_time: paced.is_some() || config.recovery == Recovery::Rack,
            paced,
            rack: None,
            undo: None,
            alarm: Alarm::Retransmission,
            timeout: RetransmissionTimeout::default(),
            timed: None,
            deadline_ns: u64::MAX,
            counters: SenderCounters::default(),
        }
    }

    pub fn window(&self) -> &Window {
        &self.window
    }

    pub fn counters(&self) -> SenderCounters {
        self.counters
    }

    /// One more than the greatest number sent.
    pub fn high(&self) -> u32 {
        self.high
    }

    /// Whether the window was reduced and the receiver not told.
    pub fn take_reduced(&mut self) -> bool {
        std::mem::take(&mut self.reduced)
    }

    /// Segments acknowledged in order, the FIN among them.
    pub fn acknowledged(&self) -> u32 {
        self.una - FIRST
    }

    /// Whether everything written and the FIN were acknowledged.
    pub fn finished(&self) -> bool {
        self.closed && self.una == self.limit()
    }

    /// Appends a message, which starts a segment of its own.
    pub fn write(&mut self, bytes: u64, config: &TcpConfig) {
        self.limit_by_application(config);
        let mss = u64::from(config.mss_bytes);
        let whole = u32::try_from(bytes / mss).unwrap_or(ENDLESS);
        self.end = self.end.saturating_add(whole).min(ENDLESS);
        let rest = (bytes % mss) as u32;
        if rest > 0 && self.end < ENDLESS {
            self.short.push((self.end, rest));
            self.end += 1;
        }
    }

    pub fn write_forever(&mut self, config: &TcpConfig) {
        self.limit_by_application(config);
        self.end = ENDLESS;
    }

    /// Something is written: if all there was had been sent and there was room for more, the application was slower than
    /// the network (`tcp_rate_check_app_limited`).
    fn limit_by_application(&mut self, config: &TcpConfig) {
        let in_flight = self.in_network(config);
        let Some(paced) = &mut self.paced else {
            return;
        };
        let idle = self.next == self.end && !self.window.is_full(in_flight);
        if idle && self.board.next_lost().is_none() {
            paced.limit_by_application(in_flight);
        }
    }

    /// Sends a FIN after what was written.
    pub fn close(&mut self) {
        self.closed = true;
    }

    pub fn is_fin(&self, number: u32) -> bool {
        self.closed && number == self.end
    }

    pub fn payload_bytes(&self, number: u32, config: &TcpConfig) -> u32 {
        if self.is_fin(number) {
            return 0;
        }
        let short = self.short.iter().find(|(short, _)| *short == number);
        short.map_or(config.mss_bytes, |(_, bytes)| *bytes)
    }

    /// So many SYNs were lost: a longer timeout, and perhaps a window of one segment.
    pub fn lose_syns(&mut self, lost: u32, config: &TcpConfig) {
        if lost >= config.lost_syns {
            self.window.set(1.);
        }
        self.timeout.lose_syn();
    }

    fn limit(&self) -> u32 {
        self.end + u32::from(self.closed)
    }

    fn in_flight(&self) -> u32 {
        self.high - self.una
    }

    /// As far as acknowledgements tell.
    fn in_network(&self, config: &TcpConfig) -> u32 {
        if config.recovery.sacks() {
            self.board.pipe()
        } else {
            self.in_flight()
        }
    }

    /// When something must be done: a timeout, or the departure of a segment that was held back. `u64::MAX` for never.
    #[inline]
    pub fn due_ns(&self) -> u64 {
        match &self.paced {
            None => self.deadline_ns,
            Some(paced) => self.deadline_ns.min(paced.held_until_ns()),
        }
    }

    /// Nothing is sent any more.
    pub fn stop(&mut self) {
        self.deadline_ns = u64::MAX;
        self.paced = None;
    }

    /// Whether what was sent of late leaves nothing else to send; false if that is not known.
    #[inline(always)]
    pub fn fills_window(&self, config: &TcpConfig) -> bool {
        config.recovery.sacks() && self.window.is_full(self.board.pipe())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::{Block, Kind, Segment};

    const MS: u64 = 1_000_000;
    const RTT_NS: u64 = 100 * MS;

    /// Five segments, of which the last is lost; the probe that repeats it leaves at the time returned.
    fn probed(config: &TcpConfig) -> (Sender, u64) {
        let mut sender = Sender::new(config, 1);
        sender.timeout.sample(RTT_NS, config);
        sender.write(5 * u64::from(config.mss_bytes), config);
        while sender.poll(0, config).is_some() {}
        hear(&mut sender, 5, None, RTT_NS, config);
        let at_ns = sender.deadline_ns;
        sender.handle_timeout(at_ns, config);
        assert_eq!(sender.poll(at_ns, config), Some(5));
        (sender, at_ns)
    }

    fn hear(sender: &mut Sender, ack: u32, sack: Option<Block>, now_ns: u64, config: &TcpConfig) {
        let mut segment = Segment::bare(Kind::Ack);
        segment.ack = ack;
        let blocks = sack.map(|block| [block, Block::default(), Block::default()]);
        sender.acknowledge(&segment, blocks.as_ref(), now_ns, config);
    }

    /// The threshold once the probe is answered, with or without the report of a duplicate, and another segment is sent.
    fn threshold_after_probe(duplicate: bool) -> f64 {
        let config = TcpConfig {
            recovery: Recovery::Rack,
            dsack: true,
            min_rto_ns: 200 * MS,
            ..TcpConfig::default()
        };
        let (mut sender, at_ns) = probed(&config);
        // Two round trips and the delay of an acknowledgement are more than the timeout.
        assert_eq!(at_ns, RTT_NS + sender.timeout.current_ns());
        hear(&mut sender, 6, None, at_ns + MS, &config);
        if duplicate {
            hear(
                &mut sender,
                6,
                Some(Block::new(5, 6)),
                at_ns + RTT_NS,
                &config,
            );
        }
        sender.write(1, &config);
        assert_eq!(sender.poll(at_ns + RTT_NS, &config), Some(6));
        hear(&mut sender, 7, None, at_ns + 2 * RTT_NS, &config);
        sender.window().ssthresh()
    }

    #[test]
    fn a_probe_that_repaired_a_loss_reduces_the_window() {
        assert!(threshold_after_probe(false).is_finite());
    }

    #[test]
    fn a_probe_of_what_had_arrived_changes_nothing() {
        assert!(threshold_after_probe(true).is_infinite());
    }
}
