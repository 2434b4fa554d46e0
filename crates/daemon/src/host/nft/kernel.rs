//! Reads nftables directly from the kernel: the content of a table, its counters, and the generation. To start `nft`
//! each time would block the daemon's loop.

use std::io;
use std::sync::{Arc, Mutex};

use anyhow::Context;
use rtnetlink::sys::protocols::NETLINK_NETFILTER;

use super::super::netlink::{Netlink, attribute, find};

const FAMILY_HEADER: usize = 4;
// linux/netfilter/nfnetlink.h and nf_tables.h
const SUBSYSTEM: u16 = 10 << 8;
const GET_OBJECT: u16 = SUBSYSTEM | 19;
const GET_GENERATION: u16 = SUBSYSTEM | 16;
const GENERATION_ID: u16 = 1;
const GET_CHAIN: u16 = SUBSYSTEM | 4;
const GET_SET: u16 = SUBSYSTEM | 10;
const CHAIN_NAME: u16 = 3;
const SET_NAME: u16 = 2;
const OBJECT_TABLE: u16 = 1;
const OBJECT_NAME: u16 = 2;
const OBJECT_TYPE: u16 = 3;
const OBJECT_DATA: u16 = 4;
const TYPE_COUNTER: u32 = 1;
const COUNTER_PACKETS: u16 = 2;

/// Name and packets of every named counter of a table of both families.
pub fn counters(table: &str) -> anyhow::Result<Vec<(String, u64)>> {
    let mut counters = Vec::new();
    let told = connect()?.dump(GET_OBJECT, &counters_of(table), |_, body| {
        counters.extend(counter(body.get(FAMILY_HEADER..).unwrap_or_default()));
    });
    match told {
        // A table that does not exist is no error.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        told => told.map(|()| counters).context("ask"),
    }
}

/// Each chain, set and object of a table of `family` (for instance `NFPROTO_INET`), as the word for its kind and its name.
pub fn contents(family: i32, table: &str) -> anyhow::Result<Vec<String>> {
    let socket = connect()?;
    let mut found = Vec::new();
    for (word, kind, name_at) in [
        ("chain", GET_CHAIN, CHAIN_NAME),
        ("set", GET_SET, SET_NAME),
        ("object", GET_OBJECT, OBJECT_NAME),
    ] {
        let body = [family as u8, 0, 0, 0];
        let told = socket.dump(kind, &body, |_, body| {
            let attributes = body.get(FAMILY_HEADER..).unwrap_or_default();
            // The attribute with the table's name has the same number for all three.
            let is_here = text(attributes, OBJECT_TABLE).is_some_and(|name| name == table);
            let name = text(attributes, name_at).filter(|_| is_here);
            // Sets and chains without a name of their own are parts of rules.
            let named = name.filter(|name| !name.starts_with("__"));
            found.extend(named.map(|name| format!("{word} {name}")));
        });
        told.with_context(|| format!("ask for every {word}"))?;
    }
    Ok(found)
}

/// Detects changes of nftables. It is read every second and before many probes, so its socket is kept open.
#[derive(Debug, Clone, Default)]
pub struct Generation(Arc<Mutex<Option<Netlink>>>);

impl Generation {
    /// A number that differs after each change. None: there is no nftables, or it does not report one.
    pub fn now(&self) -> Option<u32> {
        let mut kept = self.0.lock().expect("nobody panics with it");
        let netlink = kept.take().map_or_else(connect, Ok).ok()?;
        let asked = generation(&netlink).ok()?;
        *kept = Some(netlink);
        Some(asked)
    }
}

fn generation(netlink: &Netlink) -> anyhow::Result<u32> {
    let body = [libc::NFPROTO_UNSPEC as u8, 0, 0, 0];
    let answer = netlink.get(GET_GENERATION, &body).context("ask")?;
    let id = find(
        answer.get(FAMILY_HEADER..).unwrap_or_default(),
        GENERATION_ID,
    );
    let id = id.context("nftables tells no generation")?;
    Ok(u32::from_be_bytes(id.try_into()?))
}

fn connect() -> anyhow::Result<Netlink> {
    Netlink::connect(NETLINK_NETFILTER).context("open a netlink socket")
}

fn counters_of(table: &str) -> Vec<u8> {
    let mut body = vec![libc::NFPROTO_INET as u8, 0, 0, 0];
    attribute(&mut body, OBJECT_TABLE, &[table.as_bytes(), &[0]].concat());
    attribute(&mut body, OBJECT_TYPE, &TYPE_COUNTER.to_be_bytes());
    body
}

fn counter(attributes: &[u8]) -> Option<(String, u64)> {
    let name = text(attributes, OBJECT_NAME)?;
    let packets = find(find(attributes, OBJECT_DATA)?, COUNTER_PACKETS)?;
    Some((name, u64::from_be_bytes(packets.try_into().ok()?)))
}

fn text(attributes: &[u8], kind: u16) -> Option<String> {
    let text = find(attributes, kind)?;
    let text = text.strip_suffix(&[0]).unwrap_or(text);
    Some(String::from_utf8_lossy(text).into_owned())
}
