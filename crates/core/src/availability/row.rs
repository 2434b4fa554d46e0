//! Probes that are lost one after the other, and how many of them are no chance.
//!
//! A link that loses a part of its probes anyway is not down for three of them. A row counts when chance makes it once in [`CHANCE`]
//! rows; and it counts when another link was heard of since it began, or no word came for [`COMMON`]: what all links show at once is
//! explained by what they have in common.

use std::time::Duration;

use crate::quality::ProbeQuality;
use crate::time::Time;

/// So long a verdict waits for word of another link.
pub const COMMON: Duration = Duration::from_secs(1);
/// By chance a link goes down once in so many rows of probes.
pub const CHANCE: f64 = 1e7;
/// By chance a kind of targets is silent once in so many complaints. Less than of rows: users speak against the link as well.
const SILENCE: f64 = 1e6;
/// However much a link loses, so many in a row are no chance, ...
const ROW_MAX: u32 = 20;
/// ... and so many of each of two kinds, while users complain.
const SILENT_MAX: u32 = 14;
/// So many times as much may be lost as is counted: a kind that misses several in a row is mute for a while.
const UNCOUNTED: f64 = 1.5;
/// Fewer probes of the last minute say nothing of what it loses.
const MINUTE_LEAST: usize = 20;
/// What it lost before is remembered for so many answers.
const LOSSY_MEMORY: f64 = 256.0;

#[derive(Clone, Debug)]
pub(super) struct Row {
    /// Since the last answer.
    lost: u32,
    /// When the first of these was sent, ...
    since: Option<Time>,
    /// ... and the last.
    last: Time,
    /// So many take the link down.
    needed: u32,
    /// Since when there are so many, while the verdict waits for word of another link, ...
    waits: Option<Time>,
    /// ... and when that came.
    word: Option<Time>,
    /// The part of its probes that the link loses, as far as it is remembered.
    lossy: f64,
}

impl Row {
    pub fn new(now: Time, needed: u32) -> Self {
        Row {
            lost: 0,
            since: None,
            last: now,
            needed,
            waits: None,
            word: None,
            lossy: 0.0,
        }
    }

    pub fn lost(&self) -> u32 {
        self.lost
    }

    pub fn since(&self) -> Option<Time> {
        self.since
    }

    pub fn is_enough(&self) -> bool {
        self.lost >= self.needed
    }

    /// No more are needed than of a link that loses nothing.
    pub fn is_of_clean_link(&self, least: u32) -> bool {
        self.needed == least
    }

    /// No word of another link came since it began.
    pub fn is_without_word(&self) -> bool {
        self.word.is_none()
    }

    /// Before a probe is lost that may begin a row: `minute` tells of the last minute, that probe included.
    pub fn expect(&mut self, minute: ProbeQuality, least: u32) {
        if self.lost > 0 {
            return;
        }
        let without = ProbeQuality {
            judged: minute.judged.saturating_sub(1),
            lost: minute.lost.saturating_sub(1),
            ..minute
        };
        self.needed = self.beyond_chance(without, least);
    }

    /// So many losses in a row are no chance, by what was lost within a minute.
    pub fn beyond_chance(&self, minute: ProbeQuality, least: u32) -> u32 {
        let needed = self.row_of(CHANCE, at_least(minute));
        needed.clamp(least, ROW_MAX.max(least))
    }

    /// While users complain of a link, a kind of targets is silent after so many losses: one, of a link that loses nothing else.
    pub fn silent_after(&self, minute: ProbeQuality, least: u32) -> u32 {
        let row = self.row_of(SILENCE, at_least(minute));
        (1 + row.max(least) - least).min(SILENT_MAX)
    }

    /// So long a row comes by chance once in `chance`, if this part is lost, or what is remembered.
    fn row_of(&self, chance: f64, part: f64) -> u32 {
        let part = part.max(self.lossy * UNCOUNTED).min(0.9);
        (chance.ln() / -part.ln()).ceil() as u32
    }

    pub fn lose(&mut self, sent: Time) {
        self.lost += 1;
        self.since.get_or_insert(sent);
        self.last = sent;
    }

    /// Another link was last heard of then.
    pub fn hear(&mut self, now: Time, heard: Option<Time>) {
        if self.since.is_some_and(|since| heard > Some(since)) {
            self.word.get_or_insert(now);
        }
    }

    /// Whether the verdict can be given. What ends for all links at once ends for each a little earlier or later: word that comes
    /// while it waits counts with the next loss.
    pub fn is_ripe(&mut self, now: Time) -> bool {
        let waits = *self.waits.get_or_insert(now);
        let is_word_good = |word: Time| word <= waits || word <= self.last;
        self.word.is_some_and(is_word_good) || now >= waits + COMMON
    }

    /// When it is ripe at the latest, if it waits.
    pub fn ripe_at(&self) -> Option<Time> {
        self.waits.map(|since| since + COMMON)
    }

    pub fn rest(&mut self) {
        self.waits = None;
    }

    /// An answer came: it was no cut.
    pub fn learn(&mut self) {
        for lost in std::iter::repeat_n(1.0, self.lost as usize).chain([0.0]) {
            self.lossy += (lost - self.lossy) / LOSSY_MEMORY;
        }
    }

    pub fn end(&mut self) {
        *self = Row {
            lossy: self.lossy,
            ..Row::new(self.last, self.needed)
        };
    }
}

/// What part was lost lately at least: one and a half standard errors less. Nothing where few were judged, or one was lost.
fn at_least(minute: ProbeQuality) -> f64 {
    if minute.judged < MINUTE_LEAST || minute.lost < 2 {
        return 0.0;
    }
    let judged = minute.judged as f64;
    let part = minute.lost as f64 / judged;
    (part - 1.5 * (part * (1.0 - part) / judged).sqrt()).max(0.0)
}
