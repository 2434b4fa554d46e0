//! What is sent, when, and what its acknowledgements mean.

use std::num::NonZeroU32;

use super::bbr::Ack;
use super::control::Window;
use super::pacing::{Paced, Sent};
use super::phase::Phase;
use super::rack::{Probe, Rack};
use super::scoreboard::{DUP_THRESHOLD, Scoreboard};
use super::timer::RetransmissionTimeout;
use super::undo::Undo;
use super::{
    Flags, Kind, PLAIN_HEADER_BYTES, Recovery, STAMP_NS, SackBlocks, Segment, TcpConfig, stamp_at,
};

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

/// What an acknowledgement changes.
#[derive(Clone, Copy, Debug)]
struct Before {
    in_flight: u32,
    lost: u32,
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

    /// The segment to send at this moment, which then counts as sent.
    #[inline(always)]
    pub fn poll(&mut self, now_ns: u64, config: &TcpConfig) -> Option<u32> {
        if self.by_time {
            self.poll_by_time(now_ns, config)
        } else {
            self.poll_next::<false>(now_ns, config)
        }
    }

    #[inline(never)]
    fn poll_by_time(&mut self, now_ns: u64, config: &TcpConfig) -> Option<u32> {
        if self.is_held(now_ns) {
            return None;
        }
        let number = self.poll_next::<true>(now_ns, config)?;
        self.pace(number, now_ns, config);
        Some(number)
    }

    #[inline(always)]
    fn poll_next<const BY_TIME: bool>(&mut self, now_ns: u64, config: &TcpConfig) -> Option<u32> {
        let number = self.choose::<BY_TIME>(config)?;
        if number < self.high {
            self.timed = None;
            self.counters.retransmitted += 1;
            if let Some(undo) = &mut self.undo {
                undo.resend();
            }
        } else {
            self.high += 1;
            if self.timed.is_none() {
                self.timed = NonZeroU32::new(number).map(|number| (number, now_ns));
            }
            self.window.send(number, now_ns, config);
            if config.recovery.sacks() {
                self.board.send();
            }
        }
        self.counters.sent += 1;
        if BY_TIME && config.recovery == Recovery::Rack {
            self.remember(number, now_ns);
        }
        if self.deadline_ns == u64::MAX || (BY_TIME && self.alarm == Alarm::Probe) {
            self.restart_timer::<BY_TIME>(now_ns, config);
        }
        Some(number)
    }

    /// Whether the next segment has to wait for its time. The first of a recovery and a probe do not.
    fn is_held(&mut self, now_ns: u64) -> bool {
        let held = |paced: &mut Box<Paced>| !paced.may_send(now_ns);
        let probes = self.rack.as_ref().is_some_and(|rack| rack.wants_probe);
        self.paced.as_mut().is_some_and(held) && !self.force && !probes
    }

    fn pace(&mut self, number: u32, now_ns: u64, config: &TcpConfig) {
        let payload_bytes = self.payload_bytes(number, config);
        let in_network = self.in_network(config);
        let Some(paced) = &mut self.paced else {
            return;
        };
        let sent = Sent {
            number,
            payload_bytes,
            from_idle: in_network == 1,
            srtt_ns: self.timeout.smoothed_ns(),
        };
        paced.send(&sent, &self.window, now_ns, config);
    }

    fn remember(&mut self, number: u32, now_ns: u64) {
        let new = || Box::new(Rack::new(number));
        self.rack.get_or_insert_with(new).send(number, now_ns);
    }

    #[inline(always)]
    fn choose<const BY_TIME: bool>(&mut self, config: &TcpConfig) -> Option<u32> {
        if std::mem::take(&mut self.force) {
            return Some(self.choose_first(config));
        }
        if BY_TIME
            && let Some(rack) = &mut self.rack
            && std::mem::take(&mut rack.wants_probe)
        {
            return Some(self.choose_probe(config));
        }
        if config.recovery.sacks() {
            self.choose_by_scoreboard::<BY_TIME>(config)
        } else {
            self.choose_by_window(config)
        }
    }

    /// The segment with which a recovery begins.
    fn choose_first(&mut self, config: &TcpConfig) -> u32 {
        if !config.recovery.sacks() {
            return self.una;
        }
        let number = match &mut self.rack {
            Some(rack) => rack.next_lost(&self.board).unwrap_or(self.una),
            None => self.una,
        };
        self.resend(number)
    }

    /// A probe is something new or, if there is nothing, the last segment again (RFC 8985 section 7.3).
    fn choose_probe(&mut self, config: &TcpConfig) -> u32 {
        self.counters.probes += 1;
        let again = !self.may_send_next(config);
        let number = if again {
            self.resend(self.high - 1)
        } else {
            self.next += 1;
            self.next - 1
        };
        if let Some(rack) = &mut self.rack {
            let end = number + 1;
            rack.probe = Some(Probe { end, again });
        }
        number
    }

    /// NextSeg of RFC 6675 section 4, rules 1 to 3; the third is not of RACK.
    #[inline(always)]
    fn choose_by_scoreboard<const BY_TIME: bool>(&mut self, config: &TcpConfig) -> Option<u32> {
        if self.window.is_full(self.board.pipe()) {
            return None;
        }
        if self.phase != Phase::Open
            && let Some(number) = self.next_lost::<BY_TIME>()
        {
            return Some(self.resend(number));
        }
        if self.may_send_next(config) {
            self.next += 1;
            return Some(self.next - 1);
        }
        if self.phase != Phase::Recovery || (BY_TIME && self.rack.is_some()) {
            return None;
        }
        let number = self.board.next_doubtful()?;
        Some(self.resend(number))
    }

    #[inline(always)]
    fn next_lost<const BY_TIME: bool>(&mut self) -> Option<u32> {
        match &mut self.rack {
            Some(rack) if BY_TIME => rack.next_lost(&self.board),
            _ => self.board.next_lost(),
        }
    }

    fn resend(&mut self, number: u32) -> u32 {
        self.board.resend(number);
        number
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

    /// What the peer's segment acknowledges, with its blocks.
    pub fn acknowledge(
        &mut self,
        segment: &Segment,
        sack: Option<&SackBlocks>,
        now_ns: u64,
        config: &TcpConfig,
    ) {
        if segment.ack > self.high || segment.ack < self.una {
            return;
        }
        if !self.by_time {
            return self.hear::<false>(segment, sack, now_ns, config);
        }
        let before = Before {
            in_flight: self.in_network(config),
            lost: self.board.lost(),
        };
        self.hear::<true>(segment, sack, now_ns, config);
        self.steer(&before, now_ns, config);
    }

    #[inline(always)]
    fn hear<const BY_TIME: bool>(
        &mut self,
        segment: &Segment,
        sack: Option<&SackBlocks>,
        now_ns: u64,
        config: &TcpConfig,
    ) {
        let ack = segment.ack;
        let sacks = config.recovery.sacks();
        let limited = self.window.is_full(self.in_flight());
        let acked = ack - self.una;
        if acked > 0 {
            self.advance::<BY_TIME>(segment, now_ns, config);
        }
        let news = sacks && self.take_in::<BY_TIME>(sack, now_ns);
        if let Some(blocks) = sack.filter(|_| config.dsack) {
            self.hear_of_duplicates(blocks);
        }
        let pure = segment.kind == Kind::Ack;
        if segment.flags.has(Flags::ECE) {
            self.hear_of_marks(config);
        }
        if acked > 0 {
            self.progress(acked, limited, now_ns, config);
            self.window.acknowledge(ack, self.high, now_ns, config);
        } else if pure && self.in_flight() > 0 && (news || !sacks) {
            self.duplicates += 1;
            if self.phase == Phase::Recovery && !sacks {
                self.window.set(self.window.cwnd() + 1.);
            }
        }
        if BY_TIME && self.rack.is_some() {
            let repeats = acked == 0 && pure && sack.is_none();
            self.judge_probe(repeats, config);
            self.detect(now_ns, config);
        }
        self.maybe_recover::<BY_TIME>(config);
    }

    /// What an acknowledgement means to a sender that paces.
    fn steer(&mut self, before: &Before, now_ns: u64, config: &TcpConfig) {
        if self.paced.is_none() {
            return;
        }
        let lost = self.board.lost();
        let ack = Ack {
            now_ns,
            srtt_ns: self.timeout.smoothed_ns(),
            una: self.una,
            repair: self.phase,
            in_flight_before: before.in_flight,
            in_flight: self.in_network(config),
            outstanding: self.in_flight(),
            newly_lost: lost - before.lost,
            lost,
        };
        if let Some(paced) = &mut self.paced {
            paced.acknowledge(&ack, &mut self.window, config);
        }
    }

    /// Whether blocks tell anything new.
    #[inline(always)]
    fn take_in<const BY_TIME: bool>(&mut self, sack: Option<&SackBlocks>, now_ns: u64) -> bool {
        if BY_TIME {
            return self.take_in_each(sack, now_ns);
        }
        let news = self.board.sack(sack, |_, _| {});
        if news {
            self.board.judge_by_count();
        }
        news
    }

    /// The same, of a sender that has to know each segment that arrived.
    fn take_in_each(&mut self, sack: Option<&SackBlocks>, now_ns: u64) -> bool {
        let (rack, paced) = (&mut self.rack, &mut self.paced);
        let arrived = |number, resent| {
            if let Some(rack) = rack {
                rack.sack(number, resent, now_ns);
            }
            if let Some(paced) = paced {
                paced.arrive(number, now_ns);
            }
        };
        let news = self.board.sack(sack, arrived);
        if news && self.rack.is_none() {
            self.board.judge_by_count();
        }
        news
    }

    /// The first block may report a duplicate: one below the cumulative acknowledgement, or within the second block (RFC
    /// 2883 section 4).
    fn hear_of_duplicates(&mut self, blocks: &SackBlocks) {
        let [first, second, ..] = *blocks;
        let within = second.start <= first.start && first.end <= second.end;
        if first.end > self.una && !within {
            return;
        }
        let number = first.start;
        if let Some(rack) = &mut self.rack {
            rack.hear_duplicate(number, self.high);
        }
        let in_vain = |undo: &mut Box<Undo>| undo.hear_duplicate(number);
        if let Some(undo) = self.undo.take_if(in_vain) {
            undo.restore(&mut self.window);
            self.counters.undone += 1;
            if self.phase == Phase::Recovery {
                self.end_recovery();
                self.recover = self.una;
            }
        }
    }

    /// One reduction for all marks of a window, RFC 3168 section 6.1.2. A recovery has reduced it already.
    fn hear_of_marks(&mut self, config: &TcpConfig) {
        if self.phase == Phase::Open && self.may_reduce() {
            self.counters.marked += 1;
            self.reduce(config);
            self.window.set(self.window.ssthresh());
            self.reduced_until = self.high;
        }
    }

    /// Whether something that was sent after the last reduction is acknowledged: the receiver has heard of that then.
    fn may_reduce(&self) -> bool {
        self.una > self.reduced_until
    }

    /// Lowers the threshold.
    fn reduce(&mut self, config: &TcpConfig) {
        self.window.reduce(self.used_window(), config);
        self.reduced = config.ecn;
    }

    /// What became of a probe, once what it was to bring is acknowledged; `repeats` if the acknowledgement says only what
    /// the one before did. RFC 8985 section 7.4.
    fn judge_probe(&mut self, repeats: bool, config: &TcpConfig) {
        let Some(rack) = &mut self.rack else {
            return;
        };
        let Some(Probe { end, again }) = rack.probe.filter(|probe| self.una >= probe.end) else {
            return;
        };
        let repaired = again && self.una > end;
        if repaired || repeats || !again {
            rack.probe = None;
        }
        if repaired && self.phase == Phase::Open {
            self.reduce(config);
            self.window.set(self.window.ssthresh());
        }
    }

    /// Finds what is late or lost.
    fn detect(&mut self, now_ns: u64, config: &TcpConfig) {
        let srtt_ns = self.timeout.smoothed_ns();
        let recovering = self.phase != Phase::Open;
        let Some(rack) = &mut self.rack else {
            return;
        };
        match rack.detect(&mut self.board, now_ns, srtt_ns, recovering) {
            Some(due_ns) => {
                self.deadline_ns = due_ns;
                self.alarm = Alarm::Reordering;
            }
            None if self.alarm == Alarm::Probe && rack.may_probe() => {}
            None if self.alarm == Alarm::Retransmission => {}
            None => self.restart_timer::<true>(now_ns, config),
        }
    }

    #[inline(always)]
    fn advance<const BY_TIME: bool>(&mut self, segment: &Segment, now_ns: u64, config: &TcpConfig) {
        let ack = segment.ack;
        if let Some((_, sent_ns)) = self.timed.take_if(|(number, _)| number.get() < ack) {
            self.timeout.sample(now_ns - sent_ns, config);
        } else if self.phase != Phase::Open || self.timeout.is_doubled() {
            self.sample_echo(segment, now_ns, config);
        }
        if BY_TIME && let Some(rack) = &mut self.rack {
            rack.acknowledge(ack, &self.board, now_ns);
        }
        if config.recovery.sacks() {
            self.board.acknowledge(ack);
        }
        self.una = ack;
        self.next = self.next.max(ack);
        self.short.retain(|(number, _)| *number >= ack);
        self.duplicates = 0;
        self.timeout.progress();
        if self.una == self.high {
            self.deadline_ns = u64::MAX;
        } else if !self.is_impatient(config) {
            self.restart_timer::<BY_TIME>(now_ns, config);
        }
    }

    /// While losses are repaired nothing is sent once, but a timestamp tells which of two arrived (RFC 7323 section 4.1).
    fn sample_echo(&mut self, segment: &Segment, now_ns: u64, config: &TcpConfig) {
        if segment.kind != Kind::Ack || config.header_bytes <= PLAIN_HEADER_BYTES {
            return;
        }
        let elapsed = stamp_at(now_ns).wrapping_sub(segment.number) as i32;
        self.timeout
            .sample(elapsed.max(0) as u64 * STAMP_NS, config);
    }

    /// Whether the timer runs on in spite of an acknowledgement: a partial one that is not the first of its recovery, RFC
    /// 6582 section 3.2 step 3. Holes are filled one by one, and so a timeout ends a recovery of very many.
    fn is_impatient(&self, config: &TcpConfig) -> bool {
        let impatient = config.recovery == Recovery::NewReno && self.phase == Phase::Recovery;
        impatient && self.una < self.recover && self.partial
    }

    #[inline(always)]
    fn progress(&mut self, acked: u32, limited: bool, now_ns: u64, config: &TcpConfig) {
        if self.phase == Phase::Recovery {
            self.progress_in_recovery(acked, config);
            return;
        }
        if self.phase == Phase::Loss && self.una >= self.recover {
            self.end_recovery();
        }
        if (limited || self.phase == Phase::Loss) && self.may_reduce() {
            let rtt_ns = self.timeout.smoothed_ns();
            self.window.grow(acked, now_ns, rtt_ns, config);
        }
    }

    /// RFC 5681 ends recovery with any new acknowledgement; RFC 6582 section 3.2 and RFC 6675 with `recover`.
    fn progress_in_recovery(&mut self, acked: u32, config: &TcpConfig) {
        if self.una >= self.recover || config.recovery == Recovery::Reno {
            self.end_recovery();
            if !config.recovery.sacks() {
                self.window.set(self.window.ssthresh());
            }
            return;
        }
        self.partial = true;
        if !config.recovery.sacks() {
            let deflated = self.window.cwnd() - f64::from(acked) + 1.;
            self.window.set(deflated.max(1.));
            self.force = true;
        }
    }

    fn end_recovery(&mut self) {
        self.phase = Phase::Open;
        if let Some(rack) = &mut self.rack {
            rack.recovered();
        }
    }

    /// Fast retransmit: once per window. Without SACK, duplicates that stop right at `recover` may come of segments that
    /// were sent twice, not of a loss beyond it (RFC 6582 section 3.2 step 2).
    #[inline(always)]
    fn maybe_recover<const BY_TIME: bool>(&mut self, config: &TcpConfig) {
        if self.phase == Phase::Open && self.finds_loss::<BY_TIME>(config) {
            self.recover(config);
        }
    }

    #[inline(always)]
    fn finds_loss<const BY_TIME: bool>(&mut self, config: &TcpConfig) -> bool {
        let sacks = config.recovery.sacks();
        let found = match &mut self.rack {
            Some(rack) if BY_TIME => rack.next_lost(&self.board).is_some(),
            _ => self.duplicates >= DUP_THRESHOLD || (sacks && self.board.first_is_lost()),
        };
        found && self.in_flight() > 0 && self.una >= self.recover + u32::from(!sacks)
    }

    #[inline(never)]
    fn recover(&mut self, config: &TcpConfig) {
        let sacks = config.recovery.sacks();
        self.counters.fast_retransmits += 1;
        self.begin_undo(config);
        if self.may_reduce() {
            self.reduce(config);
        }
        let inflation = if sacks { 0. } else { f64::from(DUP_THRESHOLD) };
        self.window.set(self.window.ssthresh() + inflation);
        self.phase = Phase::Recovery;
        self.recover = self.high;
        self.partial = false;
        self.force = true;
        if sacks && self.rack.is_none() {
            self.board.lose_first();
        }
    }

    fn begin_undo(&mut self, config: &TcpConfig) {
        self.undo = config
            .dsack
            .then(|| Box::new(Undo::new(&self.window, self.una)));
    }

    /// The deadline has come.
    pub fn handle_timeout(&mut self, now_ns: u64, config: &TcpConfig) {
        match (self.alarm, &mut self.rack) {
            (Alarm::Probe, Some(rack)) => rack.wants_probe = true,
            (Alarm::Reordering, Some(_)) => {
                self.detect(now_ns, config);
                self.maybe_recover::<true>(config);
            }
            _ => self.time_out(now_ns, config),
        }
    }

    /// The retransmission timer fired, RFC 6298 section 5 and RFC 5681 section 3.1.
    fn time_out(&mut self, now_ns: u64, config: &TcpConfig) {
        self.counters.timeouts += 1;
        if self.timeout.backoffs() == 0 {
            if self.phase != Phase::Recovery {
                self.begin_undo(config);
            }
            self.reduce(config);
        }
        self.window.time_out(config);
        self.window.set(1.);
        self.phase = Phase::Loss;
        self.recover = self.high;
        self.duplicates = 0;
        self.force = false;
        self.timed = None;
        if let Some(rack) = &mut self.rack {
            rack.time_out(&mut self.board, now_ns);
            self.window.set(f64::from(self.board.pipe() + 1));
        } else if config.recovery.sacks() {
            self.board.lose_all();
        } else {
            self.next = self.una;
        }
        self.timeout.back_off();
        self.restart_timer::<true>(now_ns, config);
        if let Some(paced) = &mut self.paced {
            paced.time_out(self.board.lost(), &mut self.window, config);
        }
    }

    /// What a loss reduces, in segments. The window of a recovery without SACK is inflated by what has left the network.
    fn used_window(&self) -> f64 {
        let cwnd = self.window.cwnd();
        let window = match self.phase {
            Phase::Recovery => cwnd.min(self.window.ssthresh()),
            Phase::Open | Phase::Loss => cwnd,
        };
        window.min(f64::from(self.in_flight()))
    }

    #[inline]
    fn restart_timer<const BY_TIME: bool>(&mut self, now_ns: u64, config: &TcpConfig) {
        self.deadline_ns = now_ns + self.timeout.current_ns();
        if BY_TIME && let Some(rack) = &self.rack {
            let probes = self.phase == Phase::Open && rack.may_probe();
            self.alarm = if probes {
                self.deadline_ns = self
                    .deadline_ns
                    .min(now_ns.saturating_add(self.probe_after_ns(config)));
                Alarm::Probe
            } else {
                Alarm::Retransmission
            };
        }
    }

    /// PTO of RFC 8985 section 7.2. A single segment's acknowledgement may be delayed: by the least timeout, as Linux has
    /// it.
    fn probe_after_ns(&self, config: &TcpConfig) -> u64 {
        let delay_ns = if self.in_flight() == 1 {
            config.min_rto_ns
        } else {
            0
        };
        match self.timeout.smoothed_ns() {
            0 => u64::MAX,
            srtt_ns => 2 * srtt_ns + delay_ns,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::Block;

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
