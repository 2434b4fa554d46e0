//! What is sent, when, and what its acknowledgements mean.

use super::control::Window;
use super::scoreboard::{DUP_THRESHOLD, Scoreboard};
use super::timer::RetransmissionTimeout;
use super::{Recovery, SackBlocks, TcpConfig};

/// The first number after the SYN.
pub(super) const FIRST: u32 = 1;
/// A sender with this end never runs out of data.
const ENDLESS: u32 = u32::MAX - 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Open,
    /// After a fast retransmit, until `recover` is acknowledged.
    Recovery,
    /// After a timeout, until `recover` is acknowledged.
    Loss,
}

/// Events of one sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SenderCounters {
    /// Segments, whether for the first time or again.
    pub sent: u64,
    /// Of them, those sent again.
    pub retransmitted: u64,
    /// Recoveries begun without a timeout.
    pub fast_retransmits: u64,
    /// Timeouts that ran out.
    pub timeouts: u64,
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
    /// Send `una` whatever the window says.
    force: bool,
    board: Scoreboard,
    pub(super) timeout: RetransmissionTimeout,
    /// The segment whose round trip is measured, and when it was sent.
    timed: Option<(u32, u64)>,
    pub(super) deadline_ns: u64,
    counters: SenderCounters,
}

impl Sender {
    pub fn new(config: &TcpConfig) -> Self {
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
            recover: FIRST,
            force: false,
            board: Scoreboard::new(FIRST),
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
        let mss = u64::from(config.mss_bytes);
        let whole = u32::try_from(bytes / mss).unwrap_or(ENDLESS);
        self.end = self.end.saturating_add(whole).min(ENDLESS);
        let rest = (bytes % mss) as u32;
        if rest > 0 && self.end < ENDLESS {
            self.short.push((self.end, rest));
            self.end += 1;
        }
    }

    pub fn write_forever(&mut self) {
        self.end = ENDLESS;
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

    /// A lost SYN: window of one segment (RFC 5681 section 3.1) and a longer timeout.
    pub fn lost_syn(&mut self) {
        self.window.set(1.);
        self.timeout.lost_syn();
    }

    fn limit(&self) -> u32 {
        self.end + u32::from(self.closed)
    }

    fn in_flight(&self) -> u32 {
        self.high - self.una
    }

    /// Whether what was sent of late leaves nothing else to send; false if that is not known.
    #[inline(always)]
    pub fn fills_window(&self, config: &TcpConfig) -> bool {
        config.recovery == Recovery::Sack && self.window.is_full(self.board.pipe())
    }

    /// The segment to send at this moment, which then counts as sent.
    #[inline(always)]
    pub fn poll(&mut self, now_ns: u64, config: &TcpConfig) -> Option<u32> {
        let number = self.choose(config)?;
        if number < self.high {
            self.timed = None;
            self.counters.retransmitted += 1;
        } else {
            self.high += 1;
            self.timed.get_or_insert((number, now_ns));
            self.window.send(number, now_ns, config);
            if config.recovery == Recovery::Sack {
                self.board.send();
            }
        }
        self.counters.sent += 1;
        if self.deadline_ns == u64::MAX {
            self.restart_timer(now_ns);
        }
        Some(number)
    }

    #[inline(always)]
    fn choose(&mut self, config: &TcpConfig) -> Option<u32> {
        if std::mem::take(&mut self.force) {
            if config.recovery == Recovery::Sack {
                self.board.resend(self.una);
            }
            return Some(self.una);
        }
        if config.recovery == Recovery::Sack {
            self.choose_by_scoreboard(config)
        } else {
            self.choose_by_window(config)
        }
    }

    /// NextSeg of RFC 6675 section 4, rules 1 to 3.
    #[inline(always)]
    fn choose_by_scoreboard(&mut self, config: &TcpConfig) -> Option<u32> {
        if self.window.is_full(self.board.pipe()) {
            return None;
        }
        let resend = |board: &mut Scoreboard, number| {
            board.resend(number);
            number
        };
        if self.phase != Phase::Open
            && let Some(number) = self.board.next_lost()
        {
            return Some(resend(&mut self.board, number));
        }
        if self.may_send_next(config) {
            self.next += 1;
            return Some(self.next - 1);
        }
        if self.phase != Phase::Recovery {
            return None;
        }
        let number = self.board.next_doubtful()?;
        Some(resend(&mut self.board, number))
    }

    /// Without SACK the window slides over what is outstanding; the first two duplicates let one new segment out each
    /// (limited transmit, RFC 3042).
    fn choose_by_window(&mut self, config: &TcpConfig) -> Option<u32> {
        let limited = if self.phase == Phase::Open {
            self.duplicates
        } else {
            0
        };
        let window = self.window.cwnd() as u32 + limited;
        if self.next - self.una >= window || !self.may_send_next(config) {
            return None;
        }
        self.next += 1;
        Some(self.next - 1)
    }

    fn may_send_next(&self, config: &TcpConfig) -> bool {
        self.next < self.limit() && self.next - self.una < config.receive_window
    }

    /// Whether an acknowledgement tells nothing: so are all that come to a side which only receives.
    #[inline]
    pub fn has_heard(&self, ack: u32, sack: Option<&SackBlocks>) -> bool {
        self.in_flight() == 0 && ack == self.una && sack.is_none()
    }

    /// An acknowledgement of everything below `ack`; `pure` if it carried nothing else.
    pub fn acknowledge(
        &mut self,
        ack: u32,
        sack: Option<&SackBlocks>,
        pure: bool,
        now_ns: u64,
        config: &TcpConfig,
    ) {
        if ack > self.high || ack < self.una {
            return;
        }
        let sacks = config.recovery == Recovery::Sack;
        let limited = self.window.is_full(self.in_flight());
        let acked = ack - self.una;
        if acked > 0 {
            self.advance(ack, now_ns, config);
        }
        let news = sacks && self.board.sack(sack);
        if acked > 0 {
            self.progress(acked, limited, now_ns, config);
            self.window.acknowledge(ack, self.high, now_ns);
        } else if pure && self.in_flight() > 0 && (news || !sacks) {
            self.duplicates += 1;
            if self.phase == Phase::Recovery && !sacks {
                self.window.set(self.window.cwnd() + 1.);
            }
        }
        self.maybe_recover(config);
    }

    fn advance(&mut self, ack: u32, now_ns: u64, config: &TcpConfig) {
        if let Some((_, sent_ns)) = self.timed.take_if(|(number, _)| *number < ack) {
            self.timeout.sample(now_ns - sent_ns, config);
        }
        if config.recovery == Recovery::Sack {
            self.board.acknowledge(ack);
        }
        self.una = ack;
        self.next = self.next.max(ack);
        self.short.retain(|(number, _)| *number >= ack);
        self.duplicates = 0;
        self.timeout.progress();
        if self.una == self.high {
            self.deadline_ns = u64::MAX;
        } else {
            self.restart_timer(now_ns);
        }
    }

    fn progress(&mut self, acked: u32, limited: bool, now_ns: u64, config: &TcpConfig) {
        if self.phase == Phase::Recovery {
            self.progress_in_recovery(acked, config);
            return;
        }
        if self.phase == Phase::Loss && self.una >= self.recover {
            self.phase = Phase::Open;
        }
        if limited || self.phase == Phase::Loss {
            let rtt_ns = self.timeout.smoothed_ns();
            self.window.grow(acked, now_ns, rtt_ns, config);
        }
    }

    /// RFC 5681 ends recovery with any new acknowledgement; RFC 6582 section 3.2 and RFC 6675 with `recover`.
    fn progress_in_recovery(&mut self, acked: u32, config: &TcpConfig) {
        if self.una >= self.recover || config.recovery == Recovery::Reno {
            self.phase = Phase::Open;
            self.window.set(self.window.ssthresh());
        } else if config.recovery == Recovery::NewReno {
            let deflated = self.window.cwnd() - f64::from(acked) + 1.;
            self.window.set(deflated.max(1.));
            self.force = true;
        }
    }

    /// Fast retransmit: once per window, RFC 6582 section 3.2 step 2.
    fn maybe_recover(&mut self, config: &TcpConfig) {
        let sacks = config.recovery == Recovery::Sack;
        let found = self.duplicates >= DUP_THRESHOLD || (sacks && self.board.first_is_lost());
        if self.phase != Phase::Open || !found || self.in_flight() == 0 || self.una < self.recover {
            return;
        }
        self.counters.fast_retransmits += 1;
        let in_flight = f64::from(self.in_flight()).min(self.window.cwnd());
        self.window.reduce(in_flight, config);
        let inflation = if sacks { 0. } else { f64::from(DUP_THRESHOLD) };
        self.window.set(self.window.ssthresh() + inflation);
        self.phase = Phase::Recovery;
        self.recover = self.high;
        self.force = true;
        if sacks {
            self.board.lose_first();
        }
    }

    /// The retransmission timer fired, RFC 6298 section 5 and RFC 5681 section 3.1.
    pub fn handle_timeout(&mut self, now_ns: u64, config: &TcpConfig) {
        self.counters.timeouts += 1;
        if self.timeout.backoffs() == 0 {
            let in_flight = f64::from(self.in_flight()).min(self.window.cwnd());
            self.window.reduce(in_flight, config);
        }
        self.window.set(1.);
        self.phase = Phase::Loss;
        self.recover = self.high;
        self.duplicates = 0;
        self.force = false;
        self.timed = None;
        if config.recovery == Recovery::Sack {
            self.board.lose_all();
        } else {
            self.next = self.una;
        }
        self.timeout.back_off();
        self.restart_timer(now_ns);
    }

    fn restart_timer(&mut self, now_ns: u64) {
        self.deadline_ns = now_ns + self.timeout.current_ns();
    }
}
