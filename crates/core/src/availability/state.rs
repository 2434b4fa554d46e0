//! The states of a link, and their reasons.

use std::fmt;

use crate::link::Missing;

/// Why a link is probed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suspicion {
    /// The link is new, and has not answered yet.
    Unproven,
    /// Packets were sent and nothing came in.
    Silent,
    /// Packets were sent, and nothing that came in proves that they arrived.
    OneWay,
    /// Nothing came in for long.
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
    /// Probes that this suspicion caused were lost.
    Unanswered(Suspicion),
    /// Its device, carrier, address or gateway is missing.
    Absent(Missing),
    /// It is present again after an absence, and has not answered yet.
    Returning,
    /// It answers, but has gone down too often to be used again at once.
    HeldDown,
    /// A captive portal answers in the place of a page.
    Portal,
    /// A check of the operator is down.
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

/// The state of a link for one address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// In use.
    Up,
    /// In use, and being probed.
    PossiblyDown(Suspicion),
    /// It answers probes but carries no new connections. It keeps its flows, and takes new ones only if no other link is left.
    Captive,
    /// Not in use.
    Down(DownCause),
}

impl State {
    /// Whether probes are sent at regular intervals.
    pub(super) fn is_probed(self) -> bool {
        !matches!(self, State::Up | State::Down(DownCause::Absent(_)))
    }
}
