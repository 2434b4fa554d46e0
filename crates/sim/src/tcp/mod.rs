//! TCP as a pure state machine, one [`Endpoint`] per side.
//!
//! The model counts segments, as ns-2 does: the SYN is number 0, data follows from 1, and the FIN takes a number of its
//! own. A message starts a segment; only its last segment may be shorter than the MSS. The reader is never slow, so the
//! receive window is a constant.
//!
//! Order of use: any of the commands ([`Endpoint::connect`], [`Endpoint::write`], [`Endpoint::close`]) and of
//! [`Endpoint::handle_segment`], [`Endpoint::handle_timeout`]; then [`Endpoint::poll_segment`] until it has nothing more
//! to send; then [`Endpoint::poll_timeout`].

mod bbr;
mod burst;
mod control;
mod hystart;
mod pacing;
mod phase;
mod rack;
mod rate;
mod receiver;
mod scoreboard;
mod sender;
mod timer;
mod trains;
mod undo;

pub use anabranch_scenario::{Control, Growth, Recovery};
pub use control::Window;
pub use sender::SenderCounters;
pub use timer::RetransmissionTimeout;

use receiver::Receiver;
use sender::{FIRST, Sender};

/// Blocks in one acknowledgement: what fits beside timestamps (RFC 2018 section 3).
pub const MAX_BLOCKS: usize = 3;
/// Unanswered SYNs before giving up, after the first.
const SYN_RETRIES: u32 = 6;
/// Timeouts in a row before giving up.
const DATA_RETRIES: u32 = 15;

/// How both ends of a connection behave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpConfig {
    /// What finds and repairs losses.
    pub recovery: Recovery,
    /// What the window follows.
    pub control: Control,
    /// Whether CUBIC's first slow start is that of HyStart++ (RFC 9406); Reno has none.
    pub hystart: bool,
    /// Whether segments leave as Linux paces them, not as soon as the window lets them. BBR paces in any case.
    pub pacing: bool,
    /// What the window grows by.
    pub growth: Growth,
    /// Whether the receiver reports what arrives twice (RFC 2883), and the sender takes back what it did in vain.
    pub dsack: bool,
    /// Whether data may be marked where it would be dropped (RFC 3168).
    pub ecn: bool,
    /// Payload of a full segment, up to 65 535.
    pub mss_bytes: u32,
    /// Of IP and TCP, on every packet.
    pub header_bytes: u32,
    /// In segments.
    pub initial_window: u32,
    /// After so many lost SYNs or SYN-ACKs the first window is one segment: 1 in RFC 5681 section 3.1, 2 in Linux, since
    /// a timeout of one second (RFC 6298) may be a long round trip's.
    pub lost_syns: u32,
    /// Constant, in segments.
    pub receive_window: u32,
    /// The least retransmission timeout.
    pub min_rto_ns: u64,
    /// How long an acknowledgement may wait for a second segment; `None` acknowledges each.
    pub delayed_ack_ns: Option<u64>,
    /// How long a host may take to send what TCP has said.
    pub overhead_ns: u64,
}

impl Default for TcpConfig {
    /// SACK and Reno with RFC 6928's window, RFC 6298's minimum of 1 s, and an acknowledgement per segment.
    fn default() -> Self {
        TcpConfig {
            recovery: Recovery::Sack,
            control: Control::Reno,
            hystart: false,
            pacing: false,
            growth: Growth::PerAck,
            dsack: false,
            ecn: false,
            mss_bytes: 1448,
            header_bytes: 52,
            initial_window: 10,
            lost_syns: 2,
            receive_window: 1 << 16,
            min_rto_ns: 1_000_000_000,
            delayed_ack_ns: None,
            overhead_ns: 0,
        }
    }
}

/// Numbers from `start` up to, not including, `end`; empty if both are 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Block {
    /// The first.
    pub start: u32,
    /// Behind the last.
    pub end: u32,
}

/// What one segment can tell of; the rest are empty.
pub type SackBlocks = [Block; MAX_BLOCKS];

/// What a segment is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Opens the connection.
    Syn,
    /// Answers it.
    SynAck,
    /// Carries payload.
    Data,
    /// Ends a direction.
    Fin,
    /// Only acknowledges.
    Ack,
    /// Ends the connection at once.
    Rst,
}

/// What a segment says in single bits: those of TCP's header, and the ECN field of IP's (RFC 3168).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(u8);

impl Flags {
    /// Blocks of a selective acknowledgement go with it.
    pub const SACK: Flags = Flags(1);
    /// ECN-Echo: congestion was experienced on the way of the data.
    pub const ECE: Flags = Flags(2);
    /// Congestion window reduced: the echo was heard.
    pub const CWR: Flags = Flags(4);
    /// ECN-capable transport: a queue may mark the packet where it would drop it.
    pub const ECT: Flags = Flags(8);
    /// Congestion experienced: a queue has marked the packet.
    pub const CE: Flags = Flags(16);

    /// Whether all of `other` are set.
    #[inline]
    pub fn has(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }

    /// These and, if so, those of `other`.
    #[inline]
    #[must_use]
    pub fn with(self, other: Flags, so: bool) -> Flags {
        Flags(self.0 | if so { other.0 } else { 0 })
    }

    /// Sets those of `other`, or clears them.
    pub fn set(&mut self, other: Flags, so: bool) {
        *self = Flags(self.0 & !other.0).with(other, so);
    }
}

/// What TCP says on the wire, but for the blocks of a selective acknowledgement: [`Endpoint::sack`] tells them after
/// [`Endpoint::poll_segment`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// What it is for.
    pub kind: Kind,
    /// What it says in single bits.
    pub flags: Flags,
    /// 0 but for data.
    pub payload_bytes: u16,
    /// Of the segment, counted from 0 in each direction; of what only acknowledges, the stamp that it echoes.
    pub number: u32,
    /// The next number that its sender expects.
    pub ack: u32,
    /// When it was sent, as a timestamp (RFC 7323) has it: in [`STAMP_NS`], and later than all before of its sender.
    pub stamp: u32,
}

/// The unit of timestamps: two microseconds, nearly.
const STAMP_NS: u64 = 1 << 11;
/// IP and TCP without options: no room for timestamps.
const PLAIN_HEADER_BYTES: u32 = 40;

impl Segment {
    /// A segment that says no more than its kind.
    pub fn bare(kind: Kind) -> Segment {
        Segment {
            kind,
            flags: Flags::default(),
            payload_bytes: 0,
            number: 0,
            ack: 0,
            stamp: u32::MAX,
        }
    }
}

/// Where a connection stands, for one of its ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Waits for a SYN.
    Listen,
    /// The opener has sent its SYN.
    SynSent,
    /// The peer has answered it.
    SynReceived,
    /// Both SYNs are acknowledged; FINs travel as data does.
    Established,
    /// Both FINs are acknowledged.
    Closed,
    /// The peer sent RST, or never answered.
    Aborted,
}

/// One side of a connection.
#[derive(Debug)]
pub struct Endpoint {
    state: State,
    sender: Sender,
    receiver: Receiver,
    /// A SYN, SYN-ACK or RST to send.
    signal: Option<Kind>,
    syn_sent_ns: u64,
    syn_repeats: u32,
    /// Of the segment that was sent last.
    stamp: u32,
}

impl Endpoint {
    /// An endpoint that waits for a SYN. What its congestion control draws, it draws from a stream of `seed`.
    pub fn new(config: &TcpConfig, seed: u64) -> Self {
        Endpoint {
            state: State::Listen,
            sender: Sender::new(config, seed),
            receiver: Receiver::default(),
            signal: None,
            syn_sent_ns: 0,
            syn_repeats: 0,
            stamp: 0,
        }
    }

    /// Where it stands.
    #[inline]
    pub fn state(&self) -> State {
        self.state
    }

    /// Of what it sends.
    pub fn window(&self) -> &Window {
        self.sender.window()
    }

    /// Of what it has sent.
    pub fn counters(&self) -> SenderCounters {
        self.sender.counters()
    }

    /// Segments of this side that the peer acknowledged, the FIN among them.
    pub fn acknowledged_segments(&self) -> u32 {
        self.sender.acknowledged()
    }

    /// One more than the greatest number sent.
    #[inline]
    pub(crate) fn high(&self) -> u32 {
        self.sender.high()
    }

    /// Segments of the peer that arrived in order, the FIN among them.
    pub fn received_segments(&self) -> u32 {
        self.receiver.next().saturating_sub(FIRST)
    }

    /// Whether everything written and the FIN were acknowledged.
    pub fn sent_all(&self) -> bool {
        self.sender.finished()
    }

    /// Whether everything of the peer's and its FIN arrived.
    pub fn received_all(&self) -> bool {
        self.receiver.finished()
    }

    /// Opens the connection.
    pub fn connect(&mut self, now_ns: u64) {
        self.state = State::SynSent;
        self.send_syn(Kind::Syn, now_ns);
    }

    /// Appends a message to what is sent.
    pub fn write(&mut self, bytes: u64, config: &TcpConfig) {
        self.sender.write(bytes, config);
    }

    /// Sends full segments without end.
    pub fn write_forever(&mut self, config: &TcpConfig) {
        self.sender.write_forever(config);
    }

    /// Sends a FIN after what was written.
    pub fn close(&mut self) {
        self.sender.close();
    }

    /// SYNs or SYN-ACKs sent again.
    pub fn syn_repeats(&self) -> u32 {
        self.syn_repeats
    }

    /// How many segments a message becomes.
    pub fn segments_of(bytes: u64, config: &TcpConfig) -> u32 {
        u32::try_from(bytes.div_ceil(config.mss_bytes.into())).unwrap_or(u32::MAX)
    }

    /// Lets go of the connection: the peer of an open one is sent a RST.
    pub fn reset(&mut self) {
        let open = matches!(self.state, State::SynReceived | State::Established);
        self.abort();
        self.signal = open.then_some(Kind::Rst);
    }

    fn send_syn(&mut self, kind: Kind, now_ns: u64) {
        self.signal = Some(kind);
        self.syn_sent_ns = now_ns;
        self.sender.deadline_ns = now_ns + self.sender.timeout.current_ns();
    }

    /// `sack` are the blocks that go with it, if some do.
    #[inline(always)]
    pub fn handle_segment(
        &mut self,
        segment: &Segment,
        sack: Option<&SackBlocks>,
        now_ns: u64,
        config: &TcpConfig,
    ) {
        if self.state == State::Established && segment.kind != Kind::Rst {
            return self.handle_established(segment, sack, now_ns, config);
        }
        match (self.state, segment.kind) {
            (_, Kind::Rst) => self.abort(),
            (State::Aborted, _) => self.signal = Some(Kind::Rst),
            (State::Listen, Kind::Syn) => {
                self.state = State::SynReceived;
                self.receiver.receive(0, false, now_ns, config);
                self.receiver.acknowledged();
                self.send_syn(Kind::SynAck, now_ns);
            }
            (State::SynReceived, Kind::Syn) => self.signal = Some(Kind::SynAck),
            (State::SynSent, Kind::SynAck) => {
                self.establish(now_ns, config);
                self.receiver.receive(0, false, now_ns, config);
                self.receiver.ack_due = true;
            }
            (State::Listen, _) => self.signal = Some(Kind::Rst),
            (State::SynSent, _) => {}
            _ => self.handle_established(segment, sack, now_ns, config),
        }
    }

    #[inline(always)]
    fn handle_established(
        &mut self,
        segment: &Segment,
        sack: Option<&SackBlocks>,
        now_ns: u64,
        config: &TcpConfig,
    ) {
        if self.state == State::SynReceived {
            self.establish(now_ns, config);
        }
        if !self.sender.has_heard(segment.ack, sack) {
            self.sender.acknowledge(segment, sack, now_ns, config);
        }
        match segment.kind {
            Kind::Data | Kind::Fin => {
                let fin = segment.kind == Kind::Fin;
                self.receiver.read_stamp(segment);
                self.receiver.receive(segment.number, fin, now_ns, config);
                if config.ecn {
                    self.receiver.notice(segment.flags);
                }
            }
            Kind::Syn | Kind::SynAck => self.receiver.ack_due = true,
            Kind::Ack | Kind::Rst => {}
        }
        if self.sender.finished() && self.receiver.finished() {
            self.state = State::Closed;
        }
    }

    fn establish(&mut self, now_ns: u64, config: &TcpConfig) {
        self.state = State::Established;
        self.sender.deadline_ns = u64::MAX;
        self.sender.timeout.progress();
        if self.syn_repeats > 0 {
            self.sender.lose_syns(self.syn_repeats, config);
        } else {
            self.sender
                .timeout
                .sample(now_ns - self.syn_sent_ns, config);
        }
    }

    fn abort(&mut self) {
        self.state = State::Aborted;
        self.signal = None;
        self.sender.stop();
        self.receiver.acknowledged();
    }

    /// Time has reached what [`Endpoint::poll_timeout`] said; does nothing before.
    pub fn handle_timeout(&mut self, now_ns: u64, config: &TcpConfig) {
        self.receiver.handle_timeout(now_ns);
        if self.sender.deadline_ns > now_ns {
            return;
        }
        match self.state {
            State::SynSent => self.repeat_syn(Kind::Syn, now_ns),
            State::SynReceived => self.repeat_syn(Kind::SynAck, now_ns),
            _ if self.sender.timeout.backoffs() >= DATA_RETRIES => self.give_up(),
            _ => self.sender.handle_timeout(now_ns, config),
        }
    }

    fn repeat_syn(&mut self, kind: Kind, now_ns: u64) {
        if self.syn_repeats == SYN_RETRIES {
            self.give_up();
            return;
        }
        self.syn_repeats += 1;
        self.sender.timeout.back_off();
        self.send_syn(kind, now_ns);
    }

    fn give_up(&mut self) {
        self.abort();
        self.signal = Some(Kind::Rst);
    }

    /// When [`Endpoint::handle_timeout`] must be called, in ns.
    #[inline]
    pub fn poll_timeout(&self) -> Option<u64> {
        let deadline_ns = self.sender.due_ns().min(self.receiver.delayed_until_ns);
        (deadline_ns != u64::MAX).then_some(deadline_ns)
    }

    /// The blocks that go with the segment polled last; to be asked for once.
    pub fn take_sack(&mut self) -> SackBlocks {
        self.receiver.take_blocks()
    }

    /// The next segment to send.
    #[inline(always)]
    pub fn poll_segment(&mut self, now_ns: u64, config: &TcpConfig) -> Option<Segment> {
        if let Some(kind) = self.signal.take() {
            return Some(self.segment(kind, 0, 0, now_ns));
        }
        if !matches!(self.state, State::Established | State::Closed) {
            return None;
        }
        let high = self.high();
        if let Some(number) = self.sender.poll(now_ns, config) {
            let fin = self.sender.is_fin(number);
            let kind = if fin { Kind::Fin } else { Kind::Data };
            let payload_bytes = self.sender.payload_bytes(number, config);
            self.receiver.acknowledged();
            let mut segment = self.segment(kind, number, payload_bytes, now_ns);
            if config.ecn && kind == Kind::Data && number >= high {
                let reduced = self.sender.take_reduced();
                segment.flags = segment.flags.with(Flags::ECT, true);
                segment.flags = segment.flags.with(Flags::CWR, reduced);
            }
            return Some(segment);
        }
        if self.receiver.ack_due {
            self.receiver.acknowledged();
            let echo = self.receiver.stamp();
            return Some(self.segment(Kind::Ack, echo, 0, now_ns));
        }
        None
    }

    /// Whether there may be another segment after one of kind `last`.
    #[inline(always)]
    pub fn may_go_on(&self, last: Kind, config: &TcpConfig) -> bool {
        match last {
            Kind::Ack => false,
            Kind::Data | Kind::Fin => !self.sender.fills_window(config),
            Kind::Syn | Kind::SynAck | Kind::Rst => true,
        }
    }

    fn segment(&mut self, kind: Kind, number: u32, payload_bytes: u32, now_ns: u64) -> Segment {
        let stamp = stamp_at(now_ns);
        self.stamp = match is_before(self.stamp, stamp) {
            true => stamp,
            false => self.stamp.wrapping_add(1),
        };
        Segment {
            kind,
            flags: self.receiver.flags(),
            payload_bytes: payload_bytes as u16,
            number,
            ack: self.receiver.next(),
            stamp: self.stamp,
        }
    }
}

fn stamp_at(now_ns: u64) -> u32 {
    (now_ns / STAMP_NS) as u32
}

/// Of two timestamps, modulo 2^32.
#[inline]
pub(crate) fn is_before(one: u32, other: u32) -> bool {
    (one.wrapping_sub(other) as i32) < 0
}
