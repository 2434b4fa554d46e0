//! Which segment leaves next, and when.

use std::num::NonZeroU32;

use super::{Alarm, Sender};
use crate::tcp::pacing::{Paced, Sent};
use crate::tcp::phase::Phase;
use crate::tcp::rack::{Probe, Rack};
use crate::tcp::{Recovery, TcpConfig};

impl Sender {
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
    pub(super) fn next_lost<const BY_TIME: bool>(&mut self) -> Option<u32> {
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
}
