//! `[tcp]`

use std::ops::RangeInclusive;
use std::time::Duration;

use anabranch_config::{BadInput, Bytes, Source, Span};

use super::written::{Delayed, TcpTable};
use crate::{Control, Recovery, Tcp};

/// IPv4 and TCP without options; 60 + 60 with all of them.
const HEADER_BYTES: RangeInclusive<u32> = 40..=120;
const MSS_BYTES: RangeInclusive<u32> = 64..=9000;
const WINDOW: RangeInclusive<u32> = 1..=1 << 24;
/// A connection is given up after the seventh.
const LOST_SYNS: RangeInclusive<u32> = 1..=7;
/// A timeout is never above 60 s, RFC 6298.
const MIN_RTO: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(60);
/// Above, a host is slower than many a link.
const OVERHEAD: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_millis(10);
/// RFC 9293, section 3.8.6.3.
const DELAYED_ACK: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_millis(500);

pub(super) fn tcp(source: &Source<'_>, written: &TcpTable) -> Result<Tcp, BadInput> {
    let default = Tcp::default();
    let within = |key, value: u32, range: RangeInclusive<u32>, unit| {
        if range.contains(&value) {
            return Ok(value);
        }
        let (least, most) = (range.start(), range.end());
        let allowed = format!("allowed: {least}{unit} to {most}{unit}");
        Err(source.bad(&["tcp", key], allowed))
    };
    let segments =
        |key, value: Option<u32>, default| within(key, value.unwrap_or(default), WINDOW, "");
    let lost_syns = written.lost_syns.unwrap_or(default.lost_syns);
    let bytes = |key, value: Option<Bytes>, range, default| {
        let Bytes(value) = value.unwrap_or(Bytes(u64::from(default)));
        within(key, u32::try_from(value).unwrap_or(u32::MAX), range, " B")
    };
    let min_rto = written.min_rto.map_or(default.min_rto, |Span(time)| time);
    if !MIN_RTO.contains(&min_rto) {
        return Err(source.bad(&["tcp", "min_rto"], "allowed: 1 ms to 60 s"));
    }
    let overhead = written.overhead.map_or(default.overhead, |Span(time)| time);
    if !OVERHEAD.contains(&overhead) {
        return Err(source.bad(&["tcp", "overhead"], "allowed: 0 to 10 ms"));
    }
    let delayed_ack = match written.delayed_ack {
        Some(Delayed(delay)) => delay,
        None => default.delayed_ack,
    };
    if delayed_ack.is_some_and(|delay| !DELAYED_ACK.contains(&delay)) {
        let problem = "allowed: 1 ms to 500 ms (RFC 9293), or false";
        return Err(source.bad(&["tcp", "delayed_ack"], problem));
    }
    let control = written.control.unwrap_or(default.control);
    if !control.is_cubic() && written.hystart.is_some() {
        let problem = "HyStart is of CUBIC's slow start; leave it out beside another control";
        return Err(source.bad(&["tcp", "hystart"], problem));
    }
    let bbr = control == Control::Bbr;
    if bbr && written.pacing == Some(false) {
        return Err(source.bad(&["tcp", "pacing"], "BBR always paces; leave it out"));
    }
    let recovery = written.recovery.unwrap_or(default.recovery);
    if bbr && !recovery.sacks() {
        let problem =
            "BBR counts what SACK says has arrived; leave it out beside control = \"bbr\"";
        return Err(source.bad(&["tcp", "recovery"], problem));
    }
    if !recovery.sacks() && written.dsack == Some(true) {
        let problem =
            "duplicates are told in SACK's blocks; allowed beside recovery = \"sack\" or \"rack\"";
        return Err(source.bad(&["tcp", "dsack"], problem));
    }
    Ok(Tcp {
        control,
        hystart: written.hystart.unwrap_or(control.is_cubic()),
        pacing: written.pacing.unwrap_or(bbr),
        recovery,
        dsack: written.dsack.unwrap_or(recovery == Recovery::Rack),
        ecn: written.ecn.unwrap_or(default.ecn),
        growth: written.growth.unwrap_or(default.growth),
        delayed_ack,
        initial_window: segments("initial_window", written.initial_window, 10)?,
        lost_syns: within("lost_syns", lost_syns, LOST_SYNS, "")?,
        receive_window: segments("receive_window", written.receive_window, 1 << 16)?,
        mss_bytes: bytes("mss", written.mss, MSS_BYTES, default.mss_bytes)?,
        header_bytes: bytes("header", written.header, HEADER_BYTES, default.header_bytes)?,
        min_rto,
        overhead,
        ports: written.ports.unwrap_or(default.ports),
    })
}
