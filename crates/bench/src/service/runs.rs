//! One run of each measure.

use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use anabranch_policy::Family;
use anyhow::{Context, Result};
use hdrhistogram::Histogram;

use super::crowd;
use super::site::{Contender, PORT, Site, caller};
use crate::measure::{Calls, Span, packets_of_flows, while_connecting};
use crate::memory;
use crate::testbed::SERVER;

/// Others have the processor for so long where nothing came through at once.
const PAUSE: Duration = Duration::from_micros(50);
const MESSAGE: [u8; 32] = [b'q'; 32];
/// Connections that end in sockets.
const HELD: usize = 2000;

/// Connections per second, and microseconds of all processors for each.
pub fn connections(site: &Site, span: Span) -> Result<[f64; 2]> {
    let calls = Calls {
        family: Family::V4,
        port: PORT,
        from: Some(caller),
        to: |_, _| SERVER.into(),
        pause: || thread::sleep(PAUSE),
    };
    while_connecting(&site.network, calls, |completed, _| {
        thread::sleep(span.warm_up);
        let look = || anyhow::Ok((completed.load(Ordering::Relaxed), busy_us()?));
        let (begun, before) = (Instant::now(), look()?);
        thread::sleep(span.window);
        let (took, after) = (begun.elapsed(), look()?);
        let connections = (after.0 - before.0) as f64;
        Ok([
            connections / took.as_secs_f64(),
            (after.1 - before.1) / connections,
        ])
    })?
}

/// Time that all processors did not idle, in microseconds: all of /proc/stat but `idle` and `iowait`.
fn busy_us() -> Result<f64> {
    const TICK_US: f64 = 10_000.0;
    let text = fs::read_to_string("/proc/stat").context("reading /proc/stat")?;
    let all = text.lines().next().unwrap_or_default();
    let ticks = all.split_whitespace().skip(1).take(8);
    let ticks: Vec<f64> = ticks.filter_map(|number| number.parse().ok()).collect();
    Ok((ticks.iter().sum::<f64>() - ticks[3] - ticks[4]) * TICK_US)
}

/// Median and 99th percentile of the time of 32 bytes there and back over one connection, µs. One thread is both ends: where nothing
/// on the way sleeps, no scheduler is part of it.
pub fn latency(site: &Site, span: Span) -> Result<[f64; 2]> {
    let (mut client, mut server) = connect(site)?;
    let mut round_trips = Histogram::<u64>::new(3)?;
    let counted_from = Instant::now() + span.warm_up;
    let end = counted_from + span.window;
    loop {
        let sent = Instant::now();
        if sent >= end {
            break;
        }
        client.write_all(&MESSAGE)?;
        forward(&mut server)?;
        read(&mut client)?;
        if sent >= counted_from {
            round_trips.record(sent.elapsed().as_nanos() as u64)?;
        }
    }
    let micros = |quantile| round_trips.value_at_quantile(quantile) as f64 / 1e3;
    Ok([micros(0.5), micros(0.99)])
}

fn forward(server: &mut TcpStream) -> Result<()> {
    read(server)?;
    Ok(server.write_all(&MESSAGE)?)
}

fn read(stream: &mut TcpStream) -> Result<()> {
    let mut room = MESSAGE;
    stream.read_exact(&mut room).context("reading a message")
}

/// Both ends of a connection that has carried a message.
fn connect(site: &Site) -> Result<(TcpStream, TcpStream)> {
    let listener = listen(site)?;
    connect_to(site, &listener)
}

fn listen(site: &Site) -> Result<TcpListener> {
    Ok(site.network.internet.listen((IpAddr::from([0; 4]), PORT))?)
}

fn connect_to(site: &Site, listener: &TcpListener) -> Result<(TcpStream, TcpStream)> {
    const STUCK_AFTER: Duration = Duration::from_secs(5);
    let service = SocketAddr::from((SERVER, PORT));
    let mut client = site.network.client.connect(service, STUCK_AFTER)?;
    client.write_all(&MESSAGE)?;
    let (mut server, _) = listener.accept()?;
    for end in [&client, &server] {
        end.set_nodelay(true)?;
        end.set_read_timeout(Some(STUCK_AFTER))?;
    }
    read(&mut server)?;
    Ok((client, server))
}

/// Bytes of memory per connection, of kernel and proxy; of ours also how many packets of all of them in turn are forwarded in a second.
/// A connection's two ends are part of it where they are sockets, as the difference to plain forwarding is wanted.
pub fn memory(contender: Contender, daemon: &Path, span: Span) -> Result<Vec<(&'static str, f64)>> {
    let site = Site::build(contender, daemon)?;
    if site.is_of_sockets() {
        return Ok(vec![("memory", of_held(&site)?)]);
    }
    let flows = crowd::flows();
    // The table is made in its whole size at first, entries as they are needed.
    let fixed = if site.is_ours() {
        table_bytes(&site)?
    } else {
        0
    };
    let before = memory::settled()?;
    if site.is_ours() {
        crowd::enter(&site)?;
        let used = memory::settled()?.saturating_sub(before) + fixed;
        let rate = packets_of_flows(&site.network, &flows, span)?;
        return Ok(vec![
            ("memory", used as f64 / flows.len() as f64),
            ("packets of many", rate),
        ]);
    }
    let count = || -> Result<f64> {
        let count = site
            .network
            .gateway
            .sysctl("net/netfilter/nf_conntrack_count")?;
        Ok(count.trim().parse()?)
    };
    packets_of_flows(&site.network, &flows, span)?;
    let used = memory::used()?.saturating_sub(before);
    Ok(vec![("memory", used as f64 / count()?)])
}

/// What the empty table takes.
fn table_bytes(site: &Site) -> Result<u64> {
    let table = site.table()?;
    let told = format!("/proc/self/fdinfo/{}", table.fd().as_fd().as_raw_fd());
    let told = fs::read_to_string(told).context("reading about the table")?;
    let bytes = told.lines().find_map(|line| line.strip_prefix("memlock:"));
    Ok(bytes.context("no memlock in fdinfo")?.trim().parse()?)
}

fn of_held(site: &Site) -> Result<f64> {
    let listener = listen(site)?;
    let used = || anyhow::Ok(memory::settled()? + site.process_memory()?);
    let before = used()?;
    let held: Result<Vec<_>> = (0..HELD).map(|_| connect_to(site, &listener)).collect();
    let held = held?;
    let more = used()?.saturating_sub(before);
    Ok(more as f64 / held.len() as f64)
}
