//! Reads the queues of devices, as their root queueing disciplines count them (`RTM_GETQDISC`).

use std::collections::BTreeMap;

use anyhow::Context;
use futures_util::TryStreamExt;
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcMessage, TcOption, TcStats2};
use rtnetlink::packet_core::{DefaultNla, Nla};

use crate::observe::Netlink;

/// The queue of a device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeviceQueue {
    /// `tbf`, `htb`, `fq_codel`, `noqueue`…
    pub kind: String,
    /// Bytes that wait.
    pub length_bytes: u64,
    /// Packets that wait.
    pub length_packets: u32,
    /// Maximum of bytes, if the kind counts bytes: `tbf`, `bfifo`.
    pub limit_bytes: Option<u64>,
    /// Bytes that have left it.
    pub sent_bytes: u64,
    /// Likewise; the kernel counts packets in 32 bits.
    pub sent_packets: u32,
    /// Packets that were dropped for lack of room.
    pub dropped_packets: u32,
}

impl DeviceQueue {
    /// Whether the device has a queue that can be observed.
    pub fn exists(&self) -> bool {
        !self.kind.is_empty() && self.kind != "noqueue"
    }

    fn count(&mut self, statistic: &TcStats2) {
        match statistic {
            TcStats2::Queue(counted) => {
                self.length_bytes = counted.backlog.into();
                self.length_packets = counted.qlen;
                self.dropped_packets = counted.drops;
            }
            TcStats2::Basic(counted) => {
                self.sent_bytes = counted.bytes;
                self.sent_packets = counted.packets;
            }
            _ => {}
        }
    }
}

/// The root queues of all devices, by ifindex.
pub async fn read(netlink: &Netlink) -> anyhow::Result<BTreeMap<u32, DeviceQueue>> {
    let mut messages = netlink.handle.qdisc().get().execute();
    let mut queues = BTreeMap::new();
    while let Some(message) = messages.try_next().await.context("list queues")? {
        if message.header.parent == TcHandle::ROOT {
            queues.insert(message.header.index.cast_unsigned(), queue(&message));
        }
    }
    Ok(queues)
}

fn queue(message: &TcMessage) -> DeviceQueue {
    let mut queue = DeviceQueue::default();
    let mut options = None;
    for attribute in &message.attributes {
        match attribute {
            TcAttribute::Kind(kind) => queue.kind.clone_from(kind),
            TcAttribute::Options(written) => options = written.first(),
            TcAttribute::Stats2(statistics) => {
                statistics.iter().for_each(|counted| queue.count(counted));
            }
            _ => {}
        }
    }
    queue.limit_bytes = options.and_then(|options| limit(&queue.kind, options));
    queue
}

fn limit(kind: &str, options: &TcOption) -> Option<u64> {
    let TcOption::Other(options) = options else {
        return None;
    };
    let bytes = value(options);
    match kind {
        "tbf" => tbf_limit(&bytes),
        "bfifo" => word(&bytes, 0).map(u64::from),
        _ => None,
    }
}

fn value(attribute: &DefaultNla) -> Vec<u8> {
    let mut bytes = vec![0; attribute.value_len()];
    attribute.emit_value(&mut bytes);
    bytes
}

/// `limit` of `struct tc_tbf_qopt` in the attribute TCA_TBF_PARMS (linux/pkt_sched.h).
fn tbf_limit(mut attributes: &[u8]) -> Option<u64> {
    const TCA_TBF_PARMS: u16 = 1;
    const HEADER: usize = 4;
    /// Offset of the limit, after two `struct tc_ratespec`.
    const LIMIT: usize = 24;
    loop {
        let length = usize::from(half_word(attributes, 0)?);
        let kind = half_word(attributes, 2)?;
        let value = attributes.get(HEADER..length)?;
        if kind == TCA_TBF_PARMS {
            return word(value, LIMIT).map(u64::from);
        }
        attributes = attributes.get(length.next_multiple_of(HEADER)..)?;
    }
}

fn half_word(bytes: &[u8], at: usize) -> Option<u16> {
    let bytes = bytes.get(at..at + 2)?;
    Some(u16::from_ne_bytes(bytes.try_into().ok()?))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at + 4)?;
    Some(u32::from_ne_bytes(bytes.try_into().ok()?))
}
