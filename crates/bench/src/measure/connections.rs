//! TCP connections per second: connect, small request, small response, orderly close by both ends.
//!
//! The ends must cost little, or all contenders look alike. So each processor has one thread that is both ends of its
//! connections and never sleeps: it connects a batch and asks, accepts and answers, reads and closes. On virtual Ethernet
//! each system call carries its packets through the gateway to the other end before it returns, so nothing is waited
//! for, woken or polled for readiness. The server accepts a connection with its request (`TCP_DEFER_ACCEPT`) and closes
//! first, so that the client's ports are free at once; its addresses take turns, so that no pair of endpoints comes back
//! while a closed connection of the same name lingers anywhere.

use std::io::{ErrorKind, Result as IoResult, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
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

/// Connections per second. No connection may fail.
pub fn measure(network: &Network, family: Family, span: Span) -> Result<f64> {
    while_connecting(network, family, |completed, _| {
        arrival_rate(completed, span)
    })
}

/// Seconds for so many connections, or a few more. None may fail.
pub fn complete(network: &Network, family: Family, count: u64) -> Result<f64> {
    while_connecting(network, family, |completed, stop| {
        let begun = Instant::now();
        while completed.load(Ordering::Relaxed) < count && !stop.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(10));
        }
        begun.elapsed().as_secs_f64()
    })
}

/// What `watch` makes of the count of connections while they come and go; the flag tells that one has failed.
fn while_connecting(
    network: &Network,
    family: Family,
    watch: impl FnOnce(&AtomicU64, &AtomicBool) -> f64,
) -> Result<f64> {
    let (completed, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        let mut workers = Vec::new();
        for cpu in 0..cpu::count() {
            let ends = Ends::new(network, family, cpu)?;
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
fn listen(family: Family) -> Result<TcpListener> {
    let address = SocketAddr::from((unspecified(family), 0));
    let socket = socket(address)?;
    set_defer_accept(&socket)?;
    socket.bind(&address.into())?;
    socket.listen(4096)?;
    Ok(socket.into())
}

fn socket(of: SocketAddr) -> IoResult<Socket> {
    Socket::new(Domain::for_address(of), Type::STREAM.nonblocking(), None)
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

/// Both ends of one processor's connections.
struct Ends {
    family: Family,
    listener: TcpListener,
    port: u16,
    opened: u32,
}

impl Ends {
    fn new(network: &Network, family: Family, number: usize) -> Result<Self> {
        let listener = network.internet.run(|| listen(family))??;
        Ok(Ends {
            family,
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
                thread::yield_now();
            }
        }
        Ok(())
    }

    /// Connects to the server's next address and asks, if that is done at once.
    fn open(&mut self) -> Result<Connection> {
        self.opened = self.opened.wrapping_add(1);
        let number = (1 + self.opened % 254) as u8;
        let server = SocketAddr::from((server(self.family, number), self.port));
        let socket = socket(server)?;
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
