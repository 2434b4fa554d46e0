//! TCP connections per second: connect, small request, small response, orderly close by both ends.
//!
//! The server closes first, so that the client's ports are free at once; its addresses take turns, so that no pair of
//! endpoints comes back while a closed connection of the same name lingers anywhere. One client thread per processor
//! keeps a fixed number of connections in flight. The server accepts a connection with its request
//! (`TCP_DEFER_ACCEPT`): accept, receive, send and close are all its system calls.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use socket2::{Domain, Socket, Type};

use super::Span;
use super::goodput::arrival_rate;
use crate::cpu::{self, THIS_THREAD, pin};
use crate::testbed::{Network, SERVER};

const IN_FLIGHT: usize = 32;
const REQUEST: [u8; 64] = [b'q'; 64];
const RESPONSE: [u8; 128] = [b'r'; 128];
const ACCEPT_WAIT: Duration = Duration::from_millis(100);
static DEFER_S: libc::c_int = 5;

/// Connections per second. No connection may fail.
pub fn measure(network: &Network, span: Span) -> Result<f64> {
    let listener = network.internet.run(listen)??;
    let port = listener.local_addr()?.port();
    let (completed, failed) = (AtomicU64::new(0), AtomicU64::new(0));
    let stop = AtomicBool::new(false);
    let rate = thread::scope(|scope| -> Result<f64> {
        let mut workers = Vec::new();
        for cpu in 0..cpu::count() {
            let (listener, completed, failed, stop) = (&listener, &completed, &failed, &stop);
            workers.push(scope.spawn(move || serve(cpu, listener, stop)));
            workers.push(scope.spawn(move || -> Result<()> {
                let _inside = network.client.enter()?;
                pin(THIS_THREAD, cpu)?;
                Client::new(cpu, port)?.run(completed, failed, stop)
            }));
        }
        let rate = arrival_rate(&completed, span);
        stop.store(true, Ordering::Relaxed);
        for worker in workers {
            worker.join().expect("clients and servers do not panic")?;
        }
        Ok(rate)
    })?;
    let failed = failed.into_inner();
    ensure!(failed == 0, "{failed} connections failed");
    Ok(rate)
}

fn listen() -> Result<TcpListener> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    // Accepted sockets inherit neither of the two; accept(2) itself ends after the receive timeout.
    socket.set_read_timeout(Some(ACCEPT_WAIT))?;
    set_defer_accept(&socket)?;
    socket.bind(&SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)).into())?;
    socket.listen(4096)?;
    Ok(socket.into())
}

fn set_defer_accept(socket: &Socket) -> Result<()> {
    // SAFETY: the option takes an int, and DEFER_S lives as long as the program.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_DEFER_ACCEPT,
            (&raw const DEFER_S).cast(),
            size_of_val(&DEFER_S) as libc::socklen_t,
        )
    };
    ensure!(
        result == 0,
        "TCP_DEFER_ACCEPT: {}",
        std::io::Error::last_os_error()
    );
    Ok(())
}

fn serve(cpu: usize, listener: &TcpListener, stop: &AtomicBool) -> Result<()> {
    pin(THIS_THREAD, cpu)?;
    let mut request = REQUEST;
    while !stop.load(Ordering::Relaxed) {
        let mut stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
            Err(error) => return Err(error).context("accepting"),
        };
        // A client that gave up, at the end of a run, is not the server's error.
        if stream.read(&mut request).is_ok() {
            let _ = stream.write(&RESPONSE);
        }
    }
    Ok(())
}

/// One thread's connections.
struct Client {
    epoll: Epoll,
    slots: Vec<Option<Connection>>,
    port: u16,
    opened: u32,
}

struct Connection {
    stream: TcpStream,
    asked: bool,
}

impl Client {
    fn new(number: usize, port: u16) -> Result<Self> {
        Ok(Client {
            epoll: Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?,
            slots: (0..IN_FLIGHT).map(|_| None).collect(),
            port,
            opened: (number as u32) << 16,
        })
    }

    fn run(&mut self, completed: &AtomicU64, failed: &AtomicU64, stop: &AtomicBool) -> Result<()> {
        for slot in 0..IN_FLIGHT {
            self.open(slot)?;
        }
        let mut events = [EpollEvent::empty(); IN_FLIGHT];
        while !stop.load(Ordering::Relaxed) {
            let count = self.epoll.wait(&mut events, EpollTimeout::from(100u8))?;
            for event in &events[..count] {
                let slot = event.data() as usize;
                match self.advance(slot) {
                    Ok(false) => continue,
                    Ok(true) => completed.fetch_add(1, Ordering::Relaxed),
                    Err(_) => failed.fetch_add(1, Ordering::Relaxed),
                };
                self.open(slot)?;
            }
        }
        Ok(())
    }

    /// Closes what the slot held and connects to the server's next address.
    fn open(&mut self, slot: usize) -> Result<()> {
        self.slots[slot] = None;
        self.opened = self.opened.wrapping_add(1);
        let [a, b, c, _] = SERVER.octets();
        let server = Ipv4Addr::new(a, b, c, (1 + self.opened % 254) as u8);
        let socket = Socket::new(Domain::IPV4, Type::STREAM.nonblocking(), None)?;
        match socket.connect(&SocketAddr::from((server, self.port)).into()) {
            Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => {
                return Err(error).context("connecting");
            }
            _ => {}
        }
        let mut connection = Connection {
            stream: socket.into(),
            asked: false,
        };
        // The whole handshake may have run inside connect(2).
        let _ = connection.ask();
        let wanted = EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT | EpollFlags::EPOLLET;
        self.epoll.add(
            connection.stream.as_fd(),
            EpollEvent::new(wanted, slot as u64),
        )?;
        self.slots[slot] = Some(connection);
        Ok(())
    }

    /// Whether the slot's connection is done.
    fn advance(&mut self, slot: usize) -> std::io::Result<bool> {
        let Some(connection) = &mut self.slots[slot] else {
            return Ok(false);
        };
        if !connection.asked {
            connection.ask()?;
        }
        connection.is_answered()
    }
}

impl Connection {
    fn ask(&mut self) -> std::io::Result<()> {
        match self.stream.write(&REQUEST) {
            Ok(_) => self.asked = true,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn is_answered(&mut self) -> std::io::Result<bool> {
        let mut response = RESPONSE;
        match self.stream.read(&mut response) {
            Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error),
        }
    }
}
