//! `queue` of a line.

use std::ops::RangeInclusive;
use std::time::Duration;

use anabranch_config::{Bytes, Share, Span};

use super::written::{Discipline, QueueTable, QueueText};
use crate::{Buffer, Codel, FqCodel, Queue, Red};

/// Defaults of RFC 8289, section 4.2 and 4.3.
const TARGET: Duration = Duration::from_millis(5);
const INTERVAL: Duration = Duration::from_millis(100);
const TIMES: RangeInclusive<Duration> = Duration::from_micros(1)..=Duration::from_secs(10);
/// Of RFC 8290, section 5.1.1 and 5.2.2.
const FLOWS: u32 = 1024;
const FLOWS_MAX: u32 = 65_536;
const QUANTUM_MAX: u64 = 1 << 20;

/// What is written, before a buffer, where full packets have so many bytes.
pub(super) fn queue(
    written: Option<QueueText>,
    buffer: Buffer,
    packet_bytes: u64,
) -> Result<Queue, String> {
    let Some(QueueText(table)) = written else {
        return Ok(Queue::DropTail);
    };
    refuse_what_is_of_another_kind(&table)?;
    match table.kind {
        Discipline::DropTail => Ok(Queue::DropTail),
        Discipline::Red => red(&table, buffer, packet_bytes).map(Queue::Red),
        Discipline::Codel => codel(&table, packet_bytes).map(Queue::Codel),
        Discipline::FqCodel => fq_codel(&table, packet_bytes).map(Queue::FqCodel),
    }
}

/// The keys of a kind, beside `kind`.
fn keys(kind: Discipline) -> &'static [&'static str] {
    match kind {
        Discipline::DropTail => &[],
        Discipline::Red => &["min", "max", "probability", "gentle", "weight", "ecn"],
        Discipline::Codel => &["target", "interval", "ecn"],
        Discipline::FqCodel => &["target", "interval", "quantum", "flows", "ecn"],
    }
}

fn refuse_what_is_of_another_kind(table: &QueueTable) -> Result<(), String> {
    let written = [
        ("ecn", table.ecn.is_some()),
        ("min", table.min.is_some()),
        ("max", table.max.is_some()),
        ("probability", table.probability.is_some()),
        ("gentle", table.gentle.is_some()),
        ("weight", table.weight.is_some()),
        ("target", table.target.is_some()),
        ("interval", table.interval.is_some()),
        ("quantum", table.quantum.is_some()),
        ("flows", table.flows.is_some()),
    ];
    let allowed = keys(table.kind);
    let mut wrong = written
        .iter()
        .filter(|(key, is)| *is && !allowed.contains(key));
    match (wrong.next(), allowed) {
        (None, _) => Ok(()),
        (Some((key, _)), []) => Err(format!("{key}: this kind of queue has no such key")),
        (Some((key, _)), allowed) => Err(format!(
            "{key}: this kind of queue has no such key; allowed: {}",
            allowed.join(", ")
        )),
    }
}

/// Defaults as Floyd recommends: `max_probability` 0.1, weight 0.002; gentle only if asked for, as in the first paper.
fn red(table: &QueueTable, buffer: Buffer, packet_bytes: u64) -> Result<Red, String> {
    let (Some(Bytes(min)), Some(Bytes(max))) = (table.min, table.max) else {
        return Err(
            r#"RED needs its thresholds; write { kind = "red", min = "15kB", max = "45kB" }"#
                .to_owned(),
        );
    };
    if min >= max {
        return Err("min must be less than max".to_owned());
    }
    let room_bytes = match buffer {
        Buffer::Bytes(bytes) => bytes,
        Buffer::Packets(packets) => packets * packet_bytes,
        Buffer::Unlimited => u64::MAX,
    };
    if min >= room_bytes {
        return Err(format!(
            "min is never reached: the buffer holds {room_bytes} bytes"
        ));
    }
    let above_0 = |name: &str, written: Option<Share>, default: f64| match written {
        Some(Share(0.0)) => Err(format!(
            "{name} must be above 0, or nothing is dropped early"
        )),
        written => Ok(written.map_or(default, |share| share.0)),
    };
    Ok(Red {
        min_bytes: min,
        max_bytes: max,
        max_probability: above_0("probability", table.probability, 0.1)?,
        gentle: table.gentle.unwrap_or(false),
        weight: above_0("weight", table.weight, 0.002)?,
        ecn: table.ecn.unwrap_or(false),
    })
}

fn codel(table: &QueueTable, packet_bytes: u64) -> Result<Codel, String> {
    let time = |name: &str, written: Option<Span>, default: Duration| {
        let time = written.map_or(default, |Span(time)| time);
        match TIMES.contains(&time) {
            true => Ok(time),
            false => Err(format!("{name}: allowed: 1 us to 10 s")),
        }
    };
    let (target, interval) = (
        time("target", table.target, TARGET)?,
        time("interval", table.interval, INTERVAL)?,
    );
    if target >= interval {
        return Err("target must be less than interval".to_owned());
    }
    Ok(Codel {
        target,
        interval,
        mtu_bytes: packet_bytes as u32,
        ecn: table.ecn.unwrap_or(false),
    })
}

fn fq_codel(table: &QueueTable, packet_bytes: u64) -> Result<FqCodel, String> {
    let Bytes(quantum_bytes) = table.quantum.unwrap_or(Bytes(packet_bytes));
    if !(1..=QUANTUM_MAX).contains(&quantum_bytes) {
        return Err(format!("quantum: allowed: 1 B to {QUANTUM_MAX} B"));
    }
    let flows = table.flows.unwrap_or(FLOWS);
    if !(1..=FLOWS_MAX).contains(&flows) {
        return Err(format!("flows: allowed: 1 to {FLOWS_MAX}"));
    }
    Ok(FqCodel {
        codel: codel(table, packet_bytes)?,
        quantum_bytes: quantum_bytes as u32,
        flows,
    })
}
