use std::time::Duration;

use super::*;
use crate::{Access, Control, Demand, Group, Network, World};

const LINK: &str = "link.a = { rate = \"20mbit\" }\n";

fn groups(text: &str) -> Vec<Group> {
    match read(text).load {
        Load::Groups(groups) => groups,
        other => panic!("{other:?}"),
    }
}

#[test]
fn three_lines_are_two_round_trips() {
    let all = groups(
        r#"
        link.a = { rate = "20mbit" }
        group.near = { users = 4, delay = "5ms" }
        group.far = { users = 2, delay = "25ms" }
        "#,
    );
    let told = all.iter().map(|group| {
        let Some(Access { down, up }) = &group.access else {
            panic!("{group:?}")
        };
        assert_eq!(down, up);
        assert_eq!((down.rate_bps, down.loss), (1_000_000_000, Loss::None));
        let Demand::Pages(workload) = &group.demand else {
            panic!("{group:?}")
        };
        assert_eq!((workload.users, workload.tabs_per_user), (group.users, 5));
        (group.name.as_str(), group.users, down.delay.as_millis())
    });
    // In the order of the file.
    assert!(told.eq([("near", 4, 5), ("far", 2, 25)]));
    assert_eq!(read(LINK).load.users(), 8);
}

#[test]
fn a_group_has_its_own_tcp_where_it_says_so_and_the_files_otherwise() {
    let text = r#"
        link.a = { rate = "20mbit" }
        tcp = { hystart = false, mss = "1000B", min_rto = "1s" }
        group.plain = { users = 1 }
        [group.reno]
        users = 3
        tcp = { control = "reno", min_rto = "300ms" }
        [group.jumbo]
        users = 1
        tcp = { mss = "8948B" }
        "#;
    let all = groups(text);
    let [plain, reno, jumbo] = &all[..] else {
        panic!("{all:?}")
    };
    assert_eq!(plain.tcp, read(text).tcp);
    assert_eq!(plain.access, None);
    let told = |group: &Group| {
        let tcp = &group.tcp;
        (
            tcp.control,
            tcp.hystart,
            tcp.mss_bytes,
            tcp.min_rto.as_millis(),
        )
    };
    assert_eq!(told(plain), (Control::Cubic, false, 1000, 1000));
    assert_eq!(told(reno), (Control::Reno, false, 1000, 300));
    assert_eq!(told(jumbo), (Control::Cubic, false, 8948, 1000));
    // The least buffer holds ten of the largest packets.
    let slow = text.replace("20mbit", "1kbit");
    assert_eq!(
        site(&read(&slow)).links[0].down.buffer,
        Buffer::Bytes(90_000)
    );
}

#[test]
fn a_group_asks_for_what_its_workload_says_or_the_files_does() {
    let all = groups(
        r#"
        link.a = { rate = "20mbit" }
        workload = { kind = "continuous", downloads = 2, size = "1MB" }
        group.bulk = { users = 2 }
        [group.web]
        users = 30
        workload = { kind = "mix", class.page = { per_user = "0.1/s", size = "20kB" } }
        "#,
    );
    let users = |group: &Group| match &group.demand {
        Demand::Pages(workload) => (workload.users, workload.tabs_per_user),
        Demand::Arrivals(plan) => (plan.pattern.users(), 0),
    };
    let told: Vec<_> = all.iter().map(users).collect();
    assert_eq!(told, [(2, 2), (30, 0)]);
}

#[test]
fn users_of_a_trunk_are_clients_with_its_access_line_where_they_say_nothing_else() {
    let text = r#"
        trunk = { sublinks = 2, rate = "20mbit", access = { rate = "10mbit", delay = "3ms", buffer = "64kB" } }
        group.lan = { users = 3 }
        group.dsl = { users = 2, down = "5mbit", up = { rate = "1mbit", loss = "1%" }, delay = "20ms" }
        "#;
    let all = groups(text);
    let told: Vec<_> = all
        .iter()
        .map(|group| {
            let Access { down, up } = group.access.as_ref().expect("a client's line");
            assert_eq!(down.buffer, Buffer::Bytes(64_000));
            (
                down.rate_bps,
                up.rate_bps,
                down.delay,
                up.loss != Loss::None,
            )
        })
        .collect();
    let ms = Duration::from_millis;
    assert_eq!(
        told,
        [
            (10_000_000, 10_000_000, ms(3), false),
            (5_000_000, 1_000_000, ms(20), true)
        ]
    );
    let Network::Trunk(trunk) = read(text).network else {
        panic!("a trunk is no site")
    };
    assert_eq!(trunk.clients, 5);
}

#[test]
fn groups_that_contradict_the_file_or_themselves_are_refused_where_they_do() {
    for (group, message) in [
        (
            "group.a = { delay = \"1ms\" }",
            "house.toml:2: group.a = { delay = \"1ms\" }: missing key users",
        ),
        (
            "group.a = { users = 0 }",
            "house.toml:2: group.a.users = 0: 1 to 1000000 users are allowed",
        ),
        (
            "group.a = { users = 1, speed = 3 }",
            "house.toml:2: group.a.speed = 3: unknown key; allowed: users, rate, down, up, delay, loss, buffer, queue, tcp, workload",
        ),
        (
            "group.a = { users = 1, rate = 9, down = 9, up = 9 }",
            "house.toml:2: group.a.rate = 9: down and up have rates of their own; leave one of the three out",
        ),
        (
            "group.a = { users = 1, delay = \"11s\" }",
            "house.toml:2: group.a.delay = \"11s\": a delay is at most 10 s",
        ),
        (
            "workload = { kind = \"pages\", users = 3 }\ngroup.a = { users = 1 }",
            "house.toml:2: workload.users = 3: groups say how many users they have; leave it out",
        ),
        (
            "[group.a]\nusers = 1\nworkload = { kind = \"pages\", users = 3 }",
            "house.toml:4: group.a.workload.users = 3: groups say how many users they have; leave it out",
        ),
        (
            "workload = { kind = \"pages\" }\ngroup.a = { users = 1, workload.kind = \"pages\" }",
            "house.toml:2: workload = { kind = \"pages\" }: every group has a workload of its own; leave this one out",
        ),
        (
            "group.a = { users = 1, workload = { kind = \"rows\", rows = [{ at = \"1s\", size = \"1kB\", user = 1 }] } }",
            "house.toml:2: group.a.workload.rows[0].user = 1: 0 to 0 are allowed",
        ),
        (
            "group.a = { users = 1, tcp.min_rto = \"0s\" }",
            "house.toml:2: group.a.tcp.min_rto = \"0s\": allowed: 1 ms to 60 s",
        ),
    ] {
        assert_eq!(error(&format!("{LINK}{group}")), message);
    }
    for tcp in ["control = \"fast\"", "speed = 3"] {
        let message = error(&format!("{LINK}[group.a]\nusers = 1\ntcp = {{ {tcp} }}"));
        assert!(
            message.starts_with("house.toml:4: group.a.tcp"),
            "{message}"
        );
    }
    let clients =
        "trunk = { sublinks = 2, rate = \"20mbit\", clients = 3 }\ngroup.a = { users = 1 }";
    assert!(
        error(clients)
            .ends_with("trunk.clients = 3: every user of a group is a client; leave clients out")
    );
}

#[test]
fn a_groups_draws_are_its_own_whatever_groups_there_are_beside_it() {
    let seeds = |text: &str| -> Vec<(String, u64)> {
        let file = parse(&format!("{LINK}{text}")).unwrap();
        let Load::Groups(groups) = file.runs()[0].load() else {
            panic!("no groups")
        };
        let seed = |group: Group| match group.demand {
            Demand::Pages(workload) => (group.name, workload.seed),
            Demand::Arrivals(plan) => (group.name, plan.seed),
        };
        groups.into_iter().map(seed).collect()
    };
    let two = seeds("group.b = { users = 1 }\ngroup.a = { users = 1 }");
    assert_ne!(two[0].1, two[1].1);
    assert_eq!(seeds("group.a = { users = 9 }")[0], two[1]);
}

#[test]
fn the_laboratory_has_no_groups() {
    let file = parse(&format!("{LINK}group.a = {{ users = 1 }}")).unwrap();
    assert!(file.fits(World::Sim).is_ok());
    let message = file.fits(World::Lab).unwrap_err().to_string();
    assert!(
        message.ends_with("leave group out, or run it in the simulator"),
        "{message}"
    );
}
