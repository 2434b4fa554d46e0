//! Very many connections that race over both links: none of them may be ended by what resets the losing copies, and what a race
//! takes beside a connection that does not race.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::time::Instant;

use anabranch_policy::{Family, reasons};
use anyhow::{Context, Result, ensure};
use aya::maps::{Map, MapData, PerCpuArray};

use crate::measure::{Calls, complete_connections};
use crate::ratios::{median, sorted};
use crate::testbed::{Network, RANDOM, Testbed, server, unspecified};

/// Of each family.
const CONNECTIONS: u64 = 100_000;
const ONE_BY_ONE: usize = 2000;
const RACING: &str = "{ measure = \"dispatched\", dispatch = \"weighted\", granularity = \"connection\", race = \"100000/s\", name = \"racing\" }";

/// Rows with their values.
pub fn measure(daemon: &Path) -> Result<[(&'static str, f64); 4]> {
    let racing = Testbed::of_policy(daemon, RACING)?;
    let races = all_end_well(&racing, Family::V4)?;
    let races_ipv6 = all_end_well(&racing, Family::V6)?;
    let plain = Testbed::of_policy(daemon, RANDOM)?;
    let [plain, racing] = [plain, racing].map(|bed| set_up_us(&bed.network));
    let plain = plain?;
    Ok([
        ("races", races),
        ("races_ipv6", races_ipv6),
        ("set_up", plain),
        ("set_up_added", racing? - plain),
    ])
}

/// Connections per second. All of them must be answered and closed in order, and nearly all must have raced.
fn all_end_well(bed: &Testbed, family: Family) -> Result<f64> {
    let before = lost(bed)?;
    let took_s = complete_connections(&bed.network, Calls::through_gateway(family), CONNECTIONS)
        .with_context(|| format!("{CONNECTIONS} races over {family}"))?;
    let lost = lost(bed)? - before;
    ensure!(
        lost > CONNECTIONS * 9 / 10,
        "of {CONNECTIONS} connections over {family} only {lost} had a losing copy: they did not race"
    );
    Ok(CONNECTIONS as f64 / took_s)
}

/// SYN/ACKs that came after another had won.
fn lost(bed: &Testbed) -> Result<u64> {
    let path = bed.map("reasons").context("no gateway of ours")?;
    let map = MapData::from_pin(&path).with_context(|| format!("opening {}", path.display()))?;
    let counters = PerCpuArray::<_, u64>::try_from(Map::PerCpuArray(map))?;
    let index = reasons()
        .iter()
        .position(|reason| reason.name == "RACE_LOST");
    let index = index.context("no reason RACE_LOST")? as u32;
    Ok(counters.get(&index, 0)?.iter().sum())
}

/// Microseconds that connections wait for their handshakes, one after the other: the median.
fn set_up_us(network: &Network) -> Result<f64> {
    let listener = network
        .internet
        .run(|| TcpListener::bind((unspecified(Family::V4), 0)))??;
    let server = SocketAddr::from((server(Family::V4, 1), listener.local_addr()?.port()));
    let _inside = network.client.enter()?;
    let mut microseconds = Vec::new();
    for _ in 0..ONE_BY_ONE {
        let begun = Instant::now();
        let stream = TcpStream::connect(server).context("connecting one by one")?;
        microseconds.push(begun.elapsed().as_secs_f64() * 1e6);
        drop((listener.accept()?, stream));
    }
    Ok(median(&sorted(microseconds.into_iter())))
}
