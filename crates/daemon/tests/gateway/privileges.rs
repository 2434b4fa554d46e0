//! What the daemon may do, and that it is enough.

use std::os::unix::fs::PermissionsExt;

use anabranch_api::Proto;
use anabranch_api::{LinkState, Request, Response};
use anabranch_core::Family;
use anabranch_testbed::netns::Exit;
use nix::sys::signal::Signal;

use crate::common::example;
use crate::rig::*;

/// CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF.
const KEPT: u64 = 1 << 12 | 1 << 13 | 1 << 39;

anabranch_testbed::in_both_families!(
    Family:
    a_daemon_that_has_loaded_keeps_three_capabilities_and_does_all_its_work_with_them,
    a_whole_life_needs_no_more_than_the_unit_leaves,
);

/// A field of `/proc/PID/status`.
fn field(daemon: &Daemon, name: &str) -> String {
    let path = format!("/proc/{}/status", daemon.child.id());
    let text = std::fs::read_to_string(path).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap().trim_start_matches(':').trim().to_owned()
}

fn a_daemon_that_has_loaded_keeps_three_capabilities_and_does_all_its_work_with_them(
    family: Family,
) {
    let rig = Rig::of(family);
    let before = rig.fingerprint();
    let killed = rig.start();
    assert_eq!(killed.end(Signal::SIGKILL), Exit::Signal(9));
    let daemon = rig.start();
    for set in ["CapEff", "CapPrm", "CapBnd"] {
        let held = u64::from_str_radix(&field(&daemon, set), 16).unwrap();
        assert_eq!(held, KEPT, "{set}: {held:#x}");
    }
    for set in ["CapInh", "CapAmb"] {
        let held = u64::from_str_radix(&field(&daemon, set), 16).unwrap();
        assert_eq!(held, 0, "{set}: {held:#x}");
    }
    assert_eq!(field(&daemon, "NoNewPrivs"), "1");
    assert_eq!(field(&daemon, "Seccomp"), "2", "filtered");

    assert!(daemon.status().adopted);
    let mut stream = rig.connect().unwrap();
    echo(&mut stream).unwrap();
    let Response::Flows { total, .. } = daemon.call(&Request::Flows { limit: 10 }) else {
        panic!("no flows")
    };
    assert!(total > 0);
    let explain = Request::Explain {
        from: stream.local_addr().unwrap(),
        to: rig.server().parse().unwrap(),
        proto: Proto::Tcp,
    };
    let Response::Explanation(explained) = daemon.call(&explain) else {
        panic!("not explained")
    };
    assert!(explained.explanation.bound);

    reload_and_replace_a_device(&rig, &daemon);
    echo(&mut rig.connect().unwrap()).unwrap();
    rig.internet.ip("link set wan0-far down").unwrap();
    until("fiber is absent", || {
        daemon.link("fiber").state == LinkState::Absent
    });
    rig.internet.ip("link set wan0-far up").unwrap();
    until("sweeps are made", || daemon.status().flows.confirmed > 0);
    until("fiber is up again", || {
        daemon.link("fiber").state == LinkState::Up
    });
    assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
    let [_, gateway] = rig.plan().links[0];
    rig.gateway
        .ip(&format!(
            "route replace default via {gateway} dev wan0 metric 100"
        ))
        .unwrap();
    assert_eq!(rig.fingerprint(), before);
}

fn reload_and_replace_a_device(rig: &Rig, daemon: &Daemon) {
    rig.write_config(&rig.config_text().replace("\"rr\"", "\"wsdm\""));
    assert!(matches!(daemon.call(&Request::Reload), Response::Done));
    rig.gateway.ip("link del wan1").unwrap();
    until("lte is absent", || {
        daemon.link("lte").state == LinkState::Absent
    });
    rig.link("wan1");
    until("lte is up again", || {
        daemon.link("lte").state == LinkState::Up
    });
}

/// As the unit of the package bounds it.
#[test]
fn loading_needs_no_more_than_the_unit_leaves() {
    let unit = std::fs::read_to_string(UNIT).unwrap();
    let bounding = unit
        .lines()
        .find_map(|line| line.strip_prefix("CapabilityBoundingSet="));
    let names: Vec<String> = bounding
        .unwrap()
        .split_whitespace()
        .map(|name| format!("+{}", name.trim_start_matches("CAP_").to_lowercase()))
        .collect();
    let bounds = format!("--bounding-set=-all,{}", names.join(","));
    let rig = Rig::new();
    let before = rig.fingerprint();
    let daemon = rig.start_under("setpriv", &[&bounds]);
    echo(&mut rig.connect().unwrap()).unwrap();
    assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
    assert_eq!(rig.fingerprint(), before);
}

/// `examples/confined.rs` does to the process what systemd would.
fn a_whole_life_needs_no_more_than_the_unit_leaves(family: Family) {
    let rig = Rig::of(family);
    let before = rig.fingerprint();
    let confined = example("confined");
    let confined = confined.to_str().unwrap();
    let dir = rig.dir.path().to_str().unwrap();
    let killed = rig.start_under(confined, &[UNIT, dir]);
    let mut stream = rig.connect().unwrap();
    echo(&mut stream).unwrap();
    assert_eq!(killed.end(Signal::SIGKILL), Exit::Signal(9));

    let daemon = rig.start_under(confined, &[UNIT, dir]);
    assert!(daemon.status().adopted);
    echo(&mut stream).unwrap();
    reload_and_replace_a_device(&rig, &daemon);
    rig.gateway.exec("nft", &["flush", "ruleset"]).unwrap();
    until("the guard is back", || {
        let rules = rig.gateway.exec("nft", &["list", "ruleset"]).unwrap();
        rules.contains("kernel-foreign-source")
    });
    assert_eq!(daemon.status().troubles, [""; 0]);
    assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
    assert_eq!(rig.fingerprint(), before);
}

#[test]
fn a_unit_that_leaves_too_little_ends_the_start() {
    let rig = Rig::new();
    let unit = std::fs::read_to_string(UNIT).unwrap();
    let confined = example("confined");
    let dir = rig.dir.path().to_str().unwrap();
    let path = rig.dir.path().join("unit");
    for (leaves, too_little) in [
        ("@system-service bpf", "@system-service"),
        ("bpf seccomp", "bpf"),
        ("@system-service bpf", "@basic-io @file-system bpf"),
        ("AF_NETLINK AF_PACKET", "AF_PACKET"),
        ("CAP_NET_RAW CAP_BPF", "CAP_NET_RAW"),
    ] {
        assert!(unit.contains(leaves));
        std::fs::write(&path, unit.replace(leaves, too_little)).unwrap();
        let arguments = [path.to_str().unwrap(), dir];
        let (exit, said) = rig.fails_under(confined.to_str().unwrap(), &arguments, INSTANCE);
        assert_ne!(exit, Exit::Code(0), "{too_little}: {said}");
        assert!(!said.contains("unknown here"), "{too_little}: {said}");
        println!("{too_little}: {exit:?}, {said}");
    }
}

pub(super) const UNIT: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../packaging/anabranch.service"
);

#[test]
fn the_unit_is_exposed_at_most_by_three_of_ten() {
    const EXPOSURE_MAX: f64 = 3.0;
    let output = std::process::Command::new("systemd-analyze")
        .args(["security", "--no-pager", "--offline=true", UNIT])
        .output()
        .unwrap();
    let table = String::from_utf8_lossy(&output.stdout);
    let exposure = table
        .lines()
        .find_map(|line| line.split_once("Overall exposure level for "))
        .and_then(|(_, rest)| rest.split_whitespace().nth(1)?.parse::<f64>().ok());
    println!("{table}");
    assert!(exposure.is_some_and(|exposure| exposure <= EXPOSURE_MAX));
}

#[test]
fn a_pin_folder_that_somebody_else_made_is_refused_by_name() {
    let rig = Rig::new();
    std::fs::create_dir(&rig.pins).unwrap();
    std::os::unix::fs::chown(&rig.pins, Some(65534), Some(65534)).unwrap();
    let (exit, said) = rig.fails(INSTANCE);
    assert_eq!(exit, Exit::Code(1), "{said}");
    let wanted = format!("{} was made by user 65534", rig.pins.display());
    assert!(said.contains(&wanted), "{said}");
    std::fs::remove_dir(&rig.pins).unwrap();
    let daemon = rig.start();
    for folder in [rig.pins.to_path_buf(), rig.pins.join(INSTANCE)] {
        let mode = std::fs::metadata(&folder).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700, "{folder:?}");
    }
    assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
}

#[test]
fn pins_that_will_vanish_with_their_mount_are_told_of() {
    let rig = Rig::new();
    let log = rig.dir.path().join("log");
    let own_mount = format!(
        "mount -t bpf bpf /sys/fs/bpf && exec \"$@\" 2>{}",
        log.display()
    );
    let daemon = rig.start_under("unshare", &["--mount", "sh", "-c", &own_mount, "sh"]);
    let said = std::fs::read_to_string(&log).unwrap();
    assert!(said.contains("vanishes with it"), "{said}");
    assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
}
