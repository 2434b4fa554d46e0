//! What goes wrong beside the links: it is told where one looks, and the rest goes on.

use anabranch_api::LinkState;
use anabranch_core::Family;
use anabranch_testbed::netns::Exit;
use nix::sys::signal::Signal;

use crate::common::Limited;
use crate::rig::*;

#[test]
fn a_gateway_whose_lan_device_is_refused_says_so_until_that_is_mended() {
    let rig = Rig::new();
    let tc = |line: &str| rig.gateway.tc(line).unwrap();
    tc("qdisc add dev lan0 clsact");
    // A program of classic BPF, which matches nothing.
    let foreign = "filter add dev lan0 ingress protocol all pref 171 handle 0xab bpf bytecode";
    let words = foreign.split(' ').chain(["1,6 0 0 0"]);
    rig.gateway.exec("tc", &words.collect::<Vec<_>>()).unwrap();
    let daemon = rig.start_under("env", &["ANABRANCH_ATTACH=clsact"]);
    until("it is in the status", || {
        !daemon.status().troubles.is_empty()
    });
    let troubles = daemon.status().troubles;
    let wanted = "LAN device lan0: its packets are not forwarded: device lan0 has a filter";
    assert!(troubles[0].starts_with(wanted), "{troubles:?}");
    assert!(troubles[0].contains("give that one another priority"));
    assert_eq!(troubles.len(), 1, "{troubles:?}");
    assert_eq!(
        daemon.tells_manager(),
        "STATUS=forwarding over 2 of 2 links"
    );
    let told = daemon.tells_manager();
    let wanted = format!("STATUS=forwarding over 2 of 2 links; {}", troubles[0]);
    assert!(told.starts_with(&wanted), "{told}");

    tc("filter del dev lan0 ingress pref 171");
    until("it is gone", || daemon.status().troubles.is_empty());
    let told = daemon.tells_manager();
    assert!(!told.contains("LAN device"), "{told}");
    until("connections are balanced", || {
        echo(&mut rig.connect().unwrap()).unwrap();
        daemon.link("fiber").flows.opened > 0
    });
    assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
}

#[test]
fn without_room_for_its_files_a_gateway_starts_alone_and_writes_them_later() {
    let rig = Rig::new();
    let before = rig.fingerprint();
    // Beside the configuration, and the service manager's socket.
    for (limit, room) in [("size=4k", "size=1m"), ("nr_inodes=3", "nr_inodes=99")] {
        let run = Limited::new(rig.dir.path(), limit);
        rig.write_config(CONFIG);
        let daemon = rig.start();
        echo(&mut rig.connect().unwrap()).unwrap();
        for instance in [INSTANCE, "other"] {
            let said = rig.refused_as(instance);
            let process = match limit {
                "nr_inodes=3" => daemon.child.id().to_string(),
                _ => "(unknown: there was no room to write its id)".to_owned(),
            };
            assert!(said.contains(&format!("process {process}")), "{said}");
        }
        run.set(room);
        until("everything is written", || {
            rig.paths().socket().exists()
                && rig.paths().state_of("gateway").exists()
                && ["lan0", "wan0", "wan1"].iter().all(|name| rig.claims(name))
        });
        until("nothing is wrong", || daemon.status().troubles.is_empty());
        let said = rig.refused_as("other");
        assert!(said.contains("instance \"test\" has it already"), "{said}");
        assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
    }
    assert_eq!(rig.fingerprint(), before);
}

anabranch_testbed::in_both_families!(Family: every_line_about_a_lost_link_says_what_it_is_about);

fn every_line_about_a_lost_link_says_what_it_is_about(family: Family) {
    const ROUNDS: usize = 3;
    let rig = Rig::of(family);
    let ([own, gateway], [length, _]) = (rig.plan().links[0], rig.plan().lengths);
    let unheld =
        "availability = { hold_down = \"10ms\", hold_down_max = \"10ms\", grace = \"100ms\" }";
    rig.write_config(&format!("{}{unheld}\n", rig.config_text()));
    let daemon = rig.start_logging();
    let until_state = |name: &str, state| {
        until("the link follows", || daemon.link(name).state == state);
    };
    let far = |state: &str| rig.internet.ip(&format!("link set wan0-far {state}"));
    let near = |line: &str| rig.gateway.ip(line).unwrap();
    let route = format!("route replace default via {gateway} dev wan0 metric 100");
    for _ in 0..ROUNDS {
        near("link del wan1");
        until_state("lte", LinkState::Absent);
        far("down").unwrap();
        until_state("fiber", LinkState::Absent);
        rig.link("wan1");
        until_state("lte", LinkState::Up);
        far("up").unwrap();
        until_state("fiber", LinkState::Up);
        near(&format!("addr del {own}/{length} dev wan0"));
        until_state("fiber", LinkState::Absent);
        address(&rig.gateway, "wan0", own, length);
        near(&route);
        until_state("fiber", LinkState::Up);
        near("link set wan0 down");
        until_state("fiber", LinkState::Absent);
        near("link set wan0 up");
        near(&route);
        until_state("fiber", LinkState::Up);
    }
    assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
    let log = std::fs::read_to_string(rig.log()).unwrap();
    let said = log.lines().filter_map(|line| {
        let (_, said) = line.split_once(" WARN ").or(line.split_once(" ERROR "))?;
        Some(said.split_once(": ")?.1)
    });
    let said: Vec<&str> = said.collect();
    assert!(said.len() >= 4 * ROUNDS, "{log}");
    for line in said {
        let about = [
            "link fiber ",
            "link lte ",
            "link fiber,",
            "link lte,",
            "host: ",
        ];
        assert!(about.iter().any(|begin| line.starts_with(begin)), "{line}");
        assert!(!line.contains("Invalid argument"), "{line}");
    }
}

#[test]
fn too_few_descriptors_are_called_that() {
    let rig = Rig::new();
    let few = "ulimit -n 40; exec \"$@\"";
    let (exit, said) = rig.fails_under("sh", &["-c", few, "sh"], INSTANCE);
    assert_eq!(exit, Exit::Code(1), "{said}");
    assert!(said.contains("out of file descriptors"), "{said}");
    assert!(!said.contains("Linux 6.1"), "{said}");
    let soft = "ulimit -S -n 40; exec \"$@\"";
    let daemon = rig.start_under("sh", &["-c", soft, "sh"]);
    all_up(&daemon);
    assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
}

#[test]
fn a_reload_that_is_ordered_during_the_start_ends_nothing() {
    let rig = Rig::new();
    // What it waits for to begin with, since nobody writes there.
    let config = rig.config();
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::remove_file(&config).unwrap();
    nix::unistd::mkfifo(&config, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let mut daemon = rig.spawn();
    let mut pipe = std::fs::OpenOptions::new()
        .write(true)
        .open(&config)
        .unwrap();
    for _ in 0..3 {
        daemon.signal(Signal::SIGHUP);
    }
    std::io::Write::write_all(&mut pipe, text.as_bytes()).unwrap();
    std::fs::remove_file(&config).unwrap();
    rig.write_config(&text);
    drop(pipe);
    until("it runs", || rig.paths().socket().exists());
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.wait(DEADLINE).unwrap(), Some(Exit::Code(0)));
}

#[test]
fn flows_of_a_dead_link_end_where_time_has_another_beginning() {
    let rig = Rig::new();
    let uptime = std::fs::read_to_string("/proc/uptime").unwrap();
    let uptime: f64 = uptime.split_whitespace().next().unwrap().parse().unwrap();
    let earlier = format!("--monotonic=-{}", uptime as u64 / 2);
    let mut daemon = rig.start_under("unshare", &["--time", &earlier, "--fork"]);
    all_up(&daemon);
    let held = Held::new(&rig, &daemon);
    rig.gateway.ip("link set wan0 down").unwrap();
    held.those_end(daemon.link("fiber").slot);
    // What was started waits for it.
    let own = nix::unistd::Pid::from_raw(daemon.instance_status().pid.cast_signed());
    nix::sys::signal::kill(own, Signal::SIGTERM).unwrap();
    assert_eq!(daemon.child.wait(DEADLINE).unwrap(), Some(Exit::Code(0)));
}
