//! What the data path is told when links and the host change.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_dead_link_leaves_the_choice_before_its_flows_end_and_returns_when_it_answers() {
    let rig = Rig::start().await;
    rig.told();
    rig.world.lock().unwrap().dead = vec!["wan0"];
    rig.pass(Duration::from_secs(1)).await;
    assert_eq!(rig.told(), [Told::Choice(0b10), Told::Ended(0)]);
    assert_eq!(
        rig.world.lock().unwrap().ways.first_usable[Family::V4],
        Some(LinkId(1)),
        "the fallback moves too"
    );
    assert_eq!(
        rig.world.lock().unwrap().abandoned,
        [("203.0.113.2".to_owned(), Some(LinkId(1)))],
        "the host's sockets are told when there is another way"
    );
    rig.world.lock().unwrap().dead.clear();
    rig.pass(Duration::from_secs(3)).await;
    assert_eq!(rig.told(), [Told::Choice(0b11)]);
}

#[tokio::test(start_paused = true)]
async fn flows_of_an_address_that_was_renewed_end_once_the_new_one_is_known() {
    let rig = Rig::start().await;
    rig.told();
    rig.change_host(|host| {
        host.devices
            .insert("wan0".into(), device(FIBER, &["203.0.113.99/24"]));
    })
    .await;
    assert_eq!(
        rig.told(),
        [Told::Link(0, Some("203.0.113.99".into())), Told::Ended(0)]
    );
    rig.change_host(|host| host.routes[0] = route("0.0.0.0/0", FIBER, Some("203.0.113.8"), 1))
        .await;
    assert_eq!(
        rig.told(),
        [Told::Link(0, Some("203.0.113.99".into()))],
        "another gateway ends no flow"
    );
    let first = Some(LinkId(0));
    assert_eq!(
        rig.world.lock().unwrap().abandoned,
        [("203.0.113.2".to_owned(), first)]
    );
}

#[tokio::test(start_paused = true)]
async fn flows_of_a_former_address_end_also_if_the_link_was_away_in_between() {
    let rig = Rig::start().await;
    rig.told();
    rig.change_host(|host| drop(host.devices.insert("wan0".into(), device(FIBER, &[]))))
        .await;
    assert_eq!(rig.told(), [Told::Choice(0b10)], "no new flows");
    rig.change_host(|host| {
        drop(
            host.devices
                .insert("wan0".into(), device(FIBER, &["203.0.113.99/24"])),
        )
    })
    .await;
    let told = rig.told();
    assert_eq!(told[0], Told::Link(0, Some("203.0.113.99".into())));
    // Another thread walks the flows.
    for one in [Told::Ended(0), Told::Choice(0b11)] {
        assert!(told[1..].contains(&one), "{told:?}");
    }
    assert_eq!(told.len(), 3, "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn a_default_route_or_address_that_comes_back_within_seconds_ends_no_flow() {
    let rig = Rig::start().await;
    rig.told();
    for _ in 0..4 {
        let before = rig.world.lock().unwrap().host.clone();
        rig.change_host(|host| drop(host.routes.remove(0))).await;
        rig.pass(Duration::from_secs(3)).await;
        assert_eq!(rig.told(), [], "used as before");
        rig.change_host(|host| drop(host.devices.insert("wan0".into(), device(FIBER, &[]))))
            .await;
        rig.pass(Duration::from_secs(1)).await;
        assert_eq!(rig.told(), [Told::Choice(0b10)]);
        let why = rig.status().await.links[0].why.clone();
        assert!(why.contains("its flows wait"), "{why}");
        rig.change_host(|host| *host = before).await;
        assert_eq!(
            rig.told(),
            [Told::Choice(0b11)],
            "at once, without a hold-down"
        );
        assert_eq!(rig.status().await.links[0].state, Shown::Up);
    }
}

#[tokio::test(start_paused = true)]
async fn a_default_route_that_stays_away_ends_the_flows() {
    let rig = Rig::start().await;
    rig.told();
    rig.change_host(|host| drop(host.routes.remove(0))).await;
    rig.pass(Duration::from_secs(9)).await;
    assert_eq!(rig.told(), []);
    rig.pass(Duration::from_secs(3)).await;
    let lost = [Told::Choice(0b10), Told::Ended(0), Told::Link(0, None)];
    assert_eq!(rig.told(), lost);
    assert_eq!(rig.status().await.links[0].state, Shown::Absent);
}

#[tokio::test(start_paused = true)]
async fn flows_keep_a_former_address_for_as_long_as_the_device_has_it() {
    let rig = Rig::start().await;
    rig.told();
    let with = |addresses: &'static [&'static str]| {
        move |host: &mut Snapshot| {
            host.devices.insert("wan0".into(), device(FIBER, addresses));
        }
    };
    rig.change_host(with(&["203.0.113.99/24", "203.0.113.2/24"]))
        .await;
    let renumbered = [Told::Link(0, Some("203.0.113.99".into()))];
    assert_eq!(rig.told(), renumbered);
    let switched = rig.world.lock().unwrap().now;
    rig.pass(Duration::from_secs(60)).await;
    rig.world.lock().unwrap().now += Duration::from_secs(60);
    rig.change_host(with(&["203.0.113.99/24"])).await;
    assert_eq!(rig.told(), [Told::Ended(0)]);
    let before = rig.world.lock().unwrap().ended_before.clone();
    assert_eq!(before, [switched], "later ones have the new address");
}

#[tokio::test(start_paused = true)]
async fn adopted_flows_of_a_former_address_end_without_those_opened_after_them() {
    const ADOPTED: Duration = Duration::from_secs(1000);
    let millisecond = Duration::from_millis(1);
    for (addresses, external, ends) in [
        (&["203.0.113.2/24"][..], "203.0.113.7:4000", true),
        (
            &["203.0.113.2/24", "203.0.113.7/24"],
            "203.0.113.7:4000",
            false,
        ),
        (&["203.0.113.2/24"], "203.0.113.2:4000", false),
    ] {
        let world = world();
        {
            let mut world = world.lock().unwrap();
            world.now = ADOPTED;
            let aged = |external, age_ms| FlowRow {
                age_ms,
                ..routed::flow(0, "198.18.0.5:4000", external)
            };
            world.flows = vec![
                aged(external, 90_000),
                aged(external, 60_000),
                aged("203.0.113.2:4001", 30_000),
            ];
            world
                .host
                .devices
                .insert("wan0".into(), device(FIBER, addresses));
        }
        let rig = Rig::start_in(CONFIG, world, true).await;
        let switched = ADOPTED - Duration::from_secs(60) + millisecond;
        let expected = ends.then_some(switched);
        let ended = || rig.world.lock().unwrap().ended_before.clone();
        assert!(
            ended().into_iter().eq(expected),
            "{addresses:?}: {:?}",
            ended()
        );
        if addresses.len() > 1 {
            rig.change_host(|host| {
                let wan = device(FIBER, &["203.0.113.2/24"]);
                host.devices.insert("wan0".into(), wan);
            })
            .await;
            assert_eq!(ended(), [switched], "once its address leaves the device");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_device_that_is_deleted_and_made_anew_keeps_its_flows_from_the_others() {
    let rig = Rig::start().await;
    rig.told();
    rig.change_host(|host| drop(host.devices.remove("ppp0")))
        .await;
    assert_eq!(
        rig.told(),
        [
            Told::Choice(0b01),
            Told::Ended(1),
            Told::Link(1, None),
            Told::Detach(LTE)
        ]
    );
    assert_eq!(rig.status().await.links[1].state, Shown::Absent);
    rig.world.lock().unwrap().stubborn = vec![9];
    rig.change_host(|host| {
        host.devices
            .insert("ppp0".into(), device(9, &["198.51.100.7/24"]));
        host.routes[1] = route("0.0.0.0/0", 9, Some("198.51.100.1"), 200);
    })
    .await;
    assert_eq!(rig.told(), [Told::Link(1, Some("198.51.100.7".into()))]);
    rig.world.lock().unwrap().stubborn.clear();
    rig.pass(Duration::from_secs(3)).await;
    let told = rig.told();
    assert!(told.contains(&Told::Attach(9)), "tried again: {told:?}");
    assert!(
        told.contains(&Told::Choice(0b11)),
        "used once it has answered: {told:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_device_that_cannot_be_let_go_of_is_tried_again() {
    let rig = Rig::start().await;
    rig.world.lock().unwrap().stubborn = vec![LTE];
    let complete = rig.world.lock().unwrap().host.clone();
    rig.change_host(|host| drop(host.devices.remove("ppp0")))
        .await;
    rig.told();
    rig.world.lock().unwrap().stubborn.clear();
    rig.pass(Duration::from_secs(2)).await;
    assert_eq!(rig.told(), [Told::Detach(LTE)]);
    rig.change_host(|host| *host = complete).await;
    assert!(rig.told().contains(&Told::Attach(LTE)));
}

#[tokio::test(start_paused = true)]
async fn the_data_path_learns_when_the_kernels_own_nat_can_be_used() {
    let rig = Rig::start().await;
    rig.told();
    rig.world.lock().unwrap().fallback_mark = 1;
    rig.pass(Duration::from_secs(LOOK_TICKS)).await;
    assert_eq!(rig.told(), [Told::Settings]);
}

#[tokio::test(start_paused = true)]
async fn a_link_that_comes_back_while_its_flows_are_being_ended_is_used_after_them() {
    let rig = Rig::start().await;
    let held = hold_flows(&rig.world).await;
    rig.told();
    let ordered = Duration::from_secs(1);
    rig.world.lock().unwrap().now = ordered;
    rig.world.lock().unwrap().host.devices.remove("ppp0");
    rig.changed.notify_one();
    rig.pass_meanwhile(Duration::from_millis(500)).await;
    assert_eq!(rig.told(), [Told::Choice(0b01)]);
    assert_eq!(rig.status().await.links[1].state, Shown::Absent);

    rig.world.lock().unwrap().host = host();
    rig.world.lock().unwrap().now = ordered * 2;
    rig.changed.notify_one();
    rig.pass_meanwhile(Duration::from_secs(3)).await;
    assert_eq!(rig.told(), [], "it keeps its address, and is not used");
    drop(held);
    rig.pass(Duration::from_secs(3)).await;
    assert_eq!(rig.told(), [Told::Ended(1), Told::Choice(0b11)]);
    let begun = rig.world.lock().unwrap().ended_before.clone();
    assert_eq!(begun, [ordered], "what was opened meanwhile stays");
}

#[tokio::test(start_paused = true)]
async fn udp_flows_leave_a_metered_link_when_another_is_back() {
    let metered = CONFIG.replace("device = \"ppp0\"", "device = \"ppp0\", metered = true");
    let rig = Rig::start_in(&metered, world(), false).await;
    rig.pass(Duration::from_secs(10)).await;
    rig.world.lock().unwrap().dead = vec!["wan0"];
    rig.pass(Duration::from_secs(2)).await;
    rig.told();
    rig.world.lock().unwrap().dead.clear();
    rig.pass(Duration::from_secs(8)).await;
    let second = Duration::from_secs(1);
    assert_eq!(
        rig.told(),
        [
            Told::Choice(0b01),
            Told::Moved(1, second),
            Told::Moved(1, second),
            Told::Moved(1, second),
            Told::Moved(1, Duration::ZERO)
        ]
    );
}

/// What the host itself has, by the port that it is with.
fn conversation(port: u16, idle: Duration) -> Conversation {
    Conversation {
        local: "198.51.100.2:40000".parse().unwrap(),
        remote: SocketAddr::new([192, 0, 2, 1].into(), port),
        idle,
        begun: None,
    }
}

#[tokio::test(start_paused = true)]
async fn the_hosts_own_udp_leaves_a_metered_link_in_its_pauses_as_its_class_does() {
    const LONG: Duration = Duration::from_secs(60);
    let metered = CONFIG.replace("device = \"ppp0\"", "device = \"ppp0\", metered = true");
    let vpn = r#"
[[rule]]
name = "vpn"
from = "self"
protocol = "udp"
ports = 51820
links = ["lte"]
"#;
    let rig = Rig::start_in(&format!("{metered}{vpn}"), world(), false).await;
    let [asked, busy, tunnel] = [(53, LONG), (443, Duration::ZERO), (51820, LONG)]
        .map(|(port, idle)| conversation(port, idle));
    let left = || rig.world.lock().unwrap().conversations.clone();
    let looked = || rig.world.lock().unwrap().looked;
    rig.pass(Duration::from_secs(10)).await;
    rig.world.lock().unwrap().dead = vec!["wan0"];
    let before = looked();
    rig.world.lock().unwrap().conversations = vec![asked, busy, tunnel];
    rig.pass(LONG).await;
    assert_eq!(looked(), before, "nothing better is there");

    rig.world.lock().unwrap().dead.clear();
    rig.pass(LONG).await;
    assert_eq!(
        left(),
        [busy, tunnel],
        "the tunnel's class has that link alone"
    );
    rig.world.lock().unwrap().dead = vec!["wan0"];
    rig.pass(Duration::from_secs(2)).await;
    let before = looked();
    rig.pass(LONG).await;
    assert_eq!(looked(), before, "nothing better is there again");

    rig.world.lock().unwrap().dead.clear();
    rig.world.lock().unwrap().conversations = vec![conversation(443, LONG), tunnel];
    rig.pass(LONG).await;
    assert_eq!(left(), [tunnel], "it paused");
    let done = looked();
    rig.pass(LONG).await;
    assert_eq!(looked(), done, "nothing is left to look for");
}

#[tokio::test(start_paused = true)]
async fn probes_that_never_leave_the_host_take_no_link_down() {
    let rig = Rig::start().await;
    {
        let mut world = rig.world.lock().unwrap();
        world.sends_nothing = true;
        world.dead = vec!["wan0", "ppp0"];
    }
    rig.pass(Duration::from_secs(60)).await;
    for link in rig.status().await.links {
        assert_ne!(link.state, Shown::Down, "{}: {}", link.name, link.why);
        assert_eq!((link.probe.lost, link.paths[0].falls_last_hour), (0, 0));
        assert!(link.probe.not_sent > 10, "{:?}", link.probe);
    }
    rig.world.lock().unwrap().sends_nothing = false;
    rig.pass(Duration::from_secs(10)).await;
    let links = rig.status().await.links;
    assert!(links.iter().all(|link| link.state == Shown::Down), "lost");
}

#[tokio::test(start_paused = true)]
async fn a_link_that_carries_less_than_its_device_has_that_mtu_until_it_carries_more() {
    let rig = Rig::start().await;
    let mtu = || rig.world.lock().unwrap().mtu;
    assert_eq!(mtu(), Some(1500));
    rig.world.lock().unwrap().carries.insert("wan0", 1440);
    rig.pass(Duration::from_secs(90)).await;
    assert_eq!(mtu(), Some(1440));
    let status = rig.status().await;
    let fiber = &status.links[0];
    assert_eq!(
        (fiber.mtu, fiber.paths[0].path_mtu),
        (Some(1440), Some(1440))
    );
    assert!(fiber.why.contains("at most 1440 bytes"), "{}", fiber.why);
    assert_eq!(status.links[1].paths[0].path_mtu, None);
    rig.told();
    rig.world.lock().unwrap().carries.clear();
    rig.pass(Duration::from_secs(90)).await;
    assert_eq!(mtu(), Some(1500));
    assert_eq!(
        rig.told(),
        [Told::Link(0, Some("203.0.113.2".into()))],
        "no flow ends"
    );
}

/// Whoever answers no longer packets may be who is asked, not the links.
#[tokio::test(start_paused = true)]
async fn of_a_length_that_all_links_show_it_is_said() {
    let rig = Rig::start().await;
    rig.world.lock().unwrap().carries = BTreeMap::from([("wan0", 1440), ("ppp0", 1440)]);
    rig.pass(Duration::from_secs(90)).await;
    for link in rig.status().await.links {
        assert!(link.why.contains("all links show the same"), "{}", link.why);
    }
}
