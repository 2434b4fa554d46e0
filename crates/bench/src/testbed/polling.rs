//! A network device polled by a kernel thread (threaded NAPI), so that one processor forwards while another makes the
//! packets. Only frames that come from an XDP program take this way: what a socket sends over virtual Ethernet is
//! carried to its receiver by the sending processor.

use std::collections::BTreeSet;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use anabranch_testbed::netns::Namespace;
use anyhow::{Result, ensure};
use nix::unistd::Pid;

use super::LAN_DEVICE;
use crate::cpu::pin;

const THREAD_WITHIN: Duration = Duration::from_secs(2);

/// Makes a kernel thread of its own poll the LAN device, and keeps it on one processor.
pub fn in_thread_on(gateway: &Namespace, cpu: usize) -> Result<()> {
    let others = napi_threads()?;
    let switch = format!("echo 1 > /sys/class/net/{LAN_DEVICE}/threaded");
    // `ip netns exec` mounts the sysfs that shows the namespace's devices.
    gateway.exec(
        "ip",
        &["netns", "exec", gateway.name(), "sh", "-c", &switch],
    )?;
    let deadline = Instant::now() + THREAD_WITHIN;
    loop {
        let fresh: Vec<_> = napi_threads()?.difference(&others).copied().collect();
        if !fresh.is_empty() {
            return fresh.into_iter().try_for_each(|thread| pin(thread, cpu));
        }
        ensure!(
            Instant::now() < deadline,
            "no thread polls {LAN_DEVICE}: is NAPI on?"
        );
        thread::yield_now();
    }
}

fn napi_threads() -> Result<BTreeSet<Pid>> {
    let wanted = format!("napi/{LAN_DEVICE}-");
    let mut found = BTreeSet::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        let comm = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        if comm.starts_with(&wanted) {
            found.insert(Pid::from_raw(pid));
        }
    }
    Ok(found)
}
