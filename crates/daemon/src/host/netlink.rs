//! Netlink requests, written by hand where a library would cost more than it saves: netfilter, sock_diag and generic
//! netlink. A socket has one request at a time.

use std::io;

use anabranch_core::Family;
use rtnetlink::sys::{Socket, SocketAddr};

/// `struct nlmsghdr`.
const HEADER: usize = 16;
/// The longest datagram of a dump, unless the reader offers more room.
const DUMP_BYTES_MAX: usize = 65_536;
/// The longest answer about one object. A refusal repeats the request.
const ANSWER_BYTES_MAX: usize = 8192;
const TYPE_MASK: u16 = libc::NLA_TYPE_MASK as u16;

/// The number of a family in messages (address_families(7)).
pub(crate) fn number_of(family: Family) -> u8 {
    match family {
        Family::V4 => libc::AF_INET as u8,
        Family::V6 => libc::AF_INET6 as u8,
    }
}

/// A socket of one protocol.
#[derive(Debug)]
pub struct Netlink(Socket);

impl Netlink {
    pub fn connect(protocol: isize) -> io::Result<Self> {
        let mut socket = Socket::new(protocol)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(Self(socket))
    }

    /// Sends a request that has no answer but an acknowledgement.
    pub fn order(&self, kind: u16, body: &[u8]) -> io::Result<()> {
        self.ask(kind, libc::NLM_F_ACK, body, |_, _| {})
    }

    /// Creates an object, or replaces it.
    pub fn replace(&self, kind: u16, body: &[u8]) -> io::Result<()> {
        let flags = libc::NLM_F_ACK | libc::NLM_F_CREATE | libc::NLM_F_REPLACE;
        self.ask(kind, flags, body, |_, _| {})
    }

    /// Passes kind and body of each object that matches to `take`.
    pub fn dump(&self, kind: u16, body: &[u8], take: impl FnMut(u16, &[u8])) -> io::Result<()> {
        self.ask(kind, libc::NLM_F_DUMP, body, take)
    }

    /// Returns the only answer to a request.
    pub fn get(&self, kind: u16, body: &[u8]) -> io::Result<Vec<u8>> {
        let mut answer = None;
        self.ask(kind, libc::NLM_F_ACK, body, |_, body| {
            answer = Some(body.to_vec());
        })?;
        answer.ok_or_else(cut_short)
    }

    /// Receives until the kernel signals the end, or an error.
    fn ask(
        &self,
        kind: u16,
        flags: i32,
        body: &[u8],
        mut take: impl FnMut(u16, &[u8]),
    ) -> io::Result<()> {
        let flags = (libc::NLM_F_REQUEST | flags) as u16;
        let mut request = Vec::from(((HEADER + body.len()) as u32).to_ne_bytes());
        request.extend(kind.to_ne_bytes());
        request.extend(flags.to_ne_bytes());
        request.extend([0; 8]);
        request.extend(body);
        self.0.send(&request, 0)?;
        let room = match i32::from(flags) & libc::NLM_F_DUMP {
            libc::NLM_F_DUMP => DUMP_BYTES_MAX,
            _ => ANSWER_BYTES_MAX,
        };
        let mut buffer = vec![0; room];
        loop {
            let length = self.0.recv(&mut &mut buffer[..], 0)?;
            for (kind, body) in messages(&buffer[..length]) {
                match i32::from(kind) {
                    libc::NLMSG_DONE | libc::NLMSG_ERROR => return ended(body),
                    _ => take(kind, body),
                }
            }
        }
    }
}

/// Kind and body of each message in a datagram.
fn messages(mut datagram: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = u32::from_ne_bytes(*datagram.first_chunk()?) as usize;
        let kind = u16::from_ne_bytes(datagram.get(4..6)?.try_into().ok()?);
        let body = datagram.get(HEADER..length)?;
        datagram = datagram
            .get(length.next_multiple_of(4)..)
            .unwrap_or_default();
        Some((kind, body))
    })
}

/// The status in an acknowledgement or at the end of a dump: 0, or a negative error number.
fn ended(body: &[u8]) -> io::Result<()> {
    match body.first_chunk().map(|code| i32::from_ne_bytes(*code)) {
        Some(0) => Ok(()),
        Some(code) => Err(io::Error::from_raw_os_error(-code)),
        None => Err(cut_short()),
    }
}

fn cut_short() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "an answer is cut short")
}

/// Appends an attribute.
pub fn attribute(body: &mut Vec<u8>, kind: u16, value: &[u8]) {
    body.extend((4 + value.len() as u16).to_ne_bytes());
    body.extend(kind.to_ne_bytes());
    body.extend(value);
    body.resize(body.len().next_multiple_of(4), 0);
}

/// Appends an attribute that contains attributes.
pub fn nested(body: &mut Vec<u8>, kind: u16, value: &[u8]) {
    attribute(body, kind | libc::NLA_F_NESTED as u16, value);
}

/// The value of the first attribute of a kind.
pub fn find(all: &[u8], wanted: u16) -> Option<&[u8]> {
    let mut all = attributes(all);
    Some(all.find(|(kind, _)| *kind == wanted)?.1)
}

/// The value of the last attribute on a path of nested ones.
pub fn find_in<'a>(all: &'a [u8], path: &[u16]) -> Option<&'a [u8]> {
    path.iter().try_fold(all, |all, kind| find(all, *kind))
}

/// Kind and value of each attribute.
pub fn attributes(mut all: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let (header, _) = all.split_at_checked(4)?;
        let length = usize::from(u16::from_ne_bytes([header[0], header[1]]));
        let kind = u16::from_ne_bytes([header[2], header[3]]) & TYPE_MASK;
        let value = all.get(4..length)?;
        all = all.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}
