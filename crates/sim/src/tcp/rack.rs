//! Losses found by time, and probes of the tail: RACK-TLP (RFC 8985).
//!
//! A segment is lost if one that was sent after it has arrived and it should have arrived, too: a round trip and a
//! *reordering window* after it was sent. The window is zero until something has come out of order, a quarter of the
//! shortest round trip from then on, and grows by as much with every round in which the receiver reports a duplicate
//! (RFC 2883), since that was resent for nothing. When acknowledgements stop, a *probe* after two round trips makes the
//! receiver speak, long before the retransmission timeout.
//!
//! Transmissions are kept in the order in which they were sent. Only those in front are looked at, and each leaves once,
//! so that an acknowledgement costs no more than the news it brings. Names are those of the RFC's sections 5 to 7 in this
//! crate's spelling.

use std::collections::VecDeque;

use super::scoreboard::{DUP_THRESHOLD, Scoreboard};

/// Recoveries without a duplicate after which the reordering window is that of the beginning again, section 6.2 step 4.
const PERSISTENCE: u32 = 16;

/// What is known of the transmissions of one sender.
#[derive(Debug)]
pub(super) struct Rack {
    sent: VecDeque<Transmission>,
    /// The ordinal of the first of `sent`.
    first: u32,
    /// Of each outstanding segment, from `una` on, the ordinal of its last transmission.
    last: VecDeque<u32>,
    una: u32,
    /// Found lost and not resent, in the order in which they were found.
    lost: VecDeque<u32>,
    /// One more than the ordinal of the last transmission of which it is known that it arrived.
    arrived: u32,
    rtt_ns: u64,
    min_rtt_ns: u64,
    /// One more than the greatest number that arrived.
    fack: u32,
    sacked: u32,
    reordered: bool,
    /// The reordering window, in quarters of the shortest round trip.
    quarters: u64,
    persistence: u32,
    /// The round of the last duplicate ends when everything below is acknowledged.
    round: Option<u32>,
    /// A probe is to be sent.
    pub wants_probe: bool,
    pub probe: Option<Probe>,
}

#[derive(Clone, Copy, Debug)]
struct Transmission {
    number: u32,
    sent_ns: u64,
}

/// A probe of which nothing has been heard, section 7.
#[derive(Clone, Copy, Debug)]
pub(super) struct Probe {
    /// One more than its number, which was the greatest sent.
    pub end: u32,
    /// Whether it repeated a segment.
    pub again: bool,
}

impl Rack {
    /// Of a sender that is about to send `first`.
    pub fn new(first: u32) -> Self {
        Rack {
            sent: VecDeque::new(),
            first: 0,
            last: VecDeque::new(),
            una: first,
            lost: VecDeque::new(),
            arrived: 0,
            rtt_ns: 0,
            min_rtt_ns: u64::MAX,
            fack: first,
            sacked: 0,
            reordered: false,
            quarters: 1,
            persistence: 0,
            round: None,
            wants_probe: false,
            probe: None,
        }
    }

    /// `number` is sent, perhaps again.
    pub fn send(&mut self, number: u32, now_ns: u64) {
        let ordinal = self.first + self.sent.len() as u32;
        self.sent.push_back(Transmission {
            number,
            sent_ns: now_ns,
        });
        match self.last.get_mut((number - self.una) as usize) {
            Some(last) => *last = ordinal,
            None => self.last.push_back(ordinal),
        }
    }

    /// Everything below `ack` arrived; `board` has not heard of it.
    pub fn acknowledge(&mut self, ack: u32, board: &Scoreboard, now_ns: u64) {
        for number in self.una..ack {
            if board.is_sacked(number) {
                self.sacked -= 1;
            } else {
                self.arrive(number, board.is_resent(number), now_ns);
            }
        }
        self.last.drain(..(ack - self.una) as usize);
        self.una = ack;
        self.round = self.round.filter(|end| ack < *end);
    }

    /// `number` was SACKed for the first time.
    pub fn sack(&mut self, number: u32, resent: bool, now_ns: u64) {
        self.sacked += 1;
        self.arrive(number, resent, now_ns);
    }

    /// Steps 1 to 3 of section 6.2. Whose round trip is shorter than any other is the original of what was resent.
    fn arrive(&mut self, number: u32, resent: bool, now_ns: u64) {
        self.reordered |= number < self.fack && !resent;
        self.fack = self.fack.max(number + 1);
        let ordinal = self.last[(number - self.una) as usize];
        let ahead = ordinal.checked_sub(self.first);
        let Some(sent) = ahead.and_then(|ahead| self.sent.get(ahead as usize)) else {
            return;
        };
        let rtt_ns = now_ns - sent.sent_ns;
        if !resent {
            self.min_rtt_ns = self.min_rtt_ns.min(rtt_ns);
        } else if rtt_ns < self.min_rtt_ns {
            return;
        }
        self.rtt_ns = rtt_ns;
        self.arrived = self.arrived.max(ordinal + 1);
    }

    /// The receiver has `number` twice; `next` is sent next. Once per round the reordering window grows, section 6.2 step 4;
    /// and what was resent in vain came out of order, though it was resent before that could be seen.
    pub fn hear_duplicate(&mut self, number: u32, next: u32) {
        if self.probe.is_some_and(|probe| probe.end == number + 1) {
            self.probe = None;
            return;
        }
        self.reordered = true;
        if self.round.is_none() {
            self.round = Some(next);
            self.quarters += 1;
            self.persistence = PERSISTENCE;
        }
    }

    /// A recovery is over.
    pub fn recovered(&mut self) {
        self.persistence = self.persistence.saturating_sub(1);
        if self.persistence == 0 {
            self.quarters = 1;
        }
    }

    fn window_ns(&self, srtt_ns: u64, recovering: bool) -> u64 {
        if !self.reordered && (recovering || self.sacked >= DUP_THRESHOLD) {
            return 0;
        }
        (self.min_rtt_ns.saturating_mul(self.quarters) / 4).min(srtt_ns)
    }

    /// Has `board` lose what should have arrived by now; when to look again, in ns, if something is late. Section 6.2
    /// step 5.
    pub fn detect(
        &mut self,
        board: &mut Scoreboard,
        now_ns: u64,
        srtt_ns: u64,
        recovering: bool,
    ) -> Option<u64> {
        let patience_ns = self.rtt_ns + self.window_ns(srtt_ns, recovering);
        while let Some(front) = self.front(board) {
            if self.first + 1 >= self.arrived {
                return None;
            }
            let due_ns = front.sent_ns + patience_ns;
            if due_ns > now_ns {
                return Some(due_ns);
            }
            self.lose_front(board);
        }
        None
    }

    /// A timeout: the first segment is lost, and what was sent a round trip ago, section 6.3.
    pub fn time_out(&mut self, board: &mut Scoreboard, now_ns: u64) {
        if board.awaits(self.una) {
            board.lose(self.una);
            self.lost.push_front(self.una);
        }
        while let Some(front) = self.front(board)
            && front.sent_ns + self.rtt_ns <= now_ns
        {
            self.lose_front(board);
        }
    }

    /// The first transmission that may yet arrive and is the last of its segment.
    fn front(&mut self, board: &Scoreboard) -> Option<Transmission> {
        while let Some(front) = self.sent.front() {
            let ahead = front.number.checked_sub(self.una);
            let last = ahead.map(|ahead| self.last[ahead as usize]);
            if last == Some(self.first) && board.awaits(front.number) {
                return Some(*front);
            }
            self.sent.pop_front();
            self.first += 1;
        }
        None
    }

    fn lose_front(&mut self, board: &mut Scoreboard) {
        if let Some(front) = self.sent.pop_front() {
            self.first += 1;
            board.lose(front.number);
            self.lost.push_back(front.number);
        }
    }

    /// The first that is lost and was not resent.
    pub fn next_lost(&mut self, board: &Scoreboard) -> Option<u32> {
        while let Some(number) = self.lost.front() {
            if board.is_to_resend(*number) {
                return Some(*number);
            }
            self.lost.pop_front();
        }
        None
    }

    /// Whether a probe may be scheduled: none is under way, and nothing came out of order. Section 7.2.
    pub fn may_probe(&self) -> bool {
        self.probe.is_none() && self.sacked == 0
    }
}
