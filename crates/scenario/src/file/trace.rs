//! `trace` of a line: a file, or what draws one.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anabranch_config::{Bytes, Rate, Share, Span, read_text_up_to};
use sha2::{Digest, Sha256};

use super::written::{CableTable, DrawnTable, LteTable, TraceText};
use crate::{Cable, Lte, Trace, TraceSource};

/// Of a file: some minutes at the laboratory's 500 Mbit/s.
const FILE_BYTES_MAX: u64 = 64 << 20;
/// Of what is drawn: longer runs repeat it.
const LENGTH_MAX: Duration = Duration::from_secs(3600);
const LENGTH_MIN: Duration = Duration::from_secs(1);
/// A model steps by 20 ms; what is slower than a packet in some steps is no rate.
const RATE_MIN_BPS: u64 = 100_000;
const DAY_MIN: Duration = Duration::from_secs(60);

/// Of a scenario whose file is in `folder` and whose runs end at `limit`.
pub(super) fn trace(
    written: &TraceText,
    folder: &Path,
    limit: Duration,
) -> Result<TraceSource, String> {
    match written {
        TraceText::File(path) => recorded(&folder.join(path)),
        TraceText::Drawn(DrawnTable::Lte(table)) => lte(table, limit).map(TraceSource::Lte),
        TraceText::Drawn(DrawnTable::Cable(table)) => cable(table, limit).map(TraceSource::Cable),
    }
}

fn recorded(path: &Path) -> Result<TraceSource, String> {
    let text = read_text_up_to(path, FILE_BYTES_MAX).map_err(|error| error.to_string())?;
    let trace = Trace::parse(&text).map_err(|error| {
        let (line, problem) = (error.line, error.problem);
        format!("{}:{line}: {problem}", path.display())
    })?;
    let mut sha256 = String::new();
    for byte in Sha256::digest(&text) {
        // Writing to a string cannot fail.
        let _ = write!(sha256, "{byte:02x}");
    }
    Ok(TraceSource::Recorded {
        sha256,
        trace: Arc::new(trace),
    })
}

fn lte(table: &LteTable, limit: Duration) -> Result<Lte, String> {
    let variation = table.variation.map_or(0.4, |Share(share)| share);
    let time = |written: Option<Span>, default_ms| {
        written.map_or(Duration::from_millis(default_ms), |Span(time)| time)
    };
    let (outage, between) = (time(table.outage, 200), time(table.between, 20_000));
    if outage.is_zero() != between.is_zero() {
        return Err("outage and between are both above 0, or, without outages, both 0".to_owned());
    }
    if outage > Duration::from_secs(10) {
        return Err("outage: at most 10 s in the mean; a longer one is a fault".to_owned());
    }
    Ok(Lte {
        mean_bps: rate("mean", table.mean)?,
        variation,
        outage,
        between,
        length: length(table.length, limit)?,
        seed: 0,
    })
}

fn cable(table: &CableTable, limit: Duration) -> Result<Cable, String> {
    let steady_bps = rate("steady", table.steady)?;
    let boost_bps = table.boost.map_or(2 * steady_bps, Rate::bps);
    if boost_bps < steady_bps {
        return Err("boost must not be less than steady".to_owned());
    }
    let dip = table.dip.map_or(0.3, |Share(share)| share);
    if dip >= 1. {
        return Err("dip must be below 1: neighbours leave something".to_owned());
    }
    let day = table
        .day
        .map_or(Duration::from_secs(86_400), |Span(day)| day);
    if day < DAY_MIN {
        return Err("day must be 1 min at least".to_owned());
    }
    let Bytes(burst_bytes) = table.burst.unwrap_or(Bytes(10_000_000));
    Ok(Cable {
        steady_bps,
        boost_bps,
        burst_bytes: burst_bytes.max(1),
        dip,
        day,
        length: length(table.length, limit)?,
        seed: 0,
    })
}

fn rate(key: &str, written: Rate) -> Result<u64, String> {
    match written.bps() {
        bps if bps >= RATE_MIN_BPS => Ok(bps),
        _ => Err(format!("{key}: at least {RATE_MIN_BPS} bit/s")),
    }
}

/// That of the run, unless something else is asked for.
fn length(written: Option<Span>, limit: Duration) -> Result<Duration, String> {
    match written {
        None => Ok(limit.clamp(LENGTH_MIN, LENGTH_MAX)),
        Some(Span(length)) if (LENGTH_MIN..=LENGTH_MAX).contains(&length) => Ok(length),
        Some(_) => Err("length: allowed: 1 s to 1 h".to_owned()),
    }
}
