//! `queue` of a line.

use std::ops::RangeInclusive;
use std::time::Duration;

use anabranch_config::{Bytes, Share, Span};

use super::written::{CodelTable, FqCodelTable, Nothing, QueueTable, QueueText, RedTable};
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
    match table {
        QueueTable::DropTail(Nothing {}) => Ok(Queue::DropTail),
        QueueTable::Red(table) => red(&table, buffer, packet_bytes).map(Queue::Red),
        QueueTable::Codel(table) => codel(&table, packet_bytes).map(Queue::Codel),
        QueueTable::FqCodel(table) => fq_codel(&table, packet_bytes).map(Queue::FqCodel),
    }
}

/// Defaults as Floyd recommends: `max_probability` 0.1, weight 0.002; gentle only if asked for, as in the first paper.
fn red(table: &RedTable, buffer: Buffer, packet_bytes: u64) -> Result<Red, String> {
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
        gentle: table.gentle,
        weight: above_0("weight", table.weight, 0.002)?,
        ecn: table.ecn,
    })
}

fn codel(table: &CodelTable, packet_bytes: u64) -> Result<Codel, String> {
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
        ecn: table.ecn,
    })
}

fn fq_codel(table: &FqCodelTable, packet_bytes: u64) -> Result<FqCodel, String> {
    let Bytes(quantum_bytes) = table.quantum.unwrap_or(Bytes(packet_bytes));
    if !(1..=QUANTUM_MAX).contains(&quantum_bytes) {
        return Err(format!("quantum: allowed: 1 B to {QUANTUM_MAX} B"));
    }
    let flows = table.flows.unwrap_or(FLOWS);
    if !(1..=FLOWS_MAX).contains(&flows) {
        return Err(format!("flows: allowed: 1 to {FLOWS_MAX}"));
    }
    let times = CodelTable {
        target: table.target,
        interval: table.interval,
        ecn: table.ecn,
    };
    Ok(FqCodel {
        codel: codel(&times, packet_bytes)?,
        quantum_bytes: quantum_bytes as u32,
        flows,
    })
}
