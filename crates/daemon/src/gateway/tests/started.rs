//! How it starts and stops.

use anabranch_policy::abi::ROUTES_FOREIGN;

use super::*;
use crate::observe::rules;

#[tokio::test(start_paused = true)]
async fn at_the_start_devices_are_attached_when_links_and_choice_are_known() {
    let rig = Rig::start().await;
    let told = rig.told();
    let place = |wanted: &Told| {
        told.iter()
            .position(|told| told == wanted)
            .unwrap_or_else(|| panic!("{wanted:?} in {told:?}"))
    };
    assert!(place(&Told::Settings) < place(&Told::Link(0, Some("203.0.113.2".into()))));
    assert!(place(&Told::Link(1, Some("198.51.100.7".into()))) < place(&Told::Choice(0b11)));
    assert!(place(&Told::Choice(0b11)) < place(&Told::Attach(FIBER)));
    let status = rig.status().await;
    assert!(
        status
            .links
            .iter()
            .all(|link| link.state == Shown::Up && link.usable),
        "{status:?}"
    );
    assert_eq!((status.flows.live, status.flows.limit), (8, 1000));
}

/// Until it has seen the host, its programs ask the kernel as those before did: a rule of others holds meanwhile.
#[tokio::test(start_paused = true)]
async fn a_takeover_forgets_no_routing_rule_of_others() {
    let world = world();
    let rule = rules::tests::rule(1000, 77, vec![]);
    world.lock().unwrap().host.rules = vec![rule];
    let rig = Rig::start_in(CONFIG, world, true).await;
    let told = rig.told();
    let is_settings = |told: &&Told| matches!(told, Told::Settings | Told::RoutesKernel(_));
    let told: Vec<_> = told.iter().filter(is_settings).collect();
    assert_eq!(told, [&Told::RoutesKernel(ROUTES_FOREIGN)]);
}

#[tokio::test(start_paused = true)]
async fn a_stop_detaches_the_data_path_before_the_host_is_put_back() {
    let world = world();
    let (is_ready, served) = serve_once(&world, false).await;
    served.unwrap();
    assert!(is_ready);
    let told = &world.lock().unwrap().told;
    assert!(told.ends_with(&[Told::Closed, Told::Restored]), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn a_stop_waits_for_flows_that_are_being_ended() {
    let world = world();
    let mut daemon = daemon(&world, &Arc::default(), false);
    daemon.start().await.unwrap();
    let held = hold_flows(&world).await;
    world.lock().unwrap().told.clear();
    let (reply, _) = oneshot::channel();
    let order = Request::Link {
        name: "fiber".into(),
        action: LinkAction::Down,
        force: false,
    };
    daemon.answer((order, reply)).await.unwrap();
    let stopped = tokio::spawn(daemon.close());
    tokio::task::yield_now().await;
    assert_eq!(world.lock().unwrap().told, [Told::Choice(0b10)]);
    drop(held);
    stopped.await.unwrap().unwrap();
    assert_eq!(
        world.lock().unwrap().told[1..],
        [Told::Ended(0), Told::Closed, Told::Restored]
    );
}

#[tokio::test(start_paused = true)]
async fn a_start_that_fails_is_undone_unless_flows_of_an_earlier_run_would_end() {
    for adopted in [false, true] {
        let world = world();
        world.lock().unwrap().stubborn = vec![LAN, FIBER, LTE];
        let (is_ready, served) = serve_once(&world, adopted).await;
        let error = served.unwrap_err().to_string();
        assert_eq!(
            (is_ready, error.as_str()),
            (
                false,
                "nothing could be set up: \
                 LAN device lan0: its packets are not forwarded: no device has index 2; tried again every second; \
                 link fiber, device wan0: its packets are not forwarded: no device has index 3; tried again every second; \
                 link lte, device ppp0: its packets are not forwarded: no device has index 4; tried again every second"
            )
        );
        let told = &world.lock().unwrap().told;
        let is_undone = told.ends_with(&[Told::Closed, Told::Restored]);
        assert_eq!(is_undone, !adopted, "{told:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_start_goes_on_without_a_device_that_refuses_and_has_it_later() {
    for adopted in [false, true] {
        let world = world();
        world.lock().unwrap().stubborn = vec![FIBER];
        let rig = Rig::start_in(CONFIG, world, adopted).await;
        let told = rig.told();
        assert!(told.contains(&Told::Attach(LAN)), "{told:?}");
        assert!(!told.contains(&Told::Attach(FIBER)), "{told:?}");
        rig.world.lock().unwrap().stubborn.clear();
        rig.pass(Duration::from_secs(2)).await;
        assert_eq!(rig.told(), [Told::Attach(FIBER)]);
    }
}

/// Programs may stand there though their flows could not be adopted.
#[tokio::test(start_paused = true)]
async fn a_daemon_lets_go_of_devices_that_left_the_configuration() {
    for adopting in [false, true] {
        let rig = Rig::start_adopting(adopting).await;
        assert!(rig.told().contains(&Told::Detach(77)), "{adopting}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_device_of_an_earlier_run_that_cannot_be_let_go_of_is_tried_again() {
    const EARLIER: u32 = 77;
    let world = world();
    world.lock().unwrap().stubborn = vec![EARLIER];
    world.lock().unwrap().claims = vec!["eth7".into()];
    let rig = Rig::start_in(CONFIG, world, true).await;
    assert!(!rig.told().contains(&Told::Detach(EARLIER)));
    let claimed = || rig.world.lock().unwrap().claims.contains(&"eth7".into());
    assert!(claimed(), "its packets still meet our program");
    let troubles = rig.status().await.troubles;
    assert_eq!(
        troubles,
        [
            "device number 77 of an earlier run: its packets still meet the program: no device has index 77; tried again every second"
        ]
    );
    rig.world.lock().unwrap().stubborn.clear();
    rig.pass(Duration::from_secs(2)).await;
    assert_eq!(rig.told(), [Told::Detach(EARLIER)]);
    assert!(!claimed());
    assert_eq!(rig.status().await.troubles, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn what_is_there_is_used_and_the_rest_joins_when_it_comes() {
    let world = world();
    let complete = std::mem::take(&mut world.lock().unwrap().host);
    let rig = Rig::start_in(CONFIG, world, false).await;
    assert!(rig.told().contains(&Told::Choice(0)), "nothing is there");
    rig.change_host(|host| {
        let mut now = complete.clone();
        now.devices.remove("ppp0");
        *host = now;
    })
    .await;
    rig.pass(Duration::from_secs(2)).await;
    let told = rig.told();
    assert!(
        told.contains(&Told::Choice(0b01)) && told.contains(&Told::Attach(LAN)),
        "{told:?}"
    );
    assert_eq!(rig.status().await.links[1].state, Shown::Absent);
    rig.change_host(|host| *host = complete.clone()).await;
    assert!(rig.told().contains(&Told::Choice(0b11)));
}
