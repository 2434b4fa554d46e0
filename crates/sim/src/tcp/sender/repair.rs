//! Losses and timeouts: when a recovery begins, what it reduces, and when it ends.

use super::{Alarm, Sender};
use crate::tcp::phase::Phase;
use crate::tcp::scoreboard::DUP_THRESHOLD;
use crate::tcp::undo::Undo;
use crate::tcp::{Recovery, TcpConfig};

impl Sender {
    /// Whether something that was sent after the last reduction is acknowledged: the receiver has heard of that then.
    pub(super) fn may_reduce(&self) -> bool {
        self.una > self.reduced_until
    }

    /// Lowers the threshold.
    pub(super) fn reduce(&mut self, config: &TcpConfig) {
        self.window.reduce(self.used_window(), config);
        self.reduced = config.ecn;
    }

    #[inline(always)]
    pub(super) fn progress(&mut self, acked: u32, limited: bool, now_ns: u64, config: &TcpConfig) {
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

    pub(super) fn end_recovery(&mut self) {
        self.phase = Phase::Open;
        if let Some(rack) = &mut self.rack {
            rack.recovered();
        }
    }

    /// Fast retransmit: once per window. Without SACK, duplicates that stop right at `recover` may come of segments that
    /// were sent twice, not of a loss beyond it (RFC 6582 section 3.2 step 2).
    #[inline(always)]
    pub(super) fn maybe_recover<const BY_TIME: bool>(&mut self, config: &TcpConfig) {
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
    pub(super) fn restart_timer<const BY_TIME: bool>(&mut self, now_ns: u64, config: &TcpConfig) {
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
