//! One file over one connection, to the user or from the user.

use std::convert::Infallible;
use std::error::Error;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use http_body_util::BodyExt;
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::client::conn::http1;
use hyper::header::{CONNECTION, HOST, RANGE};
use hyper::{Method, Response, StatusCode};
use hyper_util::rt::TokioIo;
use nix::sys::socket::{setsockopt, sockopt};
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::{CLIENT_HEADER, Client, TransferEvent};
use crate::{Direction, Outcome, RemoteServerId, Transfer, TransferId, UserId};

/// The head of a request with a body, about: of an upload that did not come through, so much is not the file's.
const REQUEST_BYTES: u64 = 120;

/// A file that a user asks for, or sends.
pub(super) struct Request {
    pub id: TransferId,
    pub user: UserId,
    pub source: IpAddr,
    pub server: RemoteServerId,
    pub address: SocketAddr,
    pub class: Option<Arc<str>>,
    pub direction: Direction,
    pub round: u32,
    pub planned: Instant,
    pub bytes_asked: u64,
}

/// What is known of a transfer so far; it survives the transfer being cut off by the end of the run.
#[derive(Default)]
struct Observed {
    setup: Option<Duration>,
    first_byte: Option<Duration>,
    bytes: u64,
    link: Option<Arc<str>>,
    syn_retransmits: u32,
    /// The connection of an upload: the kernel knows what of it was acknowledged.
    upload: Option<Socket>,
}

impl Observed {
    /// Of the file.
    fn bytes(&self, asked: u64, outcome: Outcome) -> u64 {
        match &self.upload {
            Some(_) if outcome.is_ok() => asked,
            Some(socket) => acknowledged_bytes(socket)
                .saturating_sub(REQUEST_BYTES)
                .min(asked),
            None => self.bytes,
        }
    }
}

impl Request {
    /// Fetches the file and records what happened.
    pub(super) async fn record(self, client: &Client) -> Transfer {
        let start = Instant::now();
        let start_s = client.since_epoch_s(start);
        client.tell(TransferEvent::Started {
            id: self.id,
            user: self.user,
            start_s,
        });
        let mut observed = Observed::default();
        let fetched = client
            .until_end(self.fetch(client, start, &mut observed))
            .await;
        let outcome = match fetched {
            None => Outcome::Unfinished,
            Some(Ok(())) => Outcome::Ok,
            Some(Err(failure)) => failure,
        };
        let transfer = self.transfer(client, start, observed, outcome);
        client.tell(TransferEvent::Finished(transfer.clone()));
        transfer
    }

    fn transfer(
        &self,
        client: &Client,
        start: Instant,
        observed: Observed,
        outcome: Outcome,
    ) -> Transfer {
        Transfer {
            id: self.id,
            user: self.user,
            group: None,
            source: self.source,
            server: self.server,
            class: self.class.as_deref().map(str::to_owned),
            direction: self.direction,
            round: self.round,
            planned_start_s: client.since_epoch_s(self.planned),
            start_s: client.since_epoch_s(start),
            setup_s: observed.setup.map(|setup| setup.as_secs_f64()),
            first_byte_s: observed.first_byte.map(|wait| wait.as_secs_f64()),
            duration_s: start.elapsed().as_secs_f64(),
            bytes_asked: self.bytes_asked,
            bytes: observed.bytes(self.bytes_asked, outcome),
            link: observed.link.as_deref().map(str::to_owned),
            outcome,
            syn_retransmits: observed.syn_retransmits,
        }
    }

    async fn fetch(
        &self,
        client: &Client,
        start: Instant,
        observed: &mut Observed,
    ) -> Result<(), Outcome> {
        let stream = self.connect(client).await?;
        observed.setup = Some(start.elapsed());
        observed.syn_retransmits = tcp_info(&stream).tcpi_total_retrans;
        if self.direction == Direction::Up {
            observed.upload = SockRef::from(&stream).try_clone().ok();
        }
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| http_failure(&error))?;
        // Dropping the set ends the connection with the transfer, whichever way this function is left.
        let mut driver = JoinSet::new();
        driver.spawn(connection);
        let sent = Arc::new(AtomicU64::new(0));
        let answer = sender.send_request(self.http(client, &sent));
        let response = self
            .answered(client, answer, &sent)
            .await?
            .map_err(|error| http_failure(&error))?;
        observed.first_byte = Some(start.elapsed());
        observed.link = link_of(client, &response);
        if response.status() != self.expected_status(client) {
            return Err(Outcome::HttpStatus(response.status().as_u16()));
        }
        match self.direction {
            Direction::Down => self.receive(client, response.into_body(), observed).await,
            Direction::Up => Ok(()),
        }
    }

    /// Waits for the head of the response as long as something goes out meanwhile.
    async fn answered<T>(
        &self,
        client: &Client,
        answer: impl Future<Output = T>,
        sent: &AtomicU64,
    ) -> Result<T, Outcome> {
        let mut answer = pin!(answer);
        loop {
            let before = sent.load(Ordering::Relaxed);
            match timeout(client.config.idle_timeout, &mut answer).await {
                Ok(answer) => return Ok(answer),
                Err(_) if sent.load(Ordering::Relaxed) > before => {}
                Err(_) => return Err(Outcome::IdleTimeout),
            }
        }
    }

    async fn connect(&self, client: &Client) -> Result<TcpStream, Outcome> {
        let socket =
            bound_socket(self.source, client.config.multipath).map_err(|_| Outcome::Local)?;
        let connecting = TcpSocket::from_std_stream(socket.into()).connect(self.address);
        timeout(client.config.connect_timeout, connecting)
            .await
            .map_err(|_| Outcome::ConnectTimeout)?
            .map_err(|error| io_failure(&error))
    }

    fn http(&self, client: &Client, sent: &Arc<AtomicU64>) -> hyper::Request<Zeros> {
        let (method, path, left) = match self.direction {
            Direction::Down => (Method::GET, client.config.path_of(self.bytes_asked), 0),
            Direction::Up => (Method::POST, client.config.sink.clone(), self.bytes_asked),
        };
        let mut request = hyper::Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, self.address.to_string())
            .header(CONNECTION, "close");
        if let Some(last) = self.last_of_range(client) {
            request = request.header(RANGE, format!("bytes=0-{last}"));
        }
        request
            .body(Zeros {
                left,
                sent: Arc::clone(sent),
            })
            .expect("run checks the path before the first request")
    }

    /// The last byte of the range to ask for, if a range is to be asked for: no range is empty.
    fn last_of_range(&self, client: &Client) -> Option<u64> {
        let asks = self.direction == Direction::Down && client.config.asks_for_ranges();
        self.bytes_asked.checked_sub(1).filter(|_| asks)
    }

    fn expected_status(&self, client: &Client) -> StatusCode {
        match self.last_of_range(client) {
            Some(_) => StatusCode::PARTIAL_CONTENT,
            None => StatusCode::OK,
        }
    }

    async fn receive(
        &self,
        client: &Client,
        mut body: Incoming,
        observed: &mut Observed,
    ) -> Result<(), Outcome> {
        loop {
            let frame = timeout(client.config.idle_timeout, body.frame())
                .await
                .map_err(|_| Outcome::IdleTimeout)?;
            let Some(frame) = frame else { break };
            let frame = frame.map_err(|error| http_failure(&error))?;
            let bytes = frame.data_ref().map_or(0, |data| data.len() as u64);
            observed.bytes += bytes;
            client.tell(TransferEvent::Progress {
                id: self.id,
                bytes,
                link: observed.link.clone(),
            });
        }
        match observed.bytes.cmp(&self.bytes_asked) {
            std::cmp::Ordering::Less => Err(Outcome::Short),
            std::cmp::Ordering::Equal => Ok(()),
            std::cmp::Ordering::Greater => Err(Outcome::Malformed),
        }
    }
}

/// A body of zero bytes.
struct Zeros {
    left: u64,
    /// Handed to the connection so far.
    sent: Arc<AtomicU64>,
}

impl Body for Zeros {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        static PIECE: [u8; 16_384] = [0; 16_384];
        let length = self.left.min(PIECE.len() as u64);
        if length == 0 {
            return Poll::Ready(None);
        }
        self.left -= length;
        self.sent.fetch_add(length, Ordering::Relaxed);
        let piece = Bytes::from_static(&PIECE[..length as usize]);
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

/// A non-blocking socket that will connect from `source`, any port.
pub(super) fn bound_socket(source: IpAddr, multipath: bool) -> io::Result<Socket> {
    let address = SocketAddr::new(source, 0);
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM.nonblocking(),
        multipath.then_some(Protocol::MPTCP),
    )?;
    // Ports are chosen at connect, per destination, so that many connections do not exhaust them at bind.
    setsockopt(&socket, sockopt::IpBindAddressNoPort, &true)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

fn link_of(client: &Client, response: &Response<Incoming>) -> Option<Arc<str>> {
    let address: IpAddr = response
        .headers()
        .get(CLIENT_HEADER)?
        .to_str()
        .ok()?
        .parse()
        .ok()?;
    client.links.get(&address).cloned()
}

/// Of what was sent on this connection, the head of the request included.
fn acknowledged_bytes(socket: &Socket) -> u64 {
    tcp_info(socket).tcpi_bytes_acked
}

/// What the kernel knows of a connection. Right after the handshake, segments sent again are SYNs.
fn tcp_info(stream: &impl AsRawFd) -> libc::tcp_info {
    let mut info = std::mem::MaybeUninit::<libc::tcp_info>::zeroed();
    let mut length = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes into `info`, a plain C struct for which all zeroes is valid.
    unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &mut length,
        );
        info.assume_init()
    }
}

fn io_failure(error: &io::Error) -> Outcome {
    use io::ErrorKind::*;
    match error.kind() {
        ConnectionRefused => Outcome::Refused,
        ConnectionReset | BrokenPipe => Outcome::Reset,
        TimedOut => Outcome::ConnectTimeout,
        HostUnreachable | NetworkUnreachable => Outcome::Unreachable,
        UnexpectedEof => Outcome::Short,
        _ => Outcome::Local,
    }
}

fn http_failure(error: &hyper::Error) -> Outcome {
    let mut cause = error.source();
    while let Some(inner) = cause {
        if let Some(error) = inner.downcast_ref::<io::Error>() {
            return io_failure(error);
        }
        cause = inner.source();
    }
    if error.is_incomplete_message() {
        Outcome::Short
    } else {
        Outcome::Malformed
    }
}
