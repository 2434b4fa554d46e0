//! Namespaces on the real kernel. They need root, and fail with one line without it.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anabranch_testbed::netns::{Exit, Namespace};

fn namespace(label: &str) -> Namespace {
    Namespace::create(label).unwrap_or_else(|error| panic!("{error}"))
}

fn inode(path: impl AsRef<Path>) -> u64 {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(path).expect("a namespace file").ino()
}

#[test]
fn a_namespace_is_gone_after_its_value_even_after_a_panic() {
    let path = std::panic::catch_unwind(|| {
        let inside = namespace("panic");
        assert!(inside.path().exists());
        std::panic::panic_any(inside.path());
    })
    .expect_err("it panicked");
    let path = path.downcast::<std::path::PathBuf>().expect("the path");
    assert!(!path.exists());
}

#[test]
fn code_and_processes_run_inside_and_the_caller_stays_outside() {
    let here = inode("/proc/thread-self/ns/net");
    let inside = namespace("inside");
    let there = inode(inside.path());
    assert_ne!(here, there);
    assert_eq!(
        inside.run(|| inode("/proc/thread-self/ns/net")).unwrap(),
        there
    );
    {
        let _entered = inside.enter().unwrap();
        assert_eq!(inode("/proc/thread-self/ns/net"), there);
    }
    assert_eq!(inode("/proc/thread-self/ns/net"), here);
    let shown = inside.exec("readlink", &["/proc/self/ns/net"]).unwrap();
    assert_eq!(shown.trim(), format!("net:[{there}]"));
}

#[test]
fn entering_leaves_the_mounts_alone() {
    let inside = namespace("mounts");
    let here = std::fs::read_link("/proc/self/ns/mnt").unwrap();
    let shown = inside.exec("readlink", &["/proc/self/ns/mnt"]).unwrap();
    assert_eq!(Path::new(shown.trim()), here);
}

#[test]
fn a_child_ends_with_its_value() {
    let inside = namespace("child");
    let mut command = Command::new("sleep");
    command.arg("1000");
    let child = inside.spawn(command).unwrap();
    let process = format!("/proc/{}", child.id());
    assert!(Path::new(&process).exists());
    drop(child);
    assert!(!Path::new(&process).exists());
}

#[test]
fn a_child_outlives_the_thread_that_started_it_and_reports_how_it_ended() {
    let inside = namespace("thread");
    let mut child = std::thread::scope(|scope| {
        let start = || {
            let mut command = Command::new("cat");
            command.stdin(Stdio::piped()).stdout(Stdio::null());
            inside.spawn(command).unwrap()
        };
        scope.spawn(start).join().unwrap()
    });
    assert_eq!(child.wait(Duration::from_millis(50)).unwrap(), None);
    drop(child.pipes().stdin.take());
    assert_eq!(
        child.wait(Duration::from_secs(10)).unwrap(),
        Some(Exit::Code(0))
    );
}

#[test]
fn terminate_asks_before_it_kills() {
    let inside = namespace("terminate");
    let mut command = Command::new("sleep");
    command.arg("1000");
    let mut child = inside.spawn(command).unwrap();
    let exit = child.terminate(Duration::from_secs(10)).unwrap();
    assert_eq!(exit, Exit::Signal(libc::SIGTERM));
}

#[test]
fn an_ipv6_address_holds_at_once_and_nothing_is_asked_of_routers() {
    let (left, right) = (namespace("left"), namespace("right"));
    for host in [&left, &right] {
        host.set_ipv6(true).unwrap();
    }
    left.veth("eth0", &right, "eth0").unwrap();
    for (host, address) in [(&left, "2001:db8::1"), (&right, "2001:db8::2")] {
        let address = address.parse().unwrap();
        host.add_address("eth0", address, 64).unwrap();
    }
    left.exec("ping", &["-c", "1", "-w", "10", "2001:db8::2"])
        .unwrap();
    let tentative = left.ip("-6 address show tentative").unwrap();
    assert_eq!(tentative, "");
    for key in ["accept_ra", "router_solicitations", "accept_dad"] {
        let key = format!("net/ipv6/conf/eth0/{key}");
        assert_eq!(left.sysctl(&key).unwrap(), "0", "{key}");
    }
    let [near, far] = ["near", "far"].map(namespace);
    near.set_ipv6(false).unwrap();
    near.veth("eth0", &far, "eth0").unwrap();
    assert_eq!(near.ip("-6 address show dev eth0").unwrap(), "");
}

#[test]
fn sysctls_and_devices_belong_to_the_namespace() {
    let (left, right) = (namespace("left"), namespace("right"));
    left.set_sysctl("net/ipv4/ip_forward", "1").unwrap();
    assert_eq!(left.sysctl("net/ipv4/ip_forward").unwrap(), "1");
    right.set_sysctl("net/ipv4/ip_forward", "0").unwrap();
    assert_eq!(left.sysctl("net/ipv4/ip_forward").unwrap(), "1");

    left.veth("eth0", &right, "eth0").unwrap();
    left.add_address("eth0", [192, 0, 2, 1].into(), 24).unwrap();
    right
        .add_address("eth0", [192, 0, 2, 2].into(), 24)
        .unwrap();
    left.set_offloads("eth0", false).unwrap();
    left.exec("ping", &["-c", "3", "-i", "0.01", "-w", "10", "192.0.2.2"])
        .unwrap();
    let counters = left.counters("eth0").unwrap();
    assert!(
        counters.tx_packets >= 3 && counters.rx_packets >= 3,
        "{counters:?}"
    );
    assert_eq!(counters.tx_dropped, 0);
}

#[test]
fn a_failed_command_says_what_and_why() {
    let inside = namespace("words");
    let error = inside.ip("link set nothing up").unwrap_err().to_string();
    assert!(error.contains("ip link set nothing up"), "{error}");
    assert!(error.contains("Cannot find device"), "{error}");
    let error = inside.exec("no-such-program", &[]).unwrap_err().to_string();
    assert!(error.contains("no-such-program"), "{error}");
}

#[test]
fn what_a_dead_process_left_behind_is_removed_and_what_lives_is_kept() {
    let kept = namespace("kept");
    // No process has an id above the kernel's PID_MAX_LIMIT of 2^22.
    let left_behind = "anabranch-4194305-0-stale";
    let add = Command::new("ip")
        .args(["netns", "add", left_behind])
        .status();
    assert!(add.unwrap().success());
    anabranch_testbed::netns::remove_stale();
    assert!(!Path::new("/run/netns").join(left_behind).exists());
    assert!(kept.path().exists());
}
