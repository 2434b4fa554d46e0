//! Lines whose rate is no constant: when they carry how much.
//!
//! A [`Trace`] is a list of opportunities, each of [`OPPORTUNITY_BYTES`] at a millisecond, that begins anew at its end, as
//! Mahimahi's `mm-link` reads it (Netravali et al., USENIX ATC 2015). An opportunity takes what heads the queue: several
//! packets that are short, a part of one that is long. What it could have carried beyond that is lost. Of a real line it is
//! recorded, of a model drawn ([`Lte`], [`Cable`]); from then on there is no difference.
//!
//! [`Opportunities`] is a place in a trace. A queue that is first in, first out asks it for the departure of a packet as
//! soon as that is accepted, for nothing that comes later can delay it.

mod drawn;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

use serde::Serialize;

pub use drawn::{Cable, Lte};

/// Of IP packets. A full one of 1500 bytes is one opportunity, as Mahimahi has it, which counts 4 bytes of its device beside
/// each packet and gives an opportunity 1504.
pub const OPPORTUNITY_BYTES: u32 = 1500;

const NS_PER_MS: u64 = 1_000_000;
/// In one slot the opportunities of one millisecond; no line that anybody records has more.
const OPPORTUNITIES_MAX: u32 = 1_000_000;

/// Whence a line has its trace.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TraceSource {
    /// It was recorded.
    Recorded {
        /// Of the file, in hexadecimal.
        sha256: String,
        /// What it says.
        #[serde(skip)]
        trace: Arc<Trace>,
    },
    /// It is drawn as a cellular link is.
    Lte(Lte),
    /// It is drawn as a link over cable is.
    Cable(Cable),
}

impl TraceSource {
    /// Mean of what is recorded, of what is drawn in the long run.
    pub fn mean_bps(&self) -> u64 {
        match self {
            TraceSource::Recorded { trace, .. } => trace.mean_bps(),
            TraceSource::Lte(lte) => lte.mean_bps,
            TraceSource::Cable(cable) => cable.steady_bps,
        }
    }

    /// What is drawn is drawn from this seed; a record stays what it is.
    pub fn seed(&mut self, seed: u64) {
        match self {
            TraceSource::Recorded { .. } => {}
            TraceSource::Lte(lte) => lte.seed = seed,
            TraceSource::Cable(cable) => cable.seed = seed,
        }
    }

    /// The trace itself.
    pub fn trace(&self) -> Arc<Trace> {
        match self {
            TraceSource::Recorded { trace, .. } => Arc::clone(trace),
            TraceSource::Lte(lte) => Arc::new(lte.draw()),
            TraceSource::Cable(cable) => Arc::new(cable.draw()),
        }
    }
}

/// Opportunities in the order of time, over and over again.
#[derive(Clone, Debug, PartialEq)]
pub struct Trace {
    /// At least one, in the order of time.
    slots: Box<[Slot]>,
    /// Not before the last slot; above 0.
    period_ms: u32,
    bucket: Option<Bucket>,
}

/// The opportunities of a millisecond.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slot {
    /// Since the trace began.
    at_ms: u32,
    /// Above 0.
    opportunities: u32,
}

impl Slot {
    fn bytes(self) -> u64 {
        u64::from(self.opportunities) * u64::from(OPPORTUNITY_BYTES)
    }
}

/// What a line carries needs tokens, too: they fill a bucket at a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bucket {
    rate_bps: u64,
    bytes: u64,
}

/// Why a text is no trace, and in which of its lines, from 1 on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// The line of the text.
    pub line: usize,
    /// What is wrong there, and what is allowed.
    pub problem: String,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.problem)
    }
}

impl Trace {
    /// Reads Mahimahi's format: a line per opportunity, which says at what millisecond it is. The last is where the trace
    /// begins anew.
    ///
    /// # Errors
    /// If a line is no whole number or goes back in time, or the whole takes no time.
    pub fn parse(text: &str) -> Result<Trace, Malformed> {
        let mut slots: Vec<Slot> = Vec::new();
        let mut count = 0;
        for (line, written) in (1..).zip(text.lines()) {
            let bad = |problem: String| Malformed { line, problem };
            let at_ms: u32 = written.trim().parse().map_err(|_| {
                bad(format!(
                    "\"{written}\" is no time; allowed: whole milliseconds from 0 to {}",
                    u32::MAX
                ))
            })?;
            add(&mut slots, at_ms).map_err(bad)?;
            count = line;
        }
        let bad = |problem: &str| Malformed {
            line: count.max(1),
            problem: problem.to_owned(),
        };
        match slots.last() {
            None => Err(bad("no opportunity; write one a line, in milliseconds")),
            Some(Slot { at_ms: 0, .. }) => Err(bad("the trace takes no time; it must end after 0")),
            Some(last) => Ok(Trace::new(slots.clone(), last.at_ms, None)),
        }
    }

    fn new(slots: Vec<Slot>, period_ms: u32, bucket: Option<Bucket>) -> Trace {
        Trace {
            slots: slots.into(),
            period_ms,
            bucket,
        }
    }

    /// Of all opportunities, in bit/s; at least 1.
    pub fn mean_bps(&self) -> u64 {
        let bits = u128::from(self.period_bytes()) * 8 * 1000;
        ((bits / u128::from(self.period_ms)) as u64).max(1)
    }

    /// What one period carries at most.
    fn period_bytes(&self) -> u64 {
        self.slots.iter().map(|slot| slot.bytes()).sum()
    }

    /// What the opportunities from the beginning up to a time carry at most, those of that very time included.
    pub fn bytes_by(&self, since_ns: u64) -> u64 {
        let period_ns = self.period_ns();
        let (periods, rest_ns) = (since_ns / period_ns, since_ns % period_ns);
        let begun = |slot: &&Slot| u64::from(slot.at_ms) * NS_PER_MS <= rest_ns;
        let begun: u64 = self.slots.iter().take_while(begun).map(|s| s.bytes()).sum();
        periods * self.period_bytes() + begun
    }

    fn period_ns(&self) -> u64 {
        u64::from(self.period_ms) * NS_PER_MS
    }
}

/// One opportunity more.
fn add(slots: &mut Vec<Slot>, at_ms: u32) -> Result<(), String> {
    match slots.last_mut() {
        Some(last) if at_ms < last.at_ms => Err(format!(
            "{at_ms} ms is before the line above, {} ms; times must not fall",
            last.at_ms
        )),
        Some(last) if at_ms == last.at_ms && last.opportunities == OPPORTUNITIES_MAX => Err(
            format!("more than {OPPORTUNITIES_MAX} opportunities in one millisecond"),
        ),
        Some(last) if at_ms == last.at_ms => {
            last.opportunities += 1;
            Ok(())
        }
        _ => {
            slots.push(Slot {
                at_ms,
                opportunities: 1,
            });
            Ok(())
        }
    }
}

/// A place in a trace: what of it is used up.
#[derive(Clone, Debug)]
pub struct Opportunities {
    trace: Arc<Trace>,
    /// When the present period of the trace began.
    cycle_ns: u64,
    /// In `trace.slots`.
    slot: usize,
    /// Of that slot.
    left_bytes: u64,
    tokens: Tokens,
}

/// What is in the bucket of a trace that has one.
#[derive(Clone, Copy, Debug)]
struct Tokens {
    /// In bits, times 10⁹.
    bit_ns: u128,
    /// As of this time.
    at_ns: u64,
}

const BYTE_NS: u128 = 8 * 1_000_000_000;

impl Opportunities {
    /// All of a trace that begins at this time, its bucket full.
    pub fn new(trace: Arc<Trace>, begin_ns: u64) -> Self {
        let bucket = trace.bucket.map_or(0, |bucket| bucket.bytes);
        Opportunities {
            cycle_ns: begin_ns,
            slot: 0,
            left_bytes: trace.slots[0].bytes(),
            tokens: Tokens {
                bit_ns: u128::from(bucket) * BYTE_NS,
                at_ns: begin_ns,
            },
            trace,
        }
    }

    /// The trace begins anew at this time.
    pub fn restart(&mut self, begin_ns: u64) {
        *self = Opportunities::new(Arc::clone(&self.trace), begin_ns);
    }

    /// When the last byte of a packet leaves that heads the queue from `from_ns` on. The opportunities before that time are
    /// lost.
    pub fn depart(&mut self, from_ns: u64, bytes: u32) -> u64 {
        self.seek(from_ns);
        let mut missing = u64::from(bytes);
        loop {
            let at_ns = self.at_ns();
            let taken = missing.min(self.left_bytes);
            let taken = self.take_tokens(at_ns, taken);
            missing -= taken;
            self.left_bytes -= taken;
            if missing == 0 {
                return at_ns;
            }
            self.advance();
        }
    }

    /// When the next opportunity is, from `from_ns` on. Those before that time are lost.
    pub fn next_ns(&mut self, from_ns: u64) -> u64 {
        self.seek(from_ns);
        if self.left_bytes == 0 {
            self.advance();
        }
        self.at_ns()
    }

    /// What was to leave after this time does not: its opportunities are there again. Tokens are not.
    pub fn give_back(&mut self, now_ns: u64) {
        if self.at_ns() > now_ns {
            let period_ns = self.trace.period_ns();
            while self.cycle_ns > now_ns && self.cycle_ns >= period_ns {
                self.cycle_ns -= period_ns;
            }
            self.enter(0);
            self.seek(now_ns + 1);
        }
    }

    fn at_ns(&self) -> u64 {
        self.cycle_ns + u64::from(self.trace.slots[self.slot].at_ms) * NS_PER_MS
    }

    /// Passes over what is before this time.
    fn seek(&mut self, from_ns: u64) {
        if self.at_ns() >= from_ns {
            return;
        }
        let period_ns = self.trace.period_ns();
        let periods = (from_ns - self.cycle_ns - 1) / period_ns;
        self.cycle_ns += periods * period_ns;
        let (cycle_ns, slots) = (self.cycle_ns, &self.trace.slots);
        let passed = |slot: &Slot| cycle_ns + u64::from(slot.at_ms) * NS_PER_MS < from_ns;
        let first = if periods == 0 { self.slot } else { 0 };
        match first + slots[first..].partition_point(passed) {
            slot if slot < slots.len() => self.enter(slot),
            _ => {
                self.cycle_ns += period_ns;
                self.enter(0);
            }
        }
    }

    fn advance(&mut self) {
        if self.slot + 1 < self.trace.slots.len() {
            return self.enter(self.slot + 1);
        }
        self.cycle_ns += self.trace.period_ns();
        self.enter(0);
    }

    fn enter(&mut self, slot: usize) {
        self.slot = slot;
        self.left_bytes = self.trace.slots[slot].bytes();
    }

    /// As many of `bytes` as there are tokens for.
    fn take_tokens(&mut self, now_ns: u64, bytes: u64) -> u64 {
        let Some(bucket) = self.trace.bucket else {
            return bytes;
        };
        let tokens = &mut self.tokens;
        let passed_ns = u128::from(now_ns.saturating_sub(tokens.at_ns));
        let filled = tokens.bit_ns + passed_ns * u128::from(bucket.rate_bps);
        tokens.at_ns = now_ns.max(tokens.at_ns);
        let taken = bytes.min((filled.min(u128::from(bucket.bytes) * BYTE_NS) / BYTE_NS) as u64);
        tokens.bit_ns =
            filled.min(u128::from(bucket.bytes) * BYTE_NS) - u128::from(taken) * BYTE_NS;
        taken
    }
}
