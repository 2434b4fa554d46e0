//! The flows of the neighbours: long ones that are kept open, new ones several times a second, and the servers that answer.
//!
//! A server tells each client which source address it sees. So the client knows which link carries its flow, and notices
//! when that changes.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::Range;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};

use anabranch_workload::client::Stop;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream, UdpSocket};
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use super::ground::{HOSTS_OWN, link_of};
use super::judge::{Attempt, Event, Flow, Harm, PATIENCE_MS, Part, Record, SILENCE_MS, Way};

const BETWEEN_EXCHANGES: Duration = Duration::from_millis(250);
const BETWEEN_NEW_FLOWS: Duration = Duration::from_millis(150);
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);
/// A datagram without an answer is sent again, as resolvers do.
const ASK_AGAIN: Duration = Duration::from_millis(500);
/// Between a long flow's end and the next in its place.
const REOPEN: Duration = Duration::from_millis(500);
const PATIENCE: Duration = Duration::from_millis(PATIENCE_MS);
const SILENCE: Duration = Duration::from_millis(SILENCE_MS);
/// A thread that wakes so much too late says that this machine is too busy to be judged.
const STALL_MS: u64 = 700;
const BACKLOG: u32 = 1024;
/// Of clients, where no server is.
const UDP_PORTS: Range<u16> = 10_000..65_000;
const ADDRESS_BYTES: usize = 16;
const MESSAGE_BYTES: usize = 8;

/// What is recorded while the site runs, by every thread.
pub(super) struct Ledger {
    begun: Instant,
    record: Mutex<Record>,
    /// The present IPv4 address of each link.
    addresses: Mutex<Vec<IpAddr>>,
}

impl Ledger {
    pub fn new(addresses: Vec<IpAddr>) -> Self {
        Self {
            begun: Instant::now(),
            record: Mutex::default(),
            addresses: Mutex::new(addresses),
        }
    }

    /// Since the beginning.
    pub fn now_ms(&self) -> u64 {
        self.begun.elapsed().as_millis() as u64
    }

    pub fn record(&self) -> MutexGuard<'_, Record> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn addresses(&self) -> MutexGuard<'_, Vec<IpAddr>> {
        self.addresses
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    pub fn set_address(&self, link: usize, address: IpAddr) {
        self.addresses()[link] = address;
    }

    pub fn address(&self, link: usize) -> IpAddr {
        self.addresses()[link]
    }
}

/// Where the flows of a neighbour go.
#[derive(Debug, Clone, Copy)]
pub(super) enum Target {
    At(SocketAddr),
    /// A port at the present IPv4 address of a link.
    Link(usize, u16),
}

/// Which flows of a neighbour are kept and tried.
#[derive(Debug, Clone)]
pub(super) struct Watch {
    pub neighbour: &'static str,
    /// New flows take one after the other.
    pub targets: Vec<Target>,
    /// What they depend on besides the link that carries them.
    pub needs: Vec<Part>,
    /// Which links they leave by.
    pub way: Way,
    /// The kernel translates them, not the gateway.
    pub masqueraded: bool,
    /// Long flows over TCP and over UDP.
    pub long: [usize; 2],
}

impl Watch {
    pub fn masqueraded(mut self) -> Self {
        self.masqueraded = true;
        self.needing(Part::Netfilter)
    }

    pub fn needing(mut self, part: Part) -> Self {
        self.needs.push(part);
        self
    }

    fn needs(&self, target: Target) -> Vec<Part> {
        let mut needs = self.needs.clone();
        if let Target::Link(link, _) = target {
            needs.push(Part::Link(link));
            needs.extend((link != HOSTS_OWN).then_some(Part::Gateway));
        }
        needs
    }

    fn speaks_udp(&self) -> bool {
        self.long[1] > 0
    }
}

#[derive(Debug, Clone, Copy)]
enum Transport {
    Tcp,
    Udp,
}

enum Open {
    Tcp(TcpStream),
    Udp(UdpSocket),
}

fn block_on<T>(work: impl Future<Output = T>) -> io::Result<T> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    Ok(builder.enable_all().build()?.block_on(work))
}

/// Keeps and tries flows from the namespace of the calling thread until `stop`.
pub(super) fn watch(watches: &[Watch], ledger: &Arc<Ledger>, stop: &Stop) -> io::Result<()> {
    block_on(async {
        for watch in watches {
            let watch = Arc::new(watch.clone());
            for (transport, count) in [Transport::Tcp, Transport::Udp].into_iter().zip(watch.long) {
                for index in 0..count {
                    let target = watch.targets[index % watch.targets.len()];
                    let kept = keep(watch.clone(), ledger.clone(), transport, target);
                    tokio::spawn(kept);
                }
            }
            tokio::spawn(try_new(watch, ledger.clone()));
        }
        ordered(stop).await;
    })
}

async fn ordered(stop: &Stop) {
    while !stop.is_ordered() {
        sleep(BETWEEN_LOOKS).await;
    }
}

/// Records when this machine stands still, until `stop`: nobody could be served meanwhile.
pub(super) fn watch_machine(ledger: &Ledger, stop: &Stop) {
    let mut last_ms = ledger.now_ms();
    while !stop.is_ordered() {
        std::thread::sleep(BETWEEN_LOOKS);
        let now_ms = ledger.now_ms();
        if now_ms - last_ms > STALL_MS {
            ledger.record().events.push(Event {
                begun_ms: last_ms,
                done_ms: now_ms,
                mended_ms: now_ms,
                what: format!("this machine stood still for {} ms", now_ms - last_ms),
                harm: Harm::Ends(Part::Machine),
            });
        }
        last_ms = now_ms;
    }
}

/// Opens new flows, one after the other, whatever becomes of those before.
async fn try_new(watch: Arc<Watch>, ledger: Arc<Ledger>) {
    let mut ticks = interval(BETWEEN_NEW_FLOWS);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let transports: &[Transport] = match watch.speaks_udp() {
        true => &[Transport::Tcp, Transport::Udp],
        false => &[Transport::Tcp],
    };
    for round in 0.. {
        ticks.tick().await;
        let transport = transports[round % transports.len()];
        let target = watch.targets[round / transports.len() % watch.targets.len()];
        let (watch, ledger) = (watch.clone(), ledger.clone());
        tokio::spawn(async move { attempt(&watch, &ledger, transport, target).await });
    }
}

/// Holds one long flow open, and opens the next when it ends.
async fn keep(watch: Arc<Watch>, ledger: Arc<Ledger>, transport: Transport, target: Target) {
    loop {
        if let Some(opened) = attempt(&watch, &ledger, transport, target).await {
            let index = opened.enter(&watch, &ledger);
            let how = match opened.flow {
                Open::Tcp(stream) => exchange(stream, &ledger, index).await,
                Open::Udp(socket) => converse(socket, opened.seen, &ledger, index).await,
            };
            let now_ms = ledger.now_ms();
            ledger.record().flows[index].ended = Some((now_ms, how));
        }
        sleep(REOPEN).await;
    }
}

/// A new flow that was established.
struct Opened {
    flow: Open,
    name: String,
    /// The source address that the server sees.
    seen: IpAddr,
    uses: Vec<Part>,
}

impl Opened {
    /// Records it as a flow that is kept open.
    fn enter(&self, watch: &Watch, ledger: &Ledger) -> usize {
        let now_ms = ledger.now_ms();
        let mut record = ledger.record();
        record.flows.push(Flow {
            neighbour: watch.neighbour,
            name: format!("{}, seen as {},", self.name, self.seen),
            uses: self.uses.clone(),
            opened_ms: now_ms,
            answered_ms: now_ms,
            ended: None,
        });
        record.flows.len() - 1
    }
}

/// Opens a flow, and records how that went.
async fn attempt(
    watch: &Watch,
    ledger: &Ledger,
    transport: Transport,
    target: Target,
) -> Option<Opened> {
    let begun_ms = ledger.now_ms();
    let to = match target {
        Target::At(to) => to,
        Target::Link(link, port) => (ledger.address(link), port).into(),
    };
    let name = format!("{transport} to {to}");
    let opened = match timeout(PATIENCE, transport.open(to)).await {
        Ok(Ok((flow, seen))) => Ok((flow, seen)),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("no answer".into()),
    };
    let leaves = watch.way != Way::Fixed;
    let opened = opened.and_then(|(flow, seen)| match (leaves, link_of(seen)) {
        (true, None) => Err(format!("its source was {seen}, which is no link's")),
        (_, link) => Ok((flow, seen, link.filter(|_| leaves))),
    });
    ledger.record().attempts.push(Attempt {
        neighbour: watch.neighbour,
        name: name.clone(),
        needs: watch.needs(target),
        way: watch.way,
        link: opened.as_ref().ok().and_then(|(.., link)| *link),
        begun_ms,
        failed: opened.as_ref().err().cloned(),
    });
    let (flow, seen, link) = opened.ok()?;
    let mut uses = watch.needs(target);
    uses.extend(link.map(Part::Link));
    uses.extend(link.filter(|_| watch.masqueraded).map(Part::Masquerade));
    uses.extend(
        link.filter(|link| *link != HOSTS_OWN)
            .map(|_| Part::Gateway),
    );
    Some(Opened {
        flow,
        name,
        seen,
        uses,
    })
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
        })
    }
}

impl Transport {
    /// The flow, and the source address that the server sees.
    async fn open(self, to: SocketAddr) -> io::Result<(Open, IpAddr)> {
        match self {
            Self::Tcp => {
                let mut stream = TcpStream::connect(to).await?;
                let mut seen = [0; ADDRESS_BYTES];
                stream.read_exact(&mut seen).await?;
                Ok((Open::Tcp(stream), from_bytes(seen)))
            }
            Self::Udp => {
                let any: IpAddr = match to {
                    SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
                    SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
                };
                let socket = bind_new(any).await?;
                socket.connect(to).await?;
                loop {
                    if let Ok(seen) = timeout(ASK_AGAIN, ask(&socket, 0)).await {
                        return Ok((Open::Udp(socket), seen));
                    }
                }
            }
        }
    }
}

/// At a port that has not been used for long: a mapping of before would still have its link (RFC 4787 section 4.1), whatever rules say
/// of new flows.
async fn bind_new(any: IpAddr) -> io::Result<UdpSocket> {
    static TAKEN: AtomicU16 = AtomicU16::new(0);
    loop {
        let port = UDP_PORTS.start + TAKEN.fetch_add(1, Ordering::Relaxed) % UDP_PORTS.len() as u16;
        match UdpSocket::bind((any, port)).await {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            bound => return bound,
        }
    }
}

/// Says how the flow ended.
async fn exchange(mut stream: TcpStream, ledger: &Ledger, index: usize) -> String {
    loop {
        sleep(BETWEEN_EXCHANGES).await;
        let mut message = [7; MESSAGE_BYTES];
        let answered = async {
            stream.write_all(&message).await?;
            stream.read_exact(&mut message).await
        };
        match timeout(SILENCE, answered).await {
            Ok(Ok(_)) => answer(ledger, index),
            Ok(Err(error)) => return error.to_string(),
            Err(_) => return format!("no answer for {} s", SILENCE.as_secs()),
        }
    }
}

/// As [`exchange`]. A flow that the server sees come from elsewhere is another one.
async fn converse(socket: UdpSocket, seen: IpAddr, ledger: &Ledger, index: usize) -> String {
    let mut answered = Instant::now();
    for number in 1.. {
        sleep(BETWEEN_EXCHANGES).await;
        match timeout(ASK_AGAIN, ask(&socket, number)).await {
            Ok(now) if now != seen => return format!("it came from {now} then"),
            Ok(_) => {
                answered = Instant::now();
                answer(ledger, index);
            }
            Err(_) if answered.elapsed() > SILENCE => break,
            Err(_) => {}
        }
    }
    format!("no answer for {} s", SILENCE.as_secs())
}

fn answer(ledger: &Ledger, index: usize) {
    let now_ms = ledger.now_ms();
    ledger.record().flows[index].answered_ms = now_ms;
}

/// Sends once and waits for the answer. Errors are what somebody on the way said, or no route for the moment: no answer.
async fn ask(socket: &UdpSocket, number: u64) -> IpAddr {
    let question = number.to_be_bytes();
    let _ = socket.send(&question).await;
    let mut room = [0; ADDRESS_BYTES + MESSAGE_BYTES];
    loop {
        let Ok(length) = socket.recv(&mut room).await else {
            // The next error comes with the next packet only.
            continue;
        };
        let (seen, said) = room.split_at(ADDRESS_BYTES);
        if length == room.len() && said == question {
            return from_bytes(seen.try_into().expect("of that length"));
        }
    }
}

/// Answers over TCP at the first and over UDP at the second endpoints until `stop`: who asks, then what was said. Tells
/// `ready` when it can.
pub(super) fn serve(
    streams: &[SocketAddr],
    datagrams: &[SocketAddr],
    ready: mpsc::Sender<()>,
    stop: &Stop,
) -> io::Result<()> {
    block_on(async {
        for server in streams {
            let socket = match server {
                SocketAddr::V4(_) => TcpSocket::new_v4()?,
                SocketAddr::V6(_) => TcpSocket::new_v6()?,
            };
            socket.set_reuseaddr(true)?;
            socket.bind(*server)?;
            tokio::spawn(echo_streams(socket.listen(BACKLOG)?));
        }
        for server in datagrams {
            tokio::spawn(echo_datagrams(UdpSocket::bind(server).await?));
        }
        let _ = ready.send(());
        ordered(stop).await;
        Ok(())
    })?
}

async fn echo_streams(listener: TcpListener) {
    loop {
        // A client that has left already is no reason to end.
        let Ok((stream, from)) = listener.accept().await else {
            continue;
        };
        tokio::spawn(async move {
            let (mut reader, mut writer) = stream.into_split();
            writer.write_all(&to_bytes(from.ip())).await?;
            tokio::io::copy(&mut reader, &mut writer).await
        });
    }
}

async fn echo_datagrams(socket: UdpSocket) {
    let mut room = [0; MESSAGE_BYTES];
    loop {
        // An ICMP error about an earlier answer is no reason to end.
        if let Ok((length, from)) = socket.recv_from(&mut room).await {
            let answer = [&to_bytes(from.ip()), &room[..length]].concat();
            let _ = socket.send_to(&answer, from).await;
        }
    }
}

fn to_bytes(address: IpAddr) -> [u8; ADDRESS_BYTES] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

fn from_bytes(bytes: [u8; ADDRESS_BYTES]) -> IpAddr {
    Ipv6Addr::from(bytes).to_canonical()
}
