//! Bytes of TCP payload that arrive, over 1 or more streams.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::sendfile::sendfile;
use nix::sys::socket::{MsgFlags, recv};
use nix::unistd::ftruncate;

use super::Span;
use crate::cpu::{THIS_THREAD, pin};
use crate::testbed::{Network, SERVER};

const CHUNK: usize = 1 << 20;
const STUCK_AFTER: Duration = Duration::from_secs(5);

/// Gbit/s.
pub fn measure(network: &Network, streams: usize, span: Span) -> Result<f64> {
    let pairs = connect(network, streams)?;
    let source = memfd_create("source", MFdFlags::empty())?;
    ftruncate(&source, CHUNK as i64)?;
    let (received, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        let mut workers = Vec::new();
        for (i, (sender, receiver)) in pairs.into_iter().enumerate() {
            let (source, received, stop) = (&source, &received, &stop);
            workers.push(scope.spawn(move || send(i, &sender, source, stop)));
            workers.push(scope.spawn(move || receive(i + 1, &receiver, received)));
        }
        let rate = arrival_rate(&received, span);
        stop.store(true, Ordering::Relaxed);
        for worker in workers {
            worker.join().expect("senders and receivers do not panic")?;
        }
        Ok(rate * 8.0 / 1e9)
    })
}

fn connect(network: &Network, streams: usize) -> Result<Vec<(TcpStream, TcpStream)>> {
    let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    let listener = network.internet.run(|| TcpListener::bind(any))??;
    let server = SocketAddr::from((SERVER, listener.local_addr()?.port()));
    let pair = |_| {
        let sender = network
            .client
            .run(|| TcpStream::connect_timeout(&server, STUCK_AFTER))?
            .context("connecting through the gateway")?;
        sender.set_write_timeout(Some(STUCK_AFTER))?;
        let (receiver, _) = listener.accept()?;
        receiver.set_read_timeout(Some(STUCK_AFTER))?;
        Ok((sender, receiver))
    };
    (0..streams).map(pair).collect()
}

/// From page references, until told to stop.
fn send(cpu: usize, socket: &TcpStream, source: &OwnedFd, stop: &AtomicBool) -> Result<()> {
    pin(THIS_THREAD, cpu)?;
    while !stop.load(Ordering::Relaxed) {
        let mut from_start = 0;
        sendfile(socket.as_fd(), source, Some(&mut from_start), CHUNK).context("sending")?;
    }
    socket
        .shutdown(std::net::Shutdown::Write)
        .context("ending a stream")
}

/// Until the stream ends, without copying.
fn receive(cpu: usize, socket: &TcpStream, received: &AtomicU64) -> Result<()> {
    pin(THIS_THREAD, cpu)?;
    let mut unread = vec![0; CHUNK];
    loop {
        match recv(socket.as_raw_fd(), &mut unread, MsgFlags::MSG_TRUNC).map_err(io::Error::from) {
            Ok(0) => return Ok(()),
            Ok(bytes) => received.fetch_add(bytes as u64, Ordering::Relaxed),
            Err(error) => return Err(error).context("receiving"),
        };
    }
}

/// Per second, in the window.
pub fn arrival_rate(counter: &AtomicU64, span: Span) -> f64 {
    thread::sleep(span.warm_up);
    let (start, before) = (Instant::now(), counter.load(Ordering::Relaxed));
    thread::sleep(span.window);
    let arrived = counter.load(Ordering::Relaxed) - before;
    arrived as f64 / start.elapsed().as_secs_f64()
}
