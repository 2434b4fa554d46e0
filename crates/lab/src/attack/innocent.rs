//! The innocent hosts: live flows, new connections, queries; the internet's servers, and the gateway's own pings.
//!
//! Every function takes its thread for as long as it works, inside the namespace it is called in.

use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream, UdpSocket};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

pub(super) const TCP_PORT: u16 = 80;
pub(super) const UDP_PORT: u16 = 53;
const MESSAGE_BYTES: usize = 64;
const DATAGRAM_MAX_BYTES: usize = 4096;
const BETWEEN_EXCHANGES: Duration = Duration::from_secs(2);
/// For a flow to exchange once more when the attack is over.
const AFTERWARDS: Duration = Duration::from_secs(10);
const CONNECT: Duration = Duration::from_secs(10);
/// As a resolver asks: again after two seconds, and no longer than five.
const QUERY_AGAIN: Duration = Duration::from_secs(2);
const QUERY: Duration = Duration::from_secs(5);
const BACKLOG: u32 = 4096;

fn block_on<T>(work: impl Future<Output = T>) -> io::Result<T> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    Ok(builder.enable_all().build()?.block_on(work))
}

/// Whence connections came, as a server sees it.
pub(super) type Callers = Mutex<HashMap<IpAddr, usize>>;

/// Answers over TCP and UDP at these endpoints with what it was sent, until `over`, and counts who connects.
pub(super) fn serve(
    [tcp, udp]: [&[SocketAddr]; 2],
    callers: &Arc<Callers>,
    ready: mpsc::Sender<()>,
    mut over: watch::Receiver<bool>,
) -> io::Result<()> {
    block_on(async {
        let mut tasks = JoinSet::new();
        for server in udp {
            tasks.spawn(echo_datagrams(UdpSocket::bind(server).await?));
        }
        for server in tcp {
            let socket = match server {
                SocketAddr::V4(_) => TcpSocket::new_v4()?,
                SocketAddr::V6(_) => TcpSocket::new_v6()?,
            };
            socket.set_reuseaddr(true)?;
            socket.bind(*server)?;
            let listener = socket.listen(BACKLOG)?;
            tasks.spawn(echo_streams(listener, Arc::clone(callers)));
        }
        let _ = ready.send(());
        // The sender gone is the end as well.
        let _ = over.wait_for(|over| *over).await;
        Ok(())
    })?
}

async fn echo_streams(listener: TcpListener, callers: Arc<Callers>) {
    while let Ok((stream, caller)) = listener.accept().await {
        *callers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .entry(caller.ip())
            .or_default() += 1;
        tokio::spawn(async move {
            let (mut reader, mut writer) = stream.into_split();
            // A client that leaves ends its own stream only.
            let _ = tokio::io::copy(&mut reader, &mut writer).await;
        });
    }
}

async fn echo_datagrams(socket: UdpSocket) {
    let mut room = [0; DATAGRAM_MAX_BYTES];
    loop {
        // An ICMP error about an earlier answer is no reason to end.
        if let Ok((length, from)) = socket.recv_from(&mut room).await {
            let _ = socket.send_to(&room[..length], from).await;
        }
    }
}

/// Opens `count` flows, tells `established` of each, keeps all of them busy until `over`, and returns how many of them
/// were lost: they broke, or could not exchange within ten seconds afterwards.
pub(super) fn keep_flows(
    servers: &[SocketAddr],
    count: usize,
    established: mpsc::Sender<()>,
    over: watch::Receiver<bool>,
) -> io::Result<usize> {
    block_on(async {
        let mut flows = JoinSet::new();
        for index in 0..count {
            let begin = BETWEEN_EXCHANGES.mul_f64(index as f64 / count as f64);
            let server = servers[index % servers.len()];
            flows.spawn(flow(server, begin, established.clone(), over.clone()));
        }
        let kept = flows.join_all().await;
        kept.iter().filter(|kept| !**kept).count()
    })
}

async fn flow(
    server: SocketAddr,
    begin: Duration,
    established: mpsc::Sender<()>,
    mut over: watch::Receiver<bool>,
) -> bool {
    let mut also_over = over.clone();
    let deadline = async {
        let _ = also_over.wait_for(|over| *over).await;
        sleep(AFTERWARDS).await;
    };
    let exchanges = async {
        sleep(begin).await;
        let mut stream = TcpStream::connect(server).await?;
        exchange(&mut stream).await?;
        let _ = established.send(());
        loop {
            let pause = over.wait_for(|over| *over);
            let last = timeout(BETWEEN_EXCHANGES, pause).await.is_ok();
            exchange(&mut stream).await?;
            if last {
                return io::Result::Ok(());
            }
        }
    };
    tokio::select! {
        result = exchanges => result.is_ok(),
        () = deadline => false,
    }
}

async fn exchange(stream: &mut TcpStream) -> io::Result<()> {
    let mut message = [7; MESSAGE_BYTES];
    stream.write_all(&message).await?;
    stream.read_exact(&mut message).await?;
    Ok(())
}

/// Tries `count` connections, evenly over `spread`; how many were established and carried a message and its echo within ten
/// seconds each.
pub(super) fn connect(servers: &[SocketAddr], count: usize, spread: Duration) -> io::Result<usize> {
    evenly(count, spread, |index| {
        let server = servers[index % servers.len()];
        async move {
            let exchanged = async { exchange(&mut TcpStream::connect(server).await?).await };
            matches!(timeout(CONNECT, exchanged).await, Ok(Ok(())))
        }
    })
}

/// Asks `count` questions of `bytes`, evenly over `spread`, each from a port of its own; how many were answered within
/// five seconds, asked again once after two.
pub(super) fn query(
    servers: &[SocketAddr],
    count: usize,
    bytes: usize,
    spread: Duration,
) -> io::Result<usize> {
    evenly(count, spread, |index| {
        let server = servers[index % servers.len()];
        async move {
            matches!(
                timeout(QUERY, resolve(server, index, bytes)).await,
                Ok(Ok(()))
            )
        }
    })
}

async fn resolve(server: SocketAddr, number: usize, bytes: usize) -> io::Result<()> {
    let any: IpAddr = match server {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).await?;
    socket.connect(server).await?;
    let mut question = vec![0; bytes];
    question[..8].copy_from_slice(&number.to_be_bytes());
    if timeout(QUERY_AGAIN, ask(&socket, &question)).await.is_err() {
        ask(&socket, &question).await;
    }
    Ok(())
}

/// Sends once and waits for the answer. Errors are what somebody on the way said, or a full queue here: no answer.
async fn ask(socket: &UdpSocket, question: &[u8]) {
    let mut room = vec![0; question.len()];
    let _ = socket.send(question).await;
    while !matches!(socket.recv(&mut room).await, Ok(length) if room[..length] == *question) {}
}

/// Does the same `count` times, begun evenly over `spread`; how often it came to a good end.
fn evenly<F>(count: usize, spread: Duration, work: impl Fn(usize) -> F) -> io::Result<usize>
where
    F: Future<Output = bool> + 'static + Send,
{
    block_on(async {
        let mut tries = JoinSet::new();
        for index in 0..count {
            let begin = spread.mul_f64(index as f64 / count as f64);
            let work = work(index);
            tries.spawn(async move {
                sleep(begin).await;
                work.await
            });
        }
        let ends = tries.join_all().await;
        ends.iter().filter(|good| **good).count()
    })
}
