//! Connections that the kernel translates and that a link takes with it.
//!
//! Who forwards for containers gives each of their connections an address of the link by which it leaves, and keeps that as long
//! as the connection is known. Once the link is gone, the next packet has to be translated anew: the other end of TCP answers
//! it with a RST, and UDP goes on.

use std::io;

use anabranch_core::Family;
use anyhow::Context;
use rtnetlink::sys::{Socket, SocketAddr, protocols::NETLINK_NETFILTER};

// linux/netfilter/nfnetlink.h and nfnetlink_conntrack.h
const DELETE: u16 = 1 << 8 | 2;
const MARK: u16 = 8;
const MARK_MASK: u16 = 21;
const HEADER: usize = 16;

/// The kernel forgets all of one family that bear a mark.
pub fn forget(family: Family, mark: u32) -> anyhow::Result<()> {
    let mut socket = Socket::new(NETLINK_NETFILTER).context("open a netlink socket")?;
    socket.bind_auto().context("bind a netlink socket")?;
    socket
        .connect(&SocketAddr::new(0, 0))
        .context("connect a netlink socket")?;
    socket.send(&request(family, mark), 0).context("ask")?;
    let mut answer = vec![0; 4096];
    let length = socket.recv(&mut &mut answer[..], 0).context("listen")?;
    let code = answer[..length].get(HEADER..HEADER + 4);
    let code = code.and_then(|code| Some(i32::from_ne_bytes(code.try_into().ok()?)));
    match code {
        Some(0) => Ok(()),
        Some(code) => Err(io::Error::from_raw_os_error(-code).into()),
        None => anyhow::bail!("an answer is cut short"),
    }
}

fn request(family: Family, mark: u32) -> Vec<u8> {
    let family = match family {
        Family::V4 => libc::AF_INET,
        Family::V6 => libc::AF_INET6,
    };
    let mut body = vec![family as u8, 0, 0, 0];
    for (kind, value) in [(MARK, mark), (MARK_MASK, u32::MAX)] {
        body.extend(8_u16.to_ne_bytes());
        body.extend(kind.to_ne_bytes());
        body.extend(value.to_be_bytes());
    }
    let length = (HEADER + body.len()) as u32;
    let flags = (libc::NLM_F_REQUEST | libc::NLM_F_ACK) as u16;
    let mut message = Vec::from(length.to_ne_bytes());
    message.extend(DELETE.to_ne_bytes());
    message.extend(flags.to_ne_bytes());
    message.extend([0; 8]);
    message.extend(body);
    message
}
