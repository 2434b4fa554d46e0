//! What is asked of the kernel itself, the counters of a table and the number of nftables' generation: a process of `nft` for each
//! question would keep the daemon's loop.

use anyhow::{Context, bail};
use rtnetlink::sys::{Socket, SocketAddr, protocols::NETLINK_NETFILTER};

const HEADER: usize = 16;
const FAMILY_HEADER: usize = 4;
const DUMP_BYTES_MAX: usize = 65_536;
// linux/netfilter/nfnetlink.h and nf_tables.h
const SUBSYSTEM: u16 = 10 << 8;
const NEW_OBJECT: u16 = SUBSYSTEM | 18;
const GET_OBJECT: u16 = SUBSYSTEM | 19;
const NEW_GENERATION: u16 = SUBSYSTEM | 15;
const GET_GENERATION: u16 = SUBSYSTEM | 16;
const GENERATION_ID: u16 = 1;
const OBJECT_TABLE: u16 = 1;
const OBJECT_NAME: u16 = 2;
const OBJECT_TYPE: u16 = 3;
const OBJECT_DATA: u16 = 4;
const TYPE_COUNTER: u32 = 1;
const COUNTER_PACKETS: u16 = 2;
const ATTRIBUTE_TYPE_MASK: u16 = libc::NLA_TYPE_MASK as u16;

/// Name and packets of every named counter of a table of both families.
pub fn counters(table: &str) -> anyhow::Result<Vec<(String, u64)>> {
    let socket = connect()?;
    socket.send(&counters_of(table), 0).context("ask")?;
    let mut counters = Vec::new();
    let mut buffer = vec![0; DUMP_BYTES_MAX];
    loop {
        let length = socket.recv(&mut &mut buffer[..], 0).context("listen")?;
        if !take(&buffer[..length], &mut counters)? {
            return Ok(counters);
        }
    }
}

/// Another number whenever somebody has changed nftables.
pub fn generation() -> anyhow::Result<u32> {
    let socket = connect()?;
    let body = vec![libc::NFPROTO_UNSPEC as u8, 0, 0, 0];
    let asked = question(GET_GENERATION, libc::NLM_F_REQUEST, body);
    socket.send(&asked, 0).context("ask")?;
    let mut answer = vec![0; DUMP_BYTES_MAX];
    let length = socket.recv(&mut &mut answer[..], 0).context("listen")?;
    let is_told = answer[4..6] == NEW_GENERATION.to_ne_bytes();
    let attributes = answer[..length].get(HEADER + FAMILY_HEADER..);
    let id = attributes
        .filter(|_| is_told)
        .and_then(|all| find(all, GENERATION_ID));
    let id = id.context("nftables tells no generation")?;
    Ok(u32::from_be_bytes(id.try_into()?))
}

fn connect() -> anyhow::Result<Socket> {
    let mut socket = Socket::new(NETLINK_NETFILTER).context("open a netlink socket")?;
    socket.bind_auto().context("bind a netlink socket")?;
    socket
        .connect(&SocketAddr::new(0, 0))
        .context("connect a netlink socket")?;
    Ok(socket)
}

fn counters_of(table: &str) -> Vec<u8> {
    let mut body = vec![libc::NFPROTO_INET as u8, 0, 0, 0];
    attribute(&mut body, OBJECT_TABLE, &[table.as_bytes(), &[0]].concat());
    attribute(&mut body, OBJECT_TYPE, &TYPE_COUNTER.to_be_bytes());
    question(GET_OBJECT, libc::NLM_F_REQUEST | libc::NLM_F_DUMP, body)
}

fn question(kind: u16, flags: i32, body: Vec<u8>) -> Vec<u8> {
    let length = (HEADER + body.len()) as u32;
    let mut message = Vec::from(length.to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend((flags as u16).to_ne_bytes());
    message.extend([0; 8]);
    message.extend(body);
    message
}

fn attribute(body: &mut Vec<u8>, kind: u16, value: &[u8]) {
    body.extend((4 + value.len() as u16).to_ne_bytes());
    body.extend(kind.to_ne_bytes());
    body.extend(value);
    body.resize(body.len().next_multiple_of(4), 0);
}

/// Whether there is more to come.
fn take(mut bytes: &[u8], counters: &mut Vec<(String, u64)>) -> anyhow::Result<bool> {
    while let Some((header, _)) = bytes.split_at_checked(HEADER) {
        let length = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]) as usize;
        let kind = u16::from_ne_bytes([header[4], header[5]]);
        let Some(body) = bytes.get(HEADER..length) else {
            bail!("an answer is cut short");
        };
        match kind {
            NEW_OBJECT => counters.extend(counter(body.get(FAMILY_HEADER..).unwrap_or_default())),
            _ => return ended(i32::from(kind), body),
        }
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(true)
}

/// The end of a dump is no error, and neither is a table that does not exist.
fn ended(kind: i32, body: &[u8]) -> anyhow::Result<bool> {
    let code = body
        .first_chunk()
        .map_or(0, |code| i32::from_ne_bytes(*code));
    if kind == libc::NLMSG_DONE || code == 0 || code == -libc::ENOENT {
        return Ok(false);
    }
    Err(std::io::Error::from_raw_os_error(-code).into())
}

fn counter(attributes: &[u8]) -> Option<(String, u64)> {
    let name = find(attributes, OBJECT_NAME)?;
    let name = name.strip_suffix(&[0]).unwrap_or(name);
    let packets = find(find(attributes, OBJECT_DATA)?, COUNTER_PACKETS)?;
    Some((
        String::from_utf8_lossy(name).into_owned(),
        u64::from_be_bytes(packets.try_into().ok()?),
    ))
}

/// The value of the first attribute of a kind.
fn find(mut attributes: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let (header, _) = attributes.split_at_checked(4)?;
        let length = usize::from(u16::from_ne_bytes([header[0], header[1]]));
        let kind = u16::from_ne_bytes([header[2], header[3]]) & ATTRIBUTE_TYPE_MASK;
        let value = attributes.get(4..length)?;
        if kind == wanted {
            return Some(value);
        }
        attributes = attributes.get(length.next_multiple_of(4)..)?;
    }
}
