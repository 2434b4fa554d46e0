//! Losses of probes in a row: how many cannot be chance.
//!
//! A link that loses some of its probes anyway must not go down for three losses. A row counts if chance produces it only once in
//! [`CHANCE`] rows. Its verdict waits until another link was heard since the row began, at most for [`COMMON`]: if all links fail
//! at once, the cause is probably not the links.

use std::time::Duration;

use crate::quality::ProbeQuality;
use crate::time::Time;

/// How long a verdict waits until another link is heard.
pub const COMMON: Duration = Duration::from_secs(1);
/// A link goes down by chance once in this many rows.
pub const CHANCE: f64 = 1e7;
/// While users complain, a kind of targets counts as silent by chance once in this many times. It is less than [`CHANCE`], because
/// the users' evidence comes in addition.
const SILENCE: f64 = 1e6;
/// However many probes a link loses, this many in a row are enough, ...
const ROW_MAX: u32 = 20;
/// ... and this many of each of two kinds while users complain.
const SILENT_MAX: u32 = 14;
/// Losses of mute targets are not counted, and a kind is mute after several losses in a row. So the true loss may be this many
/// times the counted one.
const UNCOUNTED: f64 = 1.5;
/// With fewer probes than this in the last minute, their losses say nothing.
const MINUTE_LEAST: usize = 20;
/// Time constant of the long-term loss, in probes.
const LOSSY_MEMORY: f64 = 256.0;

#[derive(Clone, Debug)]
pub(super) struct Row {
    /// Losses since the last answer.
    lost: u32,
    /// When the first of the lost probes was sent, ...
    since: Option<Time>,
    /// ... and the last.
    last: Time,
    /// How many losses take the link down.
    needed: u32,
    /// Since when there are that many, while the verdict waits for another link, ...
    waits: Option<Time>,
    /// ... and when another link was heard.
    word: Option<Time>,
    /// Long-term share of lost probes.
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

    /// Whether a row needs no more losses than on a link without loss.
    pub fn is_of_clean_link(&self, least: u32) -> bool {
        self.needed == least
    }

    /// Whether no other link was heard since the row began.
    pub fn is_without_word(&self) -> bool {
        self.word.is_none()
    }

    /// Sets how many losses a row needs, before its first loss is counted. `minute` includes that loss.
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

    /// How many losses in a row cannot be chance, given the losses of the last minute.
    pub fn beyond_chance(&self, minute: ProbeQuality, least: u32) -> u32 {
        let needed = self.row_of(CHANCE, at_least(minute));
        needed.clamp(least, ROW_MAX.max(least))
    }

    /// How many losses make a kind of targets silent while users complain: one on a link without loss, more on a lossy one.
    pub fn silent_after(&self, minute: ProbeQuality, least: u32) -> u32 {
        let row = self.row_of(SILENCE, at_least(minute));
        (1 + row.max(least) - least).min(SILENT_MAX)
    }

    /// The length of a row that chance produces once in `chance` rows, if this share or the long-term share of probes is lost.
    fn row_of(&self, chance: f64, part: f64) -> u32 {
        let part = part.max(self.lossy * UNCOUNTED).min(0.9);
        (chance.ln() / -part.ln()).ceil() as u32
    }

    pub fn lose(&mut self, sent: Time) {
        self.lost += 1;
        self.since.get_or_insert(sent);
        self.last = sent;
    }

    /// `heard` is when another link was last heard.
    pub fn hear(&mut self, now: Time, heard: Option<Time>) {
        if self.since.is_some_and(|since| heard > Some(since)) {
            self.word.get_or_insert(now);
        }
    }

    /// Whether the verdict may be given. If all links fail at once, they do not fail at exactly the same time. So if another link
    /// is heard while the verdict waits, that counts only with the next loss.
    pub fn is_ripe(&mut self, now: Time) -> bool {
        let waits = *self.waits.get_or_insert(now);
        let is_word_good = |word: Time| word <= waits || word <= self.last;
        self.word.is_some_and(is_word_good) || now >= waits + COMMON
    }

    /// The latest time at which a waiting verdict is given.
    pub fn ripe_at(&self) -> Option<Time> {
        self.waits.map(|since| since + COMMON)
    }

    pub fn rest(&mut self) {
        self.waits = None;
    }

    /// An answer came, so the losses were no outage: they count for the long-term share.
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

/// Lower bound of the loss: the measured share less 1.5 standard errors. Zero if there are few probes, or only one loss.
fn at_least(minute: ProbeQuality) -> f64 {
    if minute.judged < MINUTE_LEAST || minute.lost < 2 {
        return 0.0;
    }
    let judged = minute.judged as f64;
    let part = minute.lost as f64 / judged;
    (part - 1.5 * (part * (1.0 - part) / judged).sqrt()).max(0.0)
}
