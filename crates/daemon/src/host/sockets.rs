//! UDP sockets of the host's own that a link takes with it.
//!
//! A connected socket keeps the source address that it was given, and by that its link, for as long as it lives: who asks
//! a resolver or a time server from one would ask over a dead link for ever. So they are aborted (sock_diag(7),
//! SOCK_DESTROY of Linux 4.9): whoever has one is told ECONNABORTED, and connects anew over a link that works. One that is
//! bound to a device wants that, and is left; TCP has timers of its own.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket,
};

/// linux/sock_diag.h.
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const SOCK_DESTROY: u16 = 21;
/// A UDP socket that is connected has this state of TCP.
const ESTABLISHED: u32 = 1;
/// `struct nlmsghdr`, then the family and what is asked for, then the socket's id; what comes of a socket begins alike.
const HEADER: usize = 16;
const ID_AT: usize = HEADER + 8;
const FOUND_ID_AT: usize = HEADER + 4;
const ID: usize = 48;
/// In the id: sixteen bytes, of which IPv4 has the first four.
const SOURCE_AT: usize = 4;
const DEVICE: std::ops::Range<usize> = 36..40;
const ANSWER_BYTES_MAX: usize = 32_768;

/// `struct inet_diag_sockid` of linux/inet_diag.h.
type Id = [u8; ID];

/// Aborts those that are connected from `source`; returns how many.
pub fn abort_udp(source: IpAddr) -> io::Result<usize> {
    let (family, octets) = match source {
        IpAddr::V4(v4) => (libc::AF_INET, v4.octets().to_vec()),
        IpAddr::V6(v6) => (libc::AF_INET6, v6.octets().to_vec()),
    };
    let netlink = socket(
        AddressFamily::Netlink,
        SockType::Datagram,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::NetlinkSockDiag,
    )?;
    let mut aborted = 0;
    for id in connected(&netlink, family)? {
        if id[SOURCE_AT..].starts_with(&octets) && id[DEVICE] == [0; 4] {
            aborted += usize::from(abort(&netlink, family, &id)?);
        }
    }
    Ok(aborted)
}

fn connected(netlink: &OwnedFd, family: i32) -> io::Result<Vec<Id>> {
    let kind = SOCK_DIAG_BY_FAMILY;
    ask(netlink, kind, libc::NLM_F_DUMP, family, &[0; ID])?;
    let mut found = Vec::new();
    let mut buffer = [0; ANSWER_BYTES_MAX];
    loop {
        let length = recv(netlink.as_raw_fd(), &mut buffer, MsgFlags::empty())?;
        for (kind, message) in messages(&buffer[..length]) {
            match i32::from(kind) {
                libc::NLMSG_DONE => return Ok(found),
                libc::NLMSG_ERROR => error(message)?,
                _ => found.extend(
                    message
                        .get(FOUND_ID_AT..FOUND_ID_AT + ID)
                        .and_then(|id| Id::try_from(id).ok()),
                ),
            }
        }
    }
}

/// Whether it was still there.
fn abort(netlink: &OwnedFd, family: i32, id: &Id) -> io::Result<bool> {
    ask(netlink, SOCK_DESTROY, libc::NLM_F_ACK, family, id)?;
    let mut buffer = [0; ANSWER_BYTES_MAX];
    let length = recv(netlink.as_raw_fd(), &mut buffer, MsgFlags::empty())?;
    for (_, message) in messages(&buffer[..length]) {
        match error(message) {
            Err(gone) if gone.raw_os_error() == Some(Errno::ENOENT as i32) => return Ok(false),
            told => told?,
        }
    }
    Ok(true)
}

fn ask(netlink: &OwnedFd, kind: u16, flags: i32, family: i32, id: &Id) -> io::Result<()> {
    let mut request = [0; ID_AT + ID];
    let length = request.len() as u32;
    let flags = (libc::NLM_F_REQUEST | flags) as u16;
    request[..4].copy_from_slice(&length.to_ne_bytes());
    request[4..6].copy_from_slice(&kind.to_ne_bytes());
    request[6..8].copy_from_slice(&flags.to_ne_bytes());
    request[HEADER] = family as u8;
    request[HEADER + 1] = libc::IPPROTO_UDP as u8;
    let states: u32 = 1 << ESTABLISHED;
    request[HEADER + 4..ID_AT].copy_from_slice(&states.to_ne_bytes());
    request[ID_AT..].copy_from_slice(id);
    send(netlink.as_raw_fd(), &request, MsgFlags::empty())?;
    Ok(())
}

/// Kind and bytes, header included, of each message of a datagram.
fn messages(mut datagram: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = u32::from_ne_bytes(datagram.get(..4)?.try_into().ok()?) as usize;
        let kind = u16::from_ne_bytes(datagram.get(4..6)?.try_into().ok()?);
        let message = datagram.get(..length).filter(|_| length >= HEADER)?;
        datagram = datagram
            .get(length.next_multiple_of(4)..)
            .unwrap_or_default();
        Some((kind, message))
    })
}

/// Of an acknowledgement, the negative number is an error's; 0 is none.
fn error(message: &[u8]) -> io::Result<()> {
    let number = message.get(HEADER..HEADER + 4);
    let number = number.and_then(|number| Some(i32::from_ne_bytes(number.try_into().ok()?)));
    match number {
        Some(0) => Ok(()),
        Some(number) => Err(io::Error::from_raw_os_error(-number)),
        None => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}
