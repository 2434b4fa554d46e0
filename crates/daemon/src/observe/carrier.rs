//! Polls the carriers of devices, because the kernel's notifications are too slow.
//!
//! The flags of a device show a lost carrier at once. But the kernel sends the notification only when its link watch runs,
//! up to a second later if it has just sent another (linux/net/core/link_watch.c: only devices that come up, or
//! belong to a bridge or bond, are urgent). So the flags of devices that carry traffic are read every [`INTERVAL`], or every
//! [`QUIET_INTERVAL`] while they carry nothing. A difference to what the daemon knows causes an inspection.
//!
//! A thread does this, because the kernel answers under the lock of all network configuration, which another process
//! may hold for long, and the daemon's loop must not wait for it ten times a second.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{
    LinkAttribute, LinkExtentMask, LinkFlags, LinkHeader, LinkMessage,
};
use rtnetlink::packet_core::{NLM_F_REQUEST, NetlinkBuffer, NetlinkHeader, NetlinkMessage};
use rtnetlink::sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use tokio::sync::Notify;

const INTERVAL: Duration = Duration::from_millis(100);
/// Longer, because each reading wakes a processor.
const QUIET_INTERVAL: Duration = Duration::from_millis(300);
/// RTEXT_FILTER_NAME_ONLY of linux/rtnetlink.h: omits all attributes except names. Kernels before 6.7 ignore it and send all.
const NAMES_ONLY: LinkExtentMask = LinkExtentMask::Other(1 << 8);
/// The message about one device, without its counters, takes one or two kilobytes.
const MESSAGE_BYTES_MAX: usize = 32_768;

/// Whether each device is running, by ifindex.
pub type Running = BTreeMap<u32, bool>;

/// Whether a device is up, with carrier, and sending. A lost carrier shows first in one of these flags, a new one last in another
/// (linux/net/core/link_watch.c).
pub(super) fn is_running(header: &LinkHeader) -> bool {
    let flags = LinkFlags::Up | LinkFlags::LowerUp | LinkFlags::Running;
    header.flags.contains(flags)
}

/// Watches devices until it is dropped.
pub struct Carriers {
    known: Running,
    orders: Option<Sender<Running>>,
    differs: Arc<Notify>,
    is_quiet: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Carriers {
    /// For the calling thread's network namespace. No device is watched yet.
    pub fn connect() -> anyhow::Result<Self> {
        let mut kernel = Kernel::connect()?;
        let (orders, ordered) = channel();
        let differs = Arc::new(Notify::new());
        let is_quiet = Arc::new(AtomicBool::new(false));
        let (tell, rests) = (Arc::clone(&differs), Arc::clone(&is_quiet));
        let watch = move || {
            if let Err(error) = watch(&mut kernel, &ordered, &rests, &tell) {
                tracing::warn!("carriers are no longer read, only told: {error:#}");
            }
        };
        let thread = std::thread::Builder::new()
            .name("carriers".to_owned())
            .spawn(watch)
            .context("start the thread that reads carriers")?;
        Ok(Self {
            known: Running::new(),
            orders: Some(orders),
            differs,
            is_quiet,
            thread: Some(thread),
        })
    }

    /// Watches exactly these devices, and compares them with what is known of them.
    pub fn watch(&mut self, known: Running) {
        if let Some(orders) = self.orders.as_ref().filter(|_| self.known != known) {
            // If the thread has ended, it has logged the reason.
            let _ = orders.send(known.clone());
            self.known = known;
        }
    }

    /// Sets whether the devices carry nothing.
    pub fn rest(&mut self, is_quiet: bool) {
        self.is_quiet.store(is_quiet, Ordering::Relaxed);
    }

    /// Returns when a device differs from what is known. Cancel-safe.
    pub async fn differ(&self) {
        self.differs.notified().await;
    }
}

impl Drop for Carriers {
    fn drop(&mut self) {
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Polls until the other end of `orders` is closed. Reports each difference once.
fn watch(
    kernel: &mut Kernel,
    orders: &Receiver<Running>,
    is_quiet: &AtomicBool,
    tell: &Notify,
) -> anyhow::Result<()> {
    let mut watched = Vec::new();
    loop {
        let interval = match is_quiet.load(Ordering::Relaxed) {
            true => QUIET_INTERVAL,
            false => INTERVAL,
        };
        match orders.recv_timeout(interval) {
            Ok(known) => watched = known.into_iter().map(Watched::from).collect(),
            Err(RecvTimeoutError::Timeout) => {
                if kernel.update(&mut watched)? {
                    tell.notify_one();
                }
            }
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        }
    }
}

/// A device and the request for its state, which is built once.
struct Watched {
    is_running: bool,
    question: Vec<u8>,
}

impl From<(u32, bool)> for Watched {
    fn from((ifindex, is_running): (u32, bool)) -> Self {
        Self {
            is_running,
            question: question(ifindex),
        }
    }
}

/// A netlink socket that waits for answers.
struct Kernel {
    socket: Socket,
    buffer: Vec<u8>,
}

impl Kernel {
    fn connect() -> anyhow::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE).context("open a netlink socket")?;
        socket.bind_auto().context("bind a netlink socket")?;
        let kernel = SocketAddr::new(0, 0);
        socket
            .connect(&kernel)
            .context("connect a netlink socket")?;
        Ok(Self {
            socket,
            buffer: vec![0; MESSAGE_BYTES_MAX],
        })
    }

    /// Reads all devices. Returns whether any differs from what was known.
    fn update(&mut self, watched: &mut [Watched]) -> anyhow::Result<bool> {
        let mut differs = false;
        for device in watched {
            let now = self.is_running(&device.question);
            let now = now.context("read a carrier")?;
            differs |= std::mem::replace(&mut device.is_running, now) != now;
        }
        Ok(differs)
    }

    /// Whether the device of a request is running; false if it does not exist.
    fn is_running(&mut self, question: &[u8]) -> anyhow::Result<bool> {
        self.socket.send(question, 0)?;
        let length = self.socket.recv(&mut &mut self.buffer[..], 0)?;
        let answer = NetlinkBuffer::new_checked(&self.buffer[..length])?;
        Ok(answer.message_type() == libc::RTM_NEWLINK
            && is_running(&LinkHeader::parse(answer.payload())?))
    }
}

fn question(ifindex: u32) -> Vec<u8> {
    let mut link = LinkMessage::default();
    link.header.index = ifindex;
    // Only the flags are needed.
    let short = LinkAttribute::ExtMask(vec![LinkExtentMask::SkipStats, NAMES_ONLY]);
    link.attributes.push(short);
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST;
    let mut message = NetlinkMessage::new(header, RouteNetlinkMessage::GetLink(link).into());
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    bytes
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use anabranch_testbed::netns::Namespace;
    use nix::net::if_::if_nametoindex;

    use super::*;

    const DEVICES: usize = 8;

    #[test]
    fn a_carrier_is_read_as_it_is_and_no_device_as_none() {
        let [near, far] = ["near", "far"].map(|label| Namespace::create(label).unwrap());
        for i in 0..DEVICES {
            near.veth(&format!("a{i}"), &far, &format!("b{i}")).unwrap();
        }
        let (mut kernel, devices) = near
            .run(|| {
                let index = |i| if_nametoindex(format!("a{i}").as_str()).unwrap();
                let devices: [u32; DEVICES] = std::array::from_fn(index);
                (Kernel::connect().unwrap(), devices)
            })
            .unwrap();
        let mut watched: Vec<Watched> = devices.map(|device| (device, true).into()).into();
        // What comes up runs once the link watch has been there.
        let deadline = Instant::now() + Duration::from_secs(5);
        while kernel.update(&mut watched).unwrap() || watched.iter().any(|it| !it.is_running) {
            assert!(Instant::now() < deadline);
        }
        far.ip("link set b3 down").unwrap();
        assert!(kernel.update(&mut watched).unwrap());
        let running = |watched: &[Watched]| -> Vec<bool> {
            watched.iter().map(|device| device.is_running).collect()
        };
        let mut expected = [true; DEVICES];
        expected[3] = false;
        assert_eq!(running(&watched), expected);
        assert!(!kernel.update(&mut watched).unwrap(), "told once");
        near.ip("link delete a5").unwrap();
        assert!(kernel.update(&mut watched).unwrap());
        expected[5] = false;
        assert_eq!(running(&watched), expected);
        let began = Instant::now();
        let readings = 1000;
        for _ in 0..readings {
            kernel.update(&mut watched).unwrap();
        }
        let each_us = began.elapsed().as_secs_f64() * 1e6 / f64::from(readings);
        println!("{DEVICES} devices in {each_us:.0} µs");
    }
}
