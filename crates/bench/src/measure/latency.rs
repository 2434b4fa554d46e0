//! UDP request and response, one at a time, both ends polling on processors of their own: what is measured is the
//! path, not the scheduler.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use hdrhistogram::Histogram;

use super::Span;
use crate::cpu::{THIS_THREAD, pin};
use crate::testbed::{Network, SERVER};

const REQUEST: [u8; 32] = [b'q'; 32];
/// A request that is lost counts as this long.
const LOST_AFTER: Duration = Duration::from_millis(100);

/// Median and 99th percentile of the round trip, µs.
pub fn measure(network: &Network, span: Span) -> Result<(f64, f64)> {
    let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    let bind = || -> Result<UdpSocket> {
        let socket = UdpSocket::bind(any)?;
        socket.set_nonblocking(true)?;
        Ok(socket)
    };
    let server = network
        .internet
        .run(|| UdpSocket::bind(SocketAddr::from((SERVER, 0))))??;
    server.set_nonblocking(true)?;
    let client = network.client.run(|| -> Result<UdpSocket> {
        let socket = bind()?;
        socket.connect(server.local_addr()?)?;
        Ok(socket)
    })??;
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let echo = scope.spawn(|| echo(&server, &stop));
        let asking = scope.spawn(|| ask(&client, span));
        let round_trips = asking.join().expect("the client does not panic");
        stop.store(true, Ordering::Relaxed);
        echo.join().expect("the echo does not panic")?;
        let round_trips = round_trips?;
        let micros = |quantile| round_trips.value_at_quantile(quantile) as f64 / 1e3;
        Ok((micros(0.5), micros(0.99)))
    })
}

fn echo(socket: &UdpSocket, stop: &AtomicBool) -> Result<()> {
    pin(THIS_THREAD, 1)?;
    let mut buffer = [0; 64];
    while !stop.load(Ordering::Relaxed) {
        match socket.recv_from(&mut buffer) {
            Ok((length, peer)) => {
                socket.send_to(&buffer[..length], peer)?;
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::hint::spin_loop(),
            Err(error) => return Err(error).context("echoing"),
        }
    }
    Ok(())
}

fn ask(socket: &UdpSocket, span: Span) -> Result<Histogram<u64>> {
    pin(THIS_THREAD, 0)?;
    let mut round_trips = Histogram::new(3)?;
    let counted_from = Instant::now() + span.warm_up;
    let end = counted_from + span.window;
    loop {
        let sent = Instant::now();
        if sent >= end {
            return Ok(round_trips);
        }
        let took = round_trip(socket, sent)?;
        if sent >= counted_from {
            round_trips.record(took.as_nanos() as u64)?;
        }
    }
}

fn round_trip(socket: &UdpSocket, sent: Instant) -> Result<Duration> {
    let mut buffer = [0; 64];
    socket.send(&REQUEST)?;
    while sent.elapsed() < LOST_AFTER {
        match socket.recv(&mut buffer) {
            Ok(_) => return Ok(sent.elapsed()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error).context("waiting for an answer"),
        }
    }
    Ok(LOST_AFTER)
}
