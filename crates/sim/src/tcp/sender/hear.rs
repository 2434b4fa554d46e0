//! What acknowledgements mean.

use super::{Alarm, Sender};
use crate::tcp::bbr::Ack;
use crate::tcp::phase::Phase;
use crate::tcp::rack::Probe;
use crate::tcp::undo::Undo;
use crate::tcp::{
    Flags, Kind, PLAIN_HEADER_BYTES, Recovery, STAMP_NS, SackBlocks, Segment, TcpConfig, stamp_at,
};

/// What an acknowledgement changes.
#[derive(Clone, Copy, Debug)]
struct Before {
    in_flight: u32,
    lost: u32,
}

impl Sender {
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
    pub(super) fn detect(&mut self, now_ns: u64, config: &TcpConfig) {
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
}
