//! TCP connections per second: connect, small request, small response, orderly close by both ends.
//!
//! The ends must cost little, or all contenders look alike. So each processor has one thread that is both ends of its
//! connections and never sleeps: it connects a batch and asks, accepts and answers, reads and closes. On virtual Ethernet
//! each system call carries its packets through the gateway to the other end before it returns, so nothing is waited
//! for, woken or polled for readiness. The server accepts a connection with its request (`TCP_DEFER_ACCEPT`) and closes
//! first, so that the client's ports are free at once; its addresses take turns, so that no pair of endpoints comes back
//! while a closed connection of the same name lingers anywhere. Calls to a service have one virtual address, and take the
//! client's addresses in turn instead.

use std::io::{ErrorKind, Result as IoResult, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anabranch_policy::Family;
use anyhow::{Context, Result, ensure};
use nix::sys::socket::{MsgFlags, recv};
use socket2::{Domain, Socket, Type};

use super::Span;
use super::goodput::arrival_rate;
use crate::cpu::{self, THIS_THREAD, pin};
use crate::testbed::{Network, server, unspecified};

const BATCH: usize = 32;
const REQUEST: [u8; 64] = [b'q'; 64];
const RESPONSE: [u8; 128] = [b'r'; 128];
static DEFER_S: libc::c_int = 5;
static ON: libc::c_int = 1;

/// Who calls whom.
#[derive(Clone, Copy)]
pub struct Calls {
    pub family: Family,
    /// At which the first processor's server listens, the others' at the next ones; 0: at any.
    pub port: u16,
    /// Of the client's addresses that of the n-th call; none: the client's own.
    pub from: Option<fn(u32) -> IpAddr>,
    /// The address that the n-th call is to.
    pub to: fn(Family, u32) -> IpAddr,
    /// How a processor is left to others while nothing comes through.
    pub pause: fn(),
}

impl Calls {
    /// Through a gateway, to the server's addresses in turn.
    pub fn through_gateway(family: Family) -> Self {
        Calls {
            family,
            port: 0,
            from: None,
            to: |family, call| server(family, (1 + call % 254) as u8),
            pause: thread::yield_now,
        }
    }
}

/// Connections per second. No connection may fail.
pub fn measure(network: &Network, calls: Calls, span: Span) -> Result<f64> {
    while_connecting(network, calls, |completed, _| arrival_rate(completed, span))
}

/// Seconds for so many connections, or a few more. None may fail.
pub fn complete(network: &Network, calls: Calls, count: u64) -> Result<f64> {
    while_connecting(network, calls, |completed, stop| {
        let begun = Instant::now();
        while completed.load(Ordering::Relaxed) < count && !stop.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(10));
        }
        begun.elapsed().as_secs_f64()
    })
}

/// What `watch` makes of the count of connections while they come and go; the flag tells that one has failed.
pub fn while_connecting<T>(
    network: &Network,
    calls: Calls,
    watch: impl FnOnce(&AtomicU64, &AtomicBool) -> T,
) -> Result<T> {
    let (completed, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        let mut workers = Vec::new();
        for cpu in 0..cpu::count() {
            let ends = Ends::new(network, calls, cpu)?;
            let (completed, stop) = (&completed, &stop);
            workers.push(scope.spawn(move || -> Result<()> {
                let run = || {
                    let _inside = network.client.enter()?;
                    pin(THIS_THREAD, cpu)?;
                    ends.run(completed, stop)
                };
                let ended = run();
                stop.store(true, Ordering::Relaxed);
                ended
            }));
        }
        let watched = watch(&completed, &stop);
        stop.store(true, Ordering::Relaxed);
        for worker in workers {
            worker.join().expect("the ends do not panic")?;
        }
        Ok(watched)
    })
}

/// Connections to any address of the server's.
fn listen(family: Family, port: u16) -> Result<TcpListener> {
    let address = SocketAddr::from((unspecified(family), port));
    let socket = socket(address)?;
    socket.set_reuse_address(true)?;
    set_option(&socket, libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT, &DEFER_S)?;
    socket.bind(&address.into())?;
    socket.listen(4096)?;
    Ok(socket.into())
}

fn socket(of: SocketAddr) -> IoResult<Socket> {
    Socket::new(Domain::for_address(of), Type::STREAM.nonblocking(), None)
}

fn set_option(socket: &Socket, level: i32, option: i32, value: &'static i32) -> Result<()> {
    // SAFETY: the option takes an int, and the value lives as long as the program.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            std::ptr::from_ref(value).cast(),
            size_of_val(value) as libc::socklen_t,
        )
    };
    let error = std::io::Error::last_os_error();
    ensure!(result == 0, "socket option {option}: {error}");
    Ok(())
}

/// Both ends of one processor's connections.
struct Ends {
    calls: Calls,
    listener: TcpListener,
    port: u16,
    opened: u32,
}

impl Ends {
    fn new(network: &Network, calls: Calls, number: usize) -> Result<Self> {
        let port = match calls.port {
            0 => 0,
            first => first + number as u16,
        };
        let listener = network.internet.run(|| listen(calls.family, port))??;
        Ok(Ends {
            calls,
            port: listener.local_addr()?.port(),
            listener,
            opened: (number as u32) << 16,
        })
    }

    fn run(mut self, completed: &AtomicU64, stop: &AtomicBool) -> Result<()> {
        let mut batch = Vec::with_capacity(BATCH);
        while !stop.load(Ordering::Relaxed) {
            while batch.len() < BATCH {
                batch.push(self.open()?);
            }
            self.answer()?;
            let before = batch.len();
            for at in (0..before).rev() {
                if batch[at].advance().context("a connection failed")? {
                    batch.swap_remove(at);
                }
            }
            completed.fetch_add((before - batch.len()) as u64, Ordering::Relaxed);
            // Packets that did not come through at once need the processor.
            if before == batch.len() {
                (self.calls.pause)();
            }
        }
        Ok(())
    }

    /// Makes the next call and asks, if that is done at once.
    fn open(&mut self) -> Result<Connection> {
        self.opened = self.opened.wrapping_add(1);
        let to = (self.calls.to)(self.calls.family, self.opened);
        let server = SocketAddr::from((to, self.port));
        let socket = socket(server)?;
        if let Some(from) = self.calls.from {
            set_option(
                &socket,
                libc::IPPROTO_IP,
                libc::IP_BIND_ADDRESS_NO_PORT,
                &ON,
            )?;
            socket.bind(&SocketAddr::from((from(self.opened), 0)).into())?;
        }
        match socket.connect(&server.into()) {
            Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => {
                return Err(error).context("connecting");
            }
            _ => {}
        }
        let mut connection = Connection {
            stream: socket.into(),
            asked: false,
        };
        connection.ask()?;
        Ok(connection)
    }

    /// Serves everybody who has asked.
    fn answer(&self) -> Result<()> {
        loop {
            let mut stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error).context("accepting"),
            };
            if receive(&stream)? > 0 {
                stream.write_all(&RESPONSE)?;
            }
        }
    }
}

struct Connection {
    stream: TcpStream,
    asked: bool,
}

impl Connection {
    fn ask(&mut self) -> IoResult<()> {
        match self.stream.write(&REQUEST) {
            Ok(_) => self.asked = true,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Whether it is answered.
    fn advance(&mut self) -> IoResult<bool> {
        if !self.asked {
            self.ask()?;
        }
        match receive(&self.stream) {
            Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// What is there; never waits.
fn receive(stream: &TcpStream) -> IoResult<usize> {
    let mut bytes = [0; RESPONSE.len()];
    Ok(recv(
        stream.as_raw_fd(),
        &mut bytes,
        MsgFlags::MSG_DONTWAIT,
    )?)
}
