//! What leaves or arrives by the devices of the thread's namespace.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;

use anyhow::{Context, Result};
use socket2::{Domain, Protocol, Socket, Type};

const FRAME_MAX: usize = 65_536;
const QUEUE_BYTES: usize = 8 << 20;

/// Frames of which way are met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// Those that a device sends.
    Leaving,
    /// Those that a device receives.
    Arriving,
}

/// A packet socket on every device.
pub struct Capture {
    socket: Socket,
    seen: Seen,
    buffer: Vec<u8>,
}

impl Capture {
    /// On every device of the thread's namespace.
    pub fn new(seen: Seen) -> Result<Self> {
        let every = Protocol::from(i32::from((libc::ETH_P_ALL as u16).to_be()));
        let socket =
            Socket::new(Domain::PACKET, Type::RAW, Some(every)).context("packet socket")?;
        socket.set_nonblocking(true)?;
        socket.set_recv_buffer_size(QUEUE_BYTES)?;
        Ok(Capture {
            socket,
            seen,
            buffer: vec![0; FRAME_MAX],
        })
    }

    /// Meets every frame since the last call, with its device's index.
    pub fn drain(&mut self, mut meet: impl FnMut(u32, &[u8])) -> Result<()> {
        loop {
            let mut from = MaybeUninit::<libc::sockaddr_ll>::zeroed();
            let mut from_length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
            // SAFETY: buffer and address are as long as told.
            let length = unsafe {
                libc::recvfrom(
                    self.socket.as_raw_fd(),
                    self.buffer.as_mut_ptr().cast(),
                    self.buffer.len(),
                    0,
                    from.as_mut_ptr().cast(),
                    &mut from_length,
                )
            };
            if length < 0 {
                let error = io::Error::last_os_error();
                return match error.kind() {
                    io::ErrorKind::WouldBlock => Ok(()),
                    _ => Err(error).context("packet socket"),
                };
            }
            // SAFETY: any bytes are a valid address, and the kernel has written one.
            let from = unsafe { from.assume_init() };
            let is_leaving = from.sll_pkttype == libc::PACKET_OUTGOING;
            if is_leaving == (self.seen == Seen::Leaving) {
                meet(from.sll_ifindex as u32, &self.buffer[..length as usize]);
            }
        }
    }
}
