//! What a link is by now, and why.

use std::fmt;

use crate::link::Missing;

/// Why a link is probed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suspicion {
    /// Seen for the first time: nothing is known of it.
    Unproven,
    /// Packets were sent and nothing came in.
    Silent,
    /// Packets were sent, and nothing that came in proves that they arrive.
    OneWay,
    /// Nothing was heard for long.
    Idle,
}

impl fmt::Display for Suspicion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Suspicion::Unproven => "not heard yet",
            Suspicion::Silent => "silent while packets are sent",
            Suspicion::OneWay => "no sign that packets arrive",
            Suspicion::Idle => "nothing heard for long",
        })
    }
}

/// Why a link is down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DownCause {
    /// Probes that this suspicion started were lost.
    Unanswered(Suspicion),
    /// It lacks what it needs to carry packets.
    Absent(Missing),
    /// It is present again after an absence, and has not answered yet.
    Returning,
    /// It answers, and has gone down too often to be trusted already.
    HeldDown,
    /// Somebody else than who was asked answers for pages.
    Portal,
    /// A check of the operator's is down.
    Check,
}

impl fmt::Display for DownCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DownCause::Unanswered(suspicion) => write!(f, "{suspicion}, and probes are lost"),
            DownCause::Absent(missing) => missing.fmt(f),
            DownCause::Returning => f.write_str("present again, not heard yet"),
            DownCause::HeldDown => f.write_str("held down: it answers, and went down too often"),
            DownCause::Portal => {
                f.write_str("captive portal: a page answers otherwise than it should")
            }
            DownCause::Check => f.write_str("a check fails"),
        }
    }
}

/// UP, POSSIBLY DOWN, DOWN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// In use.
    Up,
    /// In use, and probes are on their way.
    PossiblyDown(Suspicion),
    /// It answers, and carries nothing of what users begin: it keeps its flows, and takes new ones where no other link is left.
    Captive,
    /// Out of use.
    Down(DownCause),
}

impl State {
    /// Whether probes are sent at a pace of their own.
    pub(super) fn is_probed(self) -> bool {
        !matches!(self, State::Up | State::Down(DownCause::Absent(_)))
    }
}
