//! One request, one answer, over one link.

use std::io;
use std::mem::offset_of;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use etherparse::{
    IcmpEchoHeader, Icmpv4Header, Icmpv4Type, Icmpv6Header, Icmpv6Slice, Icmpv6Type,
    LaxSlicedPacket, TcpHeader, TransportSlice,
};
use hickory_proto::op::{Message, MessageType, Query, ResponseCode};
use hickory_proto::rr::{Name, RecordType};
use nix::sys::socket::sockopt::{Ipv4RecvErr, Ipv6DontFrag, Ipv6RecvErr};
use nix::sys::socket::{getsockopt, setsockopt};
use nix::{getsockopt_impl, setsockopt_impl, sockopt_impl};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpSocket, TcpStream, UdpSocket};

use anabranch_policy::abi::UNTRACKED_MARK;

/// ICMP echo ids from here to 0xABFF are the prober's: the data path hands none of them to LAN hosts.
const ICMP_ID_BASE: u16 = 0xAB00;
const ANSWER_BYTES_MAX: usize = 4096;
const IPV4_HEADER: usize = 20;
/// With all options.
const IP_HEADER_MAX: usize = 60;
const IPV6_HEADER: usize = 40;
/// Of either family's ICMP.
const ECHO_HEADER: usize = 8;
/// Most links have answered by then, and no probe counts as lost (`deadline_min` of the balancer).
const SENDS_AFTER: Duration = Duration::from_millis(100);
/// RFC 863.
const DISCARD_PORT: u16 = 9;
const HOP_LIMIT: u32 = 64;
/// A name every resolver has in its cache, with a short answer.
const QUERY_NAME: &str = "a.root-servers.net.";

/// Words of the kernel's `struct tcp_info` (linux/tcp.h).
const RTT: usize = offset_of!(libc::tcp_info, tcpi_rtt) / size_of::<u32>();
const TOTAL_RETRANS: usize = offset_of!(libc::tcp_info, tcpi_total_retrans) / size_of::<u32>();

sockopt_impl!(
    /// What the kernel knows of a connection (tcp(7)), as far as every kernel knows it: the C library's structure may be
    /// longer than the running kernel's.
    TcpInfo,
    GetOnly,
    libc::IPPROTO_TCP,
    libc::TCP_INFO,
    [u32; TOTAL_RETRANS + 1]
);

sockopt_impl!(
    /// Whether packets may be fragmented, and whose word on that is taken (ip(7)).
    Ipv4MtuDiscover,
    SetOnly,
    libc::IPPROTO_IP,
    libc::IP_MTU_DISCOVER,
    libc::c_int
);

sockopt_impl!(
    /// The same of IPv6.
    Ipv6MtuDiscover,
    SetOnly,
    libc::IPPROTO_IPV6,
    libc::IPV6_MTU_DISCOVER,
    libc::c_int
);

/// How a probe leaves this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Via {
    /// The device of the link that it asks about: no routing rule can send it elsewhere. `None`: the host's own routing decides, as for
    /// a host that is reached like any other.
    pub device: Option<String>,
    /// The link's external address, or any: unspecified, the host's routing chooses one of that family.
    pub source: IpAddr,
    /// Who resolves names for it.
    pub resolvers: Vec<IpAddr>,
    /// Whether the kernel's connection tracking is to leave it out, by our table of nftables.
    pub untracked: bool,
}

/// What came back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// It is as it should be, after this time.
    Expected(Duration),
    /// Somebody else's: what it is, and what it should have been.
    Wrong(String),
    /// None that proves anything: the question never left this host, or less came back than was asked for.
    Inconclusive,
}

impl Via {
    /// By the host's own routes.
    pub fn of_host(to: IpAddr) -> Self {
        let source = match to {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        Self {
            device: None,
            source,
            resolvers: Vec::new(),
            untracked: false,
        }
    }

    pub(super) fn socket(&self, kind: Type, protocol: Protocol) -> io::Result<Socket> {
        let socket = Socket::new(Domain::for_address(self.any_port()), kind, Some(protocol))?;
        socket.set_nonblocking(true)?;
        if self.source.is_ipv6() {
            // A router's advertisement sets that of the device (RFC 4861 section 6.3.4), also to one that leads nowhere.
            socket.set_unicast_hops_v6(HOP_LIMIT)?;
        }
        socket.bind_device(self.device.as_deref().map(str::as_bytes))?;
        socket.bind(&self.any_port().into())?;
        if self.untracked {
            socket.set_mark(UNTRACKED_MARK)?;
        }
        Ok(socket)
    }

    fn any_port(&self) -> SocketAddr {
        SocketAddr::new(self.source, 0)
    }
}

/// Sends a TCP segment with SYN and ACK, which a host that knows no connection of it answers with a RST of this number and forgets
/// (RFC 9293 section 3.10.7). The programs hear that.
pub fn ask_for_reset(to: SocketAddr, from_port: u16, number: u32, via: &Via) -> io::Result<()> {
    let mut segment = TcpHeader::new(from_port, to.port(), number, u16::MAX);
    (segment.syn, segment.ack) = (true, true);
    segment.acknowledgment_number = number;
    let sum = match (via.source, to.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            segment.calc_checksum_ipv4_raw(from.octets(), to.octets(), &[])
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            segment.calc_checksum_ipv6_raw(from.octets(), to.octets(), &[])
        }
        _ => return Err(io::ErrorKind::InvalidInput.into()),
    };
    segment.checksum = sum.map_err(io::Error::other)?;
    let socket = via.socket(Type::RAW, Protocol::TCP)?;
    let host = SocketAddr::new(to.ip(), 0);
    socket.send_to(&segment.to_bytes(), &host.into()).map(drop)
}

pub(super) async fn ask_dns(server: SocketAddr, via: &Via) -> io::Result<ResponseCode> {
    let socket = UdpSocket::from_std(via.socket(Type::DGRAM, Protocol::UDP)?.into())?;
    socket.connect(server).await?;
    let id = rand::random();
    socket
        .send(
            &dns_query(id, QUERY_NAME, RecordType::A)?
                .to_vec()
                .map_err(io::Error::other)?,
        )
        .await?;
    let answer = |datagram: &[u8]| dns_answer(datagram, id).map(|answer| answer.response_code());
    Ok(hear(&socket, ANSWER_BYTES_MAX, answer).await)
}

/// Waits for what is an answer, of which no more than `most` bytes are read, and returns what `answer` says of it. An ICMP error becomes
/// an error of the socket, and is no answer: anybody on the internet can send one for a port it guesses, while the real answer is under way.
pub(super) async fn hear<T>(
    socket: &UdpSocket,
    most: usize,
    answer: impl Fn(&[u8]) -> Option<T>,
) -> T {
    let mut packet = vec![0; most];
    loop {
        match socket.recv(&mut packet).await {
            Ok(length) => {
                if let Some(answer) = answer(&packet[..length]) {
                    return answer;
                }
            }
            Err(error) => tracing::debug!(%error, "no answer to a probe"),
        }
    }
}

pub(super) fn dns_query(id: u16, name: &str, kind: RecordType) -> io::Result<Message> {
    let name = Name::from_ascii(name).map_err(io::Error::other)?;
    let mut message = Message::new();
    message
        .set_id(id)
        .set_recursion_desired(true)
        .add_query(Query::query(name, kind));
    Ok(message)
}

/// The answer to a query, if it is one.
pub(super) fn dns_answer(datagram: &[u8], id: u16) -> Option<Message> {
    let message = Message::from_vec(datagram).ok()?;
    let is_ours = message.id() == id && message.message_type() == MessageType::Response;
    is_ours.then_some(message)
}

/// The kernel repeats a SYN, and what comes then may answer any of them. The kernel's own round trip tells by timestamps
/// (RFC 7323 §4); without those nothing is known (Karn's algorithm, RFC 6298 §3), and that is no answer. Nor is an ICMP
/// error, which the error queue tells from a RST.
pub(super) async fn ask_tcp(port: SocketAddr, via: &Via) -> io::Result<Duration> {
    let socket = via.socket(Type::STREAM, Protocol::TCP)?;
    match port {
        SocketAddr::V4(_) => setsockopt(&socket, Ipv4RecvErr, &true)?,
        SocketAddr::V6(_) => setsockopt(&socket, Ipv6RecvErr, &true)?,
    }
    let connection = socket.try_clone()?;
    let asked = Instant::now();
    match connect(TcpSocket::from_std_stream(socket.into()), port, via).await {
        Ok(stream) => stream.set_zero_linger()?,
        Err(error) => {
            let is_forged = has_icmp_error(&connection);
            if is_own(&error) && !is_forged {
                return Err(error);
            }
            let refused = error.kind() == io::ErrorKind::ConnectionRefused;
            if !refused || is_forged {
                tracing::debug!(%error, "no answer to a probe");
                return std::future::pending().await;
            }
        }
    }
    let info = getsockopt(&connection, TcpInfo)?;
    match (info[TOTAL_RETRANS], info[RTT]) {
        (0, _) => Ok(asked.elapsed()),
        (_, 0) => std::future::pending().await,
        (_, round_trip_us) => Ok(Duration::from_micros(round_trip_us.into())),
    }
}

/// Succeeds if a connection is accepted, which ends at once.
pub(super) async fn connect_to(port: SocketAddr, via: &Via) -> io::Result<()> {
    let socket = via.socket(Type::STREAM, Protocol::TCP)?;
    let socket = TcpSocket::from_std_stream(socket.into());
    connect(socket, port, via).await?.set_zero_linger()
}

/// The kernel keeps it to itself when a SYN never leaves (`tcp_connect` of linux/net/ipv4/tcp_output.c). So where nothing comes back
/// for a while, a datagram is sent that dies at the next router: whether that leaves, the kernel says.
pub(super) async fn connect(socket: TcpSocket, to: SocketAddr, via: &Via) -> io::Result<TcpStream> {
    let connecting = socket.connect(to);
    tokio::pin!(connecting);
    if let Ok(connected) = tokio::time::timeout(SENDS_AFTER, &mut connecting).await {
        return connected;
    }
    let socket = via.socket(Type::DGRAM, Protocol::UDP)?;
    match to {
        SocketAddr::V4(_) => socket.set_ttl_v4(1)?,
        SocketAddr::V6(_) => socket.set_unicast_hops_v6(1)?,
    }
    let discard = SocketAddr::new(to.ip(), DISCARD_PORT);
    socket.send_to(&[], &discard.into())?;
    connecting.await
}

/// Why nothing was asked, where no call of the kernel's says it.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct NotAsked(String);

pub(super) fn not_asked(why: impl Into<String>) -> io::Error {
    io::Error::other(NotAsked(why.into()))
}

/// What only this host says, before anything is sent: there is no room in the kernel's connection table, or its firewall refuses
/// (EPERM), there are no descriptors, memory, buffers or ports left, or no address and no route.
pub fn is_own(error: &io::Error) -> bool {
    const OWN: [i32; 8] = [
        libc::EPERM,
        libc::EMFILE,
        libc::ENFILE,
        libc::ENOMEM,
        libc::ENOBUFS,
        libc::EADDRINUSE,
        libc::EADDRNOTAVAIL,
        libc::ENETUNREACH,
    ];
    error.raw_os_error().is_some_and(|code| OWN.contains(&code))
        || error.get_ref().is_some_and(|error| error.is::<NotAsked>())
}

fn has_icmp_error(socket: &Socket) -> bool {
    let mut quoted = [std::mem::MaybeUninit::uninit(); 128];
    socket
        .recv_with_flags(&mut quoted, libc::MSG_ERRQUEUE)
        .is_ok()
}

/// Sends `host` an echo request of so many bytes, IP header included, that nobody may fragment, whatever anybody said of the path before.
/// Returns when it is answered. A shorter answer proves nothing of long packets, nor does one that the host would not send: its device's
/// MTU has just become less.
pub async fn ask_length(host: IpAddr, bytes: u32, via: &Via) -> io::Result<Answer> {
    let asked = Instant::now();
    let (socket, ip_header) = match host {
        IpAddr::V4(_) => {
            let socket = via.socket(Type::RAW, Protocol::ICMPV4)?;
            setsockopt(&socket, Ipv4MtuDiscover, &libc::IP_PMTUDISC_PROBE)?;
            (socket, IPV4_HEADER)
        }
        IpAddr::V6(_) => {
            let socket = via.socket(Type::RAW, Protocol::ICMPV6)?;
            setsockopt(&socket, Ipv6MtuDiscover, &libc::IPV6_PMTUDISC_PROBE)?;
            setsockopt(&socket, Ipv6DontFrag, &true)?;
            (socket, IPV6_HEADER)
        }
    };
    let data = (bytes as usize).saturating_sub(ip_header + ECHO_HEADER);
    match echo(socket, host, data).await {
        Ok(answered) if answered >= bytes as usize => Ok(Answer::Expected(asked.elapsed())),
        Ok(_) => Ok(Answer::Inconclusive),
        Err(error) if error.raw_os_error() == Some(libc::EMSGSIZE) => Ok(Answer::Inconclusive),
        Err(error) => Err(error),
    }
}

pub(super) async fn ask_icmp(host: IpAddr, via: &Via) -> io::Result<()> {
    let protocol = match host {
        IpAddr::V4(_) => Protocol::ICMPV4,
        IpAddr::V6(_) => Protocol::ICMPV6,
    };
    let socket = via.socket(Type::RAW, protocol)?;
    echo(socket, host, 0).await.map(drop)
}

/// Asks by an echo request with so many bytes of data. How many the answer has in all, IP header included.
async fn echo(socket: Socket, host: IpAddr, data: usize) -> io::Result<usize> {
    socket.connect(&SocketAddr::new(host, 0).into())?;
    // The kernel's connected datagram calls are the same for raw sockets, and tokio has no type of its own for those.
    let socket = UdpSocket::from_std(socket.into())?;
    let echo = IcmpEchoHeader {
        id: ICMP_ID_BASE | u16::from(rand::random::<u8>()),
        seq: rand::random(),
    };
    socket
        .send(&echo_request(host, echo, &vec![0; data]))
        .await?;
    let answer = |packet: &[u8]| match host {
        IpAddr::V4(_) => is_echo_reply(packet, echo).then_some(packet.len()),
        IpAddr::V6(_) => is_echo_reply_v6(packet, echo).then_some(IPV6_HEADER + packet.len()),
    };
    let most = ANSWER_BYTES_MAX.max(IP_HEADER_MAX + ECHO_HEADER + data);
    Ok(hear(&socket, most, answer).await)
}

/// Of IPv6, the kernel writes the sum (RFC 3542 section 3.1).
fn echo_request(host: IpAddr, echo: IcmpEchoHeader, data: &[u8]) -> Vec<u8> {
    let mut message = match host {
        IpAddr::V4(_) => Icmpv4Header::with_checksum(Icmpv4Type::EchoRequest(echo), data)
            .to_bytes()
            .to_vec(),
        IpAddr::V6(_) => Icmpv6Header::new(Icmpv6Type::EchoRequest(echo))
            .to_bytes()
            .to_vec(),
    };
    message.extend_from_slice(data);
    message
}

/// A raw socket sees every ICMP packet of its host pair, each with its IP header.
fn is_echo_reply(packet: &[u8], echo: IcmpEchoHeader) -> bool {
    let Ok(packet) = LaxSlicedPacket::from_ip(packet) else {
        return false;
    };
    match packet.transport {
        Some(TransportSlice::Icmpv4(icmp)) => icmp.icmp_type() == Icmpv4Type::EchoReply(echo),
        _ => false,
    }
}

/// The same of IPv6, without that header.
fn is_echo_reply_v6(message: &[u8], echo: IcmpEchoHeader) -> bool {
    Icmpv6Slice::from_slice(message)
        .is_ok_and(|icmp| icmp.icmp_type() == Icmpv6Type::EchoReply(echo))
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4};

    use anabranch_frames::{icmp, tcp};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;
    use crate::probe::{ask, test};
    use anabranch_core::checks::{Outcome, ProbeTarget};

    const DEADLINE: Duration = Duration::from_secs(5);
    const BRIEFLY: Duration = Duration::from_millis(100);
    /// "Destination unreachable", and codes of it (RFC 792).
    const UNREACHABLE: u8 = 3;
    const HOST: u8 = 1;
    const PORT: u8 = 3;

    fn loopback() -> Via {
        Via {
            device: Some("lo".to_owned()),
            source: Ipv4Addr::LOCALHOST.into(),
            resolvers: Vec::new(),
            untracked: false,
        }
    }

    async fn answered(target: ProbeTarget) -> bool {
        let source = match target.address().unwrap() {
            IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        };
        let via = Via {
            source,
            ..loopback()
        };
        tokio::time::timeout(DEADLINE, ask(&target, &via))
            .await
            .is_ok_and(|result| result.is_ok())
    }

    #[tokio::test]
    async fn a_refusal_with_the_same_id_is_an_answer_and_another_id_is_not() {
        let server = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let target = ProbeTarget::Dns(server.local_addr().unwrap());
        let responder = async {
            let mut buffer = [0; 512];
            let (length, client) = server.recv_from(&mut buffer).await.unwrap();
            let query = Message::from_vec(&buffer[..length]).unwrap();
            let mut reply =
                Message::error_msg(query.id() ^ 1, query.op_code(), ResponseCode::NoError);
            server
                .send_to(&reply.to_vec().unwrap(), client)
                .await
                .unwrap();
            server.send_to(&buffer[..7], client).await.unwrap();
            reply = Message::error_msg(query.id(), query.op_code(), ResponseCode::Refused);
            server
                .send_to(&reply.to_vec().unwrap(), client)
                .await
                .unwrap();
        };
        let (answered, ()) = tokio::join!(answered(target), responder);
        assert!(answered);
    }

    #[test]
    fn only_a_response_with_our_id_is_an_answer() {
        let query = dns_query(7, QUERY_NAME, RecordType::A).unwrap();
        let query = query.to_vec().unwrap();
        assert_eq!(dns_answer(&query, 7), None, "our own query, reflected");
        let reply = Message::error_msg(8, hickory_proto::op::OpCode::Query, ResponseCode::NXDomain)
            .to_vec()
            .unwrap();
        assert_eq!(dns_answer(&reply, 7), None);
        let said = dns_answer(&reply, 8).map(|answer| answer.response_code());
        assert_eq!(said, Some(ResponseCode::NXDomain));
        assert_eq!(dns_answer(&reply[..5], 8), None);
    }

    #[tokio::test]
    async fn an_open_and_a_closed_tcp_port_both_answer() {
        for any_port in ["127.0.0.1:0", "[::1]:0"] {
            let listener = TcpListener::bind(any_port).await.unwrap();
            let port = listener.local_addr().unwrap();
            assert!(answered(ProbeTarget::Tcp(port)).await, "{port}");
            drop(listener);
            assert!(answered(ProbeTarget::Tcp(port)).await, "{port}");
        }
    }

    #[tokio::test]
    async fn a_host_answers_an_echo_request() {
        assert!(answered(ProbeTarget::Icmp(Ipv4Addr::LOCALHOST.into())).await);
        assert!(answered(ProbeTarget::Icmp(Ipv6Addr::LOCALHOST.into())).await);
    }

    /// Every datagram to it is refused with an ICMP error before it is answered.
    #[tokio::test]
    async fn an_answer_after_an_icmp_error_is_heard() {
        let closed = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let server = closed.local_addr().unwrap();
        drop(closed);
        let asking = tokio::spawn(async move { answered(ProbeTarget::Dns(server)).await });
        let raw = raw(Protocol::UDP);
        let mut packet = [0; 512];
        let (client, query) = loop {
            let length = raw.recv(&mut packet).await.unwrap();
            let Ok(LaxSlicedPacket {
                transport: Some(TransportSlice::Udp(udp)),
                ..
            }) = LaxSlicedPacket::from_ip(&packet[..length])
            else {
                continue;
            };
            if udp.destination_port() == server.port() {
                let query = Message::from_vec(udp.payload()).unwrap();
                break (udp.source_port(), query);
            }
        };
        let late = UdpSocket::bind(server).await.unwrap();
        let reply = Message::error_msg(query.id(), query.op_code(), ResponseCode::NoError);
        late.send_to(&reply.to_vec().unwrap(), ("127.0.0.1", client))
            .await
            .unwrap();
        assert!(asking.await.unwrap());
    }

    /// A server whose queue is full: it hears a SYN and does not answer until somebody is let in.
    struct Full {
        listener: TcpListener,
        _first: TcpStream,
        address: SocketAddrV4,
    }

    impl Full {
        async fn new() -> Self {
            let socket = TcpSocket::new_v4().unwrap();
            socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
            let listener = socket.listen(0).unwrap();
            let SocketAddr::V4(address) = listener.local_addr().unwrap() else {
                panic!("IPv4")
            };
            let first = TcpStream::connect(address).await.unwrap();
            Self {
                listener,
                _first: first,
                address,
            }
        }

        async fn let_in(&self) {
            self.listener.accept().await.unwrap();
        }
    }

    /// Somebody who can send what he likes, and sees what comes in.
    fn raw(protocol: Protocol) -> UdpSocket {
        let socket = Socket::new(Domain::IPV4, Type::RAW, Some(protocol)).unwrap();
        socket.set_nonblocking(true).unwrap();
        UdpSocket::from_std(socket.into()).unwrap()
    }

    /// The first SYN to a port, with its IP header.
    async fn next_syn(raw: &UdpSocket, port: u16) -> Vec<u8> {
        let mut packet = [0; 512];
        loop {
            let length = raw.recv(&mut packet).await.unwrap();
            let sliced = LaxSlicedPacket::from_ip(&packet[..length]).unwrap();
            if let Some(TransportSlice::Tcp(tcp)) = sliced.transport
                && tcp.destination_port() == port
                && tcp.syn()
            {
                return packet[..length].to_vec();
            }
        }
    }

    /// An error that quotes a packet's header and its first eight bytes, its sequence number moved by `off`.
    fn unreachable(syn: &[u8], code: u8, off: u32) -> Vec<u8> {
        const QUOTED: usize = 28;
        const SEQUENCE: std::ops::Range<usize> = 24..28;
        let mut quote = syn[..QUOTED].to_vec();
        let sequence = u32::from_be_bytes(quote[SEQUENCE].try_into().unwrap());
        quote[SEQUENCE].copy_from_slice(&sequence.wrapping_add(off).to_be_bytes());
        let localhost = Ipv4Addr::LOCALHOST.into();
        icmp(localhost, localhost, (UNREACHABLE, code), [0; 4], &quote).body
    }

    /// The refusal of a SYN by who saw its ports alone: a guessed acknowledgement, or none.
    fn forged_reset(syn: &[u8], acknowledgement: Option<u32>) -> Vec<u8> {
        let sliced = LaxSlicedPacket::from_ip(syn).unwrap();
        let Some(TransportSlice::Tcp(syn)) = sliced.transport else {
            panic!("a SYN")
        };
        let ends = [syn.destination_port(), syn.source_port()];
        let [from, to] = ends.map(|port| (Ipv4Addr::LOCALHOST, port));
        let flags = if acknowledgement.is_some() { "RA" } else { "R" };
        let acknowledgement = acknowledgement.unwrap_or(0);
        tcp(from, to, flags, 0, acknowledgement).ip().body
    }

    #[tokio::test]
    async fn what_somebody_forges_is_no_answer_and_the_real_one_is_heard() {
        let server = Full::new().await;
        let (tcp, icmp) = (raw(Protocol::TCP), raw(Protocol::ICMPV4));
        let target = ProbeTarget::Tcp(server.address.into());
        let asking = tokio::spawn(async move { answered(target).await });
        let syn = next_syn(&tcp, server.address.port()).await;
        let anybody = (Ipv4Addr::LOCALHOST, 0);
        for acknowledgement in [None, Some(0), Some(0x8000_0000)] {
            let reset = forged_reset(&syn, acknowledgement);
            tcp.send_to(&reset, anybody).await.unwrap();
        }
        for code in [HOST, PORT] {
            let error = unreachable(&syn, code, 0x8000_0000);
            icmp.send_to(&error, anybody).await.unwrap();
        }
        server.let_in().await;
        assert!(asking.await.unwrap());
    }

    /// Even one that quotes what only somebody on the way can know.
    #[tokio::test]
    async fn an_icmp_error_is_no_answer_to_a_connection_attempt() {
        for code in [HOST, PORT] {
            let server = Full::new().await;
            let (tcp, icmp) = (raw(Protocol::TCP), raw(Protocol::ICMPV4));
            let target = ProbeTarget::Tcp(server.address.into());
            let mut asking = tokio::spawn(async move { ask(&target, &loopback()).await });
            let syn = next_syn(&tcp, server.address.port()).await;
            assert!(is_attempted(server.address.port()));
            let error = unreachable(&syn, code, 0);
            icmp.send_to(&error, (Ipv4Addr::LOCALHOST, 0))
                .await
                .unwrap();
            while is_attempted(server.address.port()) {
                tokio::task::yield_now().await;
            }
            let told = tokio::time::timeout(BRIEFLY, &mut asking).await;
            assert!(told.is_err(), "code {code}: {told:?}");
            asking.abort();
        }
    }

    /// Whether the kernel waits for the answer to a SYN (proc_net_tcp of its documentation: state 2).
    fn is_attempted(port: u16) -> bool {
        let sockets = std::fs::read_to_string("/proc/thread-self/net/tcp").unwrap();
        sockets.contains(&format!(":{port:04X} 02 "))
    }

    /// As the servers of a service are: no link leads to them.
    #[tokio::test]
    async fn without_a_device_the_routes_of_the_host_lead_to_whom_is_asked() {
        for (any, localhost) in [
            (
                IpAddr::from(Ipv4Addr::UNSPECIFIED),
                Ipv4Addr::LOCALHOST.into(),
            ),
            (
                IpAddr::from(Ipv6Addr::UNSPECIFIED),
                Ipv6Addr::LOCALHOST.into(),
            ),
        ] {
            let via = Via {
                device: None,
                source: any,
                ..loopback()
            };
            let listener = TcpListener::bind((localhost, 0)).await.unwrap();
            let port = ProbeTarget::Tcp(listener.local_addr().unwrap());
            for target in [port, ProbeTarget::Icmp(localhost)] {
                let tested = test(target.clone(), via.clone(), DEADLINE).await;
                assert_eq!(tested, Outcome::Success, "{target}");
            }
        }
    }

    #[tokio::test]
    async fn a_device_that_is_gone_is_an_error() {
        let via = Via {
            device: Some("gone0".to_owned()),
            ..loopback()
        };
        assert!(
            ask(&ProbeTarget::Icmp(Ipv4Addr::LOCALHOST.into()), &via)
                .await
                .is_err()
        );
    }
}
