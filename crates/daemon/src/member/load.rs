//! Tells balancers how many connections this server has, if they ask ([`anabranch_core::polled`] has the datagrams).
//!
//! A task of its own answers, so that counting holds up nothing else. It counts established connections of TCP to the virtual
//! addresses, as the kernel lists its sockets, whichever balancer or port they came by.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{IpAddr, Ipv6Addr, SocketAddrV6};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anabranch_api::LoadStatus;
use anabranch_core::polled::{LEN, answer, read_question};
use nix::cmsg_space;
use nix::sys::socket::sockopt::Ipv6RecvPacketInfo;
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, SockaddrIn6, recvmsg, sendmsg, setsockopt,
};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::Interest;
use tokio::net::UdpSocket;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::config::Config;
use crate::host;

/// Answers a second: far more than the balancers of one server ask for.
const ANSWERS_PER_S: u64 = 1000;
/// A count holds for so long, and for so many times what it took: where there are many sockets, counting takes a few percent of one
/// CPU at most.
const COUNT_HOLDS: Duration = Duration::from_millis(100);
const COUNT_REST: u32 = 30;

/// The task that answers. It ends with this value.
pub(super) struct Reporter {
    config: Config,
    told: Arc<Told>,
    task: JoinHandle<()>,
}

/// What it has done.
#[derive(Default)]
struct Told {
    connections: AtomicU64,
    answered: AtomicU64,
    ignored: AtomicU64,
}

impl Reporter {
    /// Answers as a configuration says, from now on. None if it says that nobody is answered.
    pub fn begin(config: &Config) -> io::Result<Option<Self>> {
        let Some(port) = config.load_port else {
            return Ok(None);
        };
        let told = Arc::new(Told::default());
        let answering = Answering {
            socket: socket(port)?,
            from: config.from.clone(),
            addresses: config.addresses.clone(),
            told: Arc::clone(&told),
            counted: None,
            second: Instant::now(),
            answers: 0,
        };
        Ok(Some(Self {
            config: config.clone(),
            told,
            task: tokio::spawn(answering.go_on()),
        }))
    }

    /// Whether it answers as this configuration says.
    pub fn is_of(&self, config: &Config) -> bool {
        self.config == *config
    }

    pub fn status(&self) -> LoadStatus {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        LoadStatus {
            port: self.config.load_port.unwrap_or_default(),
            connections: read(&self.told.connections),
            answered: read(&self.told.answered),
            ignored: read(&self.told.ignored),
        }
    }
}

impl Drop for Reporter {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// For both families: addresses of IPv4 are mapped (RFC 4291 section 2.5.5.2).
fn socket(port: u16) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::IPV6, Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_only_v6(false)?;
    socket.set_nonblocking(true)?;
    setsockopt(&socket, Ipv6RecvPacketInfo, &true)?;
    socket.bind(&SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, port, 0, 0).into())?;
    UdpSocket::from_std(socket.into())
}

/// A datagram: who sent it, to which address of this host, and the number of its question.
struct Question {
    from: SockaddrIn6,
    asked: libc::in6_pktinfo,
    number: u64,
}

struct Answering {
    socket: UdpSocket,
    from: Vec<IpAddr>,
    addresses: Vec<IpAddr>,
    told: Arc<Told>,
    /// How many connections there were, and until when that holds.
    counted: Option<(u64, Instant)>,
    /// When the current second began, and the answers in it.
    second: Instant,
    answers: u64,
}

impl Answering {
    async fn go_on(mut self) {
        loop {
            match self.receive().await {
                Ok(Some(question)) if self.may_answer(&question) => {
                    if let Err(error) = self.reply(&question).await {
                        tracing::debug!(%error, "load not told");
                    }
                }
                Ok(_) => {
                    self.told.ignored.fetch_add(1, Ordering::Relaxed);
                }
                // An ICMP error about an earlier answer, or no memory for a moment.
                Err(error) => tracing::debug!(%error, "no question received"),
            }
        }
    }

    async fn receive(&self) -> io::Result<Option<Question>> {
        let receive = || receive(&self.socket);
        self.socket.async_io(Interest::READABLE, receive).await
    }

    fn may_answer(&mut self, question: &Question) -> bool {
        let now = Instant::now();
        if now - self.second >= Duration::from_secs(1) {
            (self.second, self.answers) = (now, 0);
        }
        let may_ask = self.from.contains(&question.from.ip().to_canonical());
        let may = may_ask && self.answers < ANSWERS_PER_S;
        self.answers += u64::from(may);
        may
    }

    async fn reply(&mut self, question: &Question) -> io::Result<()> {
        let connections = self.connections().await?;
        let bytes = answer(question.number, connections);
        let send = || send(&self.socket, question, &bytes);
        self.socket.async_io(Interest::WRITABLE, send).await?;
        self.told.answered.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    async fn connections(&mut self) -> io::Result<u64> {
        let began = Instant::now();
        if let Some((connections, until)) = self.counted
            && began < until
        {
            return Ok(connections);
        }
        let addresses = self.addresses.clone();
        let counting = tokio::task::spawn_blocking(move || host::connections_to(&addresses));
        let connections = counting.await.map_err(io::Error::other)??;
        let now = Instant::now();
        let holds = COUNT_HOLDS.max((now - began) * COUNT_REST);
        self.counted = Some((connections, now + holds));
        self.told.connections.store(connections, Ordering::Relaxed);
        Ok(connections)
    }
}

/// None if it is no question.
fn receive(socket: &UdpSocket) -> io::Result<Option<Question>> {
    // A longer datagram is cut, and is still too long.
    let mut bytes = [0; LEN + 1];
    let mut parts = [IoSliceMut::new(&mut bytes)];
    let mut room = cmsg_space!(libc::in6_pktinfo);
    let received = recvmsg::<SockaddrIn6>(
        socket.as_raw_fd(),
        &mut parts,
        Some(&mut room),
        MsgFlags::empty(),
    )?;
    let asked = received.cmsgs()?.find_map(|message| match message {
        ControlMessageOwned::Ipv6PacketInfo(info) => Some(info),
        _ => None,
    });
    let (from, length) = (received.address, received.bytes);
    let question = from.zip(asked).zip(read_question(&bytes[..length]));
    Ok(question.map(|((from, asked), number)| Question {
        from,
        asked,
        number,
    }))
}

/// The answer comes from the address that was asked, by the device that routes say.
fn send(socket: &UdpSocket, question: &Question, bytes: &[u8]) -> io::Result<()> {
    let source = libc::in6_pktinfo {
        ipi6_ifindex: 0,
        ..question.asked
    };
    sendmsg(
        socket.as_raw_fd(),
        &[IoSlice::new(bytes)],
        &[ControlMessage::Ipv6PacketInfo(&source)],
        MsgFlags::empty(),
        Some(&question.from),
    )?;
    Ok(())
}
