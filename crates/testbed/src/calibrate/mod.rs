//! Does the emulator keep its word on this machine? UDP is sent through one link and compared with what the link's
//! [`Pipe`] says should have happened to exactly these packets, and with the bounds that the line's rate and delay put
//! on them.

mod host;

use std::io::{self, ErrorKind, IoSliceMut};
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anabranch_line::Line;
use hdrhistogram::Histogram;
use nix::sys::socket::sockopt::{RcvBufForce, ReceiveTimestampns};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt};
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, ClockNanosleepFlags, clock_gettime, clock_nanosleep};
use serde::Serialize;

use crate::emulator::{Emulator, EmulatorError, End, Link, LinkReport, LinkShape, Pipe};
use crate::netns::{Namespace, NetnsError};
use host::Stalls;

const PORT: u16 = 9;
const UDP_IP_BYTES: u32 = 28;
/// All of a trial, should the thread that receives be kept off its core.
const RECEIVE_BUFFER_BYTES: usize = 96 << 20;
/// Everything is sent, and nothing has come for so long: nothing more comes.
const SILENCE: Duration = Duration::from_millis(500);
const SENDER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const SINK: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);

/// Why a trial could not be run.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum CalibrationError {
    #[error(transparent)]
    Namespace(#[from] NetnsError),
    #[error(transparent)]
    Emulator(#[from] EmulatorError),
    #[error("calibration: {0}")]
    Io(#[from] io::Error),
}

/// Of a trial.
pub type Result<T, E = CalibrationError> = std::result::Result<T, E>;

/// What to send, and through what.
#[derive(Debug, Clone, Serialize)]
pub struct Trial {
    /// What the link does on the way.
    pub line: Line,
    /// Offered load as a share of the rate; above 1 the queue is always full.
    pub load: f64,
    /// IP packets of this size.
    pub packet_bytes: u32,
    /// How long packets are sent.
    pub seconds: f64,
}

/// What came of it.
#[derive(Debug, Clone, Serialize)]
pub struct Figures {
    /// What was sent, and through what.
    pub trial: Trial,
    /// Packets.
    pub sent: u64,
    /// Packets.
    pub received: u64,
    /// What the pipe makes of exactly these packets.
    pub expected_received: u64,
    /// As they were sent, each once.
    pub in_order: bool,
    /// Over the packets that were received.
    pub mean_rate_bps: f64,
    /// What the pipe makes of exactly these packets: the line's rate as long as the sender keeps its queue filled.
    pub expected_rate_bps: f64,
    /// Mean rate against the expected, as a fraction.
    pub rate_error: f64,
    /// Arrival against the time the pipe computes from the time of sending.
    pub delay_error_p50_us: f64,
    /// 99th percentile of the same.
    pub delay_error_p99_us: f64,
    /// The largest of the same.
    pub delay_error_max_us: f64,
    /// Before the earliest time that rate and delay allow, at most; negative if none was.
    pub early_max_us: f64,
    /// After the latest time that rate and delay allow, but for stalls of the host.
    pub late_p50_us: f64,
    /// The share of the trial in which a real-time thread was due on one of the CPUs and did not run.
    pub stalled_share: f64,
    /// What the emulator says of itself.
    pub link: LinkReport,
    /// Why the figures cannot be trusted.
    pub problems: Vec<String>,
}

/// Runs a trial through a link of its own.
pub fn run(trial: Trial) -> Result<Figures> {
    let (near, far) = (Namespace::create("near")?, Namespace::create("far")?);
    let emulator = Emulator::start(1)?;
    let ends = [&near, &far].map(|namespace| End {
        namespace,
        device: "eth0",
    });
    let shape = LinkShape {
        up: trial.line.clone(),
        ..LinkShape::new(1_000_000_000, 1_000_000_000, 0)
    };
    let link = emulator.connect("calibration", ends[0], ends[1], shape)?;
    near.add_address("eth0", SENDER.into(), 24)?;
    far.add_address("eth0", SINK.into(), 24)?;
    resolve(&near)?;
    let transfer = transfer(&near, &far, &trial)?;
    compare(trial, &transfer, &link)
}

/// Lets the neighbours find each other, so that no packet of the trial waits for ARP.
fn resolve(near: &Namespace) -> Result<()> {
    near.exec("ping", &["-c", "1", "-w", "10", &SINK.to_string()])?;
    Ok(())
}

/// It reached the link's device between these times.
struct Sent {
    begun_ns: u64,
    done_ns: u64,
}

struct Packet {
    number: u64,
    received_ns: u64,
}

struct Transfer {
    sent: Vec<Sent>,
    received: Vec<Packet>,
    stalls: Stalls,
}

/// Sends on one thread and receives on another, each in its namespace, and watches the host meanwhile.
fn transfer(near: &Namespace, far: &Namespace, trial: &Trial) -> Result<Transfer> {
    let (ready, all_sent, over) = (
        Barrier::new(2),
        AtomicBool::new(false),
        AtomicBool::new(false),
    );
    thread::scope(|scope| {
        let control = scope.spawn(|| Stalls::watch(&over));
        let sink = scope.spawn(|| far.run(|| receive(&ready, &all_sent, trial)));
        let sent = near.run(|| send(&ready, trial));
        all_sent.store(true, Ordering::Relaxed);
        let received = sink.join().expect("receiving does not panic");
        over.store(true, Ordering::Relaxed);
        let stalls = control.join().expect("watching does not panic")?;
        Ok(Transfer {
            sent: sent??,
            received: received??,
            stalls,
        })
    })
}

fn send(ready: &Barrier, trial: &Trial) -> io::Result<Vec<Sent>> {
    let socket = UdpSocket::bind(SocketAddrV4::new(SENDER, 0))?;
    socket.connect(SocketAddrV4::new(SINK, PORT))?;
    nix::sys::prctl::set_timerslack(1)?;
    let mut payload = vec![0; (trial.packet_bytes - UDP_IP_BYTES) as usize];
    let bits = f64::from(trial.packet_bytes) * 8.0;
    let interval_ns = bits * 1e9 / (trial.line.rate_bps as f64 * trial.load);
    let count = (trial.seconds * 1e9 / interval_ns) as u64;
    let mut sent = Vec::with_capacity(count as usize);
    ready.wait();
    let start_ns = monotonic_ns()?;
    for number in 0..count {
        sleep_until(start_ns + (number as f64 * interval_ns) as u64)?;
        payload[..8].copy_from_slice(&number.to_ne_bytes());
        let begun_ns = monotonic_ns()?;
        socket.send(&payload)?;
        let done_ns = monotonic_ns()?;
        sent.push(Sent { begun_ns, done_ns });
    }
    Ok(sent)
}

fn receive(ready: &Barrier, all_sent: &AtomicBool, trial: &Trial) -> io::Result<Vec<Packet>> {
    let socket = UdpSocket::bind(SocketAddrV4::new(SINK, PORT))?;
    setsockopt(&socket, ReceiveTimestampns, &true)?;
    setsockopt(&socket, RcvBufForce, &RECEIVE_BUFFER_BYTES)?;
    let travel = trial.line.delay + SILENCE;
    socket.set_read_timeout(Some(travel))?;
    let mut received = Vec::new();
    ready.wait();
    loop {
        let over = all_sent.load(Ordering::Relaxed);
        match receive_one(&socket)? {
            Some(packet) => received.push(packet),
            None if over => return Ok(received),
            None => {}
        }
    }
}

fn receive_one(socket: &UdpSocket) -> io::Result<Option<Packet>> {
    let mut number = [0; 8];
    let mut vectors = [IoSliceMut::new(&mut number)];
    let mut control = nix::cmsg_space!(TimeSpec);
    let flags = MsgFlags::empty();
    let message = recvmsg::<()>(socket.as_raw_fd(), &mut vectors, Some(&mut control), flags);
    let message = match message.map_err(io::Error::from) {
        Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
        other => other?,
    };
    // In this order: a pause in between must not make it early.
    let (realtime_ns, monotonic_ns) = (clock_ns(ClockId::CLOCK_REALTIME)?, monotonic_ns()?);
    let stamp_ns = message.cmsgs()?.find_map(|control| match control {
        ControlMessageOwned::ScmTimestampns(stamp) => Some(Duration::from(stamp).as_nanos() as u64),
        _ => None,
    });
    let age_ns = realtime_ns.saturating_sub(stamp_ns.unwrap_or(realtime_ns));
    Ok(Some(Packet {
        number: u64::from_ne_bytes(number),
        received_ns: monotonic_ns - age_ns,
    }))
}

/// A transmitter that sends one packet at a time at the line's rate, and the way to the far end.
struct Transmitter {
    packet_ns: f64,
    delay_ns: f64,
    free_ns: f64,
}

impl Transmitter {
    fn new(trial: &Trial) -> Self {
        Self {
            packet_ns: f64::from(trial.packet_bytes) * 8e9 / trial.line.rate_bps as f64,
            delay_ns: trial.line.delay.as_nanos() as f64,
            free_ns: 0.0,
        }
    }

    /// When a packet arrives that reached the transmitter at `at_ns`.
    fn arrival_ns(&mut self, at_ns: u64) -> f64 {
        self.free_ns = self.free_ns.max(at_ns as f64) + self.packet_ns;
        self.free_ns + self.delay_ns
    }
}

/// Holds the packets against two transmitters, one of which got each as early as can be, the other as late. Says how
/// early they were at most, and how late by the median.
fn bounds(trial: &Trial, transfer: &Transfer) -> (f64, f64) {
    let [mut early, mut late] = [Transmitter::new(trial), Transmitter::new(trial)];
    let mut early_max_ns = f64::NEG_INFINITY;
    let mut lateness = histogram();
    for packet in &transfer.received {
        let sent = &transfer.sent[packet.number as usize];
        let received_ns = packet.received_ns;
        let earliest_ns = early.arrival_ns(sent.begun_ns);
        early_max_ns = early_max_ns.max(earliest_ns - received_ns as f64);
        let latest_ns = late.arrival_ns(sent.done_ns).ceil() as u64;
        let stalled_ns = transfer.stalls.within_ns(latest_ns, received_ns);
        lateness.saturating_record(received_ns.saturating_sub(latest_ns + stalled_ns));
    }
    (
        early_max_ns / 1e3,
        lateness.value_at_quantile(0.5) as f64 / 1e3,
    )
}

fn stalled_share(transfer: &Transfer) -> f64 {
    let (Some(first), Some(last)) = (transfer.sent.first(), transfer.received.last()) else {
        return 0.0;
    };
    let (from, to) = (first.begun_ns, last.received_ns);
    transfer.stalls.within_ns(from, to) as f64 / (to - from) as f64
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 10_000_000_000, 3).expect("bounds are in order")
}

/// Sends the same packets through a pipe of the same shape and compares arrivals.
fn compare(trial: Trial, transfer: &Transfer, link: &Link) -> Result<Figures> {
    let Transfer { sent, received, .. } = transfer;
    let mut due_ns = vec![None; sent.len()];
    let mut arrivals_ns = Vec::with_capacity(sent.len());
    let mut pipe = Pipe::new(trial.line.clone(), 0, 0);
    for (number, sent) in sent.iter().enumerate() {
        // A full queue refuses here as it does there.
        let _ = pipe.offer(sent.begun_ns, trial.packet_bytes, number);
    }
    while let Some(arrival) = pipe.pop(u64::MAX) {
        due_ns[arrival.packet] = Some(arrival.due_ns);
        arrivals_ns.push(arrival.due_ns);
    }
    let mut errors = histogram();
    for packet in received {
        if let Some(due_ns) = due_ns[packet.number as usize] {
            errors.saturating_record(packet.received_ns.abs_diff(due_ns));
        }
    }
    let expected_rate_bps = mean_rate_bps(&arrivals_ns, &trial);
    let received_ns = received.iter().map(|packet| packet.received_ns);
    let mean_rate_bps = mean_rate_bps(&received_ns.collect::<Vec<_>>(), &trial);
    let (early_max_us, late_p50_us) = bounds(&trial, transfer);
    let in_order = received.is_sorted_by(|one, next| one.number < next.number);
    let report = link.report()?;
    let us = |ns: u64| ns as f64 / 1000.0;
    Ok(Figures {
        trial,
        sent: sent.len() as u64,
        received: received.len() as u64,
        expected_received: arrivals_ns.len() as u64,
        in_order,
        mean_rate_bps,
        expected_rate_bps,
        rate_error: mean_rate_bps / expected_rate_bps - 1.0,
        delay_error_p50_us: us(errors.value_at_quantile(0.5)),
        delay_error_p99_us: us(errors.value_at_quantile(0.99)),
        delay_error_max_us: us(errors.max()),
        early_max_us,
        late_p50_us,
        stalled_share: stalled_share(transfer),
        problems: report.problems(),
        link: report,
    })
}

/// From the first arrival to the last.
fn mean_rate_bps(arrivals_ns: &[u64], trial: &Trial) -> f64 {
    let [first_ns, .., last_ns] = arrivals_ns else {
        return 0.0;
    };
    let bits = (arrivals_ns.len() - 1) as f64 * f64::from(trial.packet_bytes) * 8.0;
    bits * 1e9 / (last_ns - first_ns) as f64
}

fn clock_ns(clock: ClockId) -> io::Result<u64> {
    Ok(Duration::from(clock_gettime(clock)?).as_nanos() as u64)
}

fn monotonic_ns() -> io::Result<u64> {
    clock_ns(ClockId::CLOCK_MONOTONIC)
}

fn sleep_until(at_ns: u64) -> io::Result<()> {
    if at_ns <= monotonic_ns()? {
        return Ok(());
    }
    let at = TimeSpec::from_duration(Duration::from_nanos(at_ns));
    let flags = ClockNanosleepFlags::TIMER_ABSTIME;
    clock_nanosleep(ClockId::CLOCK_MONOTONIC, flags, &at)?;
    Ok(())
}
