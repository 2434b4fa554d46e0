//! Connections, their two sides, and what becomes of them.

use anabranch_core::Time;

use super::index;
use super::overhead::Overhead;
use super::path::{Hop, Path, PathId};
use crate::tcp::{Endpoint, State, TcpConfig};

/// A connection. Once it is over and forgotten its number is given to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FlowId(pub(super) u32);

impl FlowId {
    /// To keep what belongs to flows in an array.
    pub fn index(self) -> usize {
        self.0 as usize
    }

    pub(crate) fn number(self) -> u32 {
        self.0
    }

    pub(crate) fn at(place: usize) -> FlowId {
        FlowId(index(place))
    }
}

/// One side of a connection. Names nothing any more once its place was given to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SideId {
    pub(super) index: u32,
    pub(super) generation: u32,
}

impl SideId {
    /// No side of any connection.
    pub const NOBODY: SideId = SideId {
        index: u32::MAX,
        generation: 0,
    };

    /// To keep what belongs to sides in an array.
    pub fn index(self) -> usize {
        self.index as usize
    }
}

/// What a flow is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// The opener sends a message of so many bytes, then a FIN; the peer closes when it has all.
    Transfer(u64),
    /// The opener sends for ever.
    Endless,
    /// The opener sends so many bytes, the peer answers with so many and closes.
    Request {
        /// From the opener.
        request_bytes: u64,
        /// From its peer.
        response_bytes: u64,
    },
}

/// Where and when a connection lives.
#[derive(Clone, Copy, Debug)]
pub struct FlowSpec {
    /// When the SYN is sent.
    pub start: Time,
    /// What is sent.
    pub work: Work,
    /// From the opener to its peer.
    pub forward: PathId,
    /// From the peer to the opener.
    pub back: PathId,
    /// Of both ends.
    pub tcp: TcpConfig,
}

/// What happened to a flow, as its opener saw it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowTimes {
    /// The SYN-ACK came.
    pub established: Option<Time>,
    /// The first data of the peer came.
    pub first_byte: Option<Time>,
    /// All data of the peer came, or, where the opener sends, all data and the FIN were acknowledged.
    pub finished: Option<Time>,
    /// Reset or given up.
    pub aborted: Option<Time>,
}

/// What a site hears of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// The SYN-ACK came.
    Established,
    /// The first data of the peer came.
    FirstByte,
    /// All is sent and received, as [`FlowTimes::finished`] says.
    Finished,
    /// The peer, or somebody in its name, sent RST.
    Reset,
    /// Nobody answered, or [`Net::abandon`] was called.
    GivenUp,
    /// [`Net::refuse`] was called.
    Unreachable,
    /// Both sides are done; the flow's number is free after this.
    Gone,
}

#[derive(Debug)]
pub(crate) struct Flow {
    pub spec: FlowSpec,
    pub times: FlowTimes,
    pub opener: SideId,
    pub peer: SideId,
}

/// What a side does beyond answering.
#[derive(Clone, Copy, Debug)]
pub(super) enum Role {
    /// Opens, sends, closes.
    Sends,
    /// Opens, sends a request, and wants so many segments.
    Asks(u32),
    /// Closes when it has all.
    Takes,
    /// Answers with so many bytes when it has so many segments.
    Answers { after: u32, bytes: u64 },
    /// Hears nothing.
    Dead,
}

/// How far a flow has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    Opening,
    Open,
    Answered,
    Finished,
    Aborted,
}

#[derive(Debug)]
pub(crate) struct Side {
    pub endpoint: Endpoint,
    /// When its one valid timer event fires; `u64::MAX` if none is pending. It may fire early, never late: a deadline
    /// that moves away leaves the event where it is.
    pub(super) armed_ns: u64,
    pub(super) heard_ns: u64,
    pub(super) generation: u32,
    /// None if its flow went on without it.
    pub flow: Option<FlowId>,
    pub other: SideId,
    /// Where its packets go first, and then: apart, so that a packet copies the rest as it stands.
    pub(super) first: Option<Hop>,
    pub(super) rest: Path,
    pub tcp: u16,
    pub(super) role: Role,
    pub stage: Stage,
    pub(crate) label: u32,
    pub(super) hops: u16,
    /// The latest stamp that came.
    pub(super) seen: u32,
    pub(super) overhead: Option<Box<Overhead>>,
    pub(super) free: bool,
}

impl Side {
    pub(super) fn route(&mut self, path: Path) {
        self.rest = path;
        self.first = self.rest.next();
    }

    pub(super) fn is_done(&self) -> bool {
        matches!(self.endpoint.state(), State::Closed | State::Aborted)
    }

    pub fn opens(&self) -> bool {
        matches!(self.role, Role::Sends | Role::Asks(_))
    }

    pub(super) fn reached(&self) -> Stage {
        match self.endpoint.state() {
            State::Listen | State::SynSent | State::SynReceived => Stage::Opening,
            State::Aborted => Stage::Aborted,
            State::Established | State::Closed => match self.role {
                Role::Sends if self.endpoint.sent_all() => Stage::Finished,
                Role::Asks(segments) if self.endpoint.received_segments() >= segments => {
                    Stage::Finished
                }
                Role::Asks(_) if self.endpoint.received_segments() > 0 => Stage::Answered,
                _ => Stage::Open,
            },
        }
    }
}
