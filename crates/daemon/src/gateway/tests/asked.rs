//! What the daemon answers to questions.

use super::*;

#[tokio::test(start_paused = true)]
async fn while_flows_are_being_ended_the_other_link_is_watched_and_questions_are_answered() {
    let rig = Rig::start().await;
    let held = hold_flows(&rig.world).await;
    rig.told();
    let order = Request::Link {
        name: "fiber".into(),
        action: LinkAction::Down,
        force: false,
    };
    let (reply, mut response) = oneshot::channel();
    rig.order(Order::Answer((order, reply))).await;
    rig.pass_meanwhile(Duration::from_millis(100)).await;
    assert_eq!(rig.told(), [Told::Choice(0b10)]);
    rig.world.lock().unwrap().dead = vec!["ppp0"];
    rig.pass_meanwhile(Duration::from_secs(1)).await;
    assert_eq!(rig.status().await.links[1].state, Shown::Down);
    assert!(response.try_recv().is_err(), "the order is not carried out");
    drop(held);
    assert!(matches!(response.await.unwrap(), Response::Done));
    assert_eq!(rig.told(), [Told::Ended(0)]);
}

#[tokio::test(start_paused = true)]
async fn where_resolvers_are_filtered_the_gateway_is_asked_and_status_says_so() {
    let world = world();
    world.lock().unwrap().filtered = DEFAULT_TARGETS.concat();
    let rig = Rig::start_in(CONFIG, world, false).await;
    rig.pass(Duration::from_secs(10)).await;
    let fiber = rig.status().await.links.remove(0);
    let named: Vec<_> = fiber
        .probe
        .targets
        .iter()
        .map(|target| (target.target.as_str(), target.near))
        .collect();
    assert_eq!(named[6], ("icmp:203.0.113.1", true));
    // Traffic is proof already: both links carry some.
    assert_eq!((fiber.state, fiber.usable), (Shown::Up, true));
}

#[tokio::test(start_paused = true)]
async fn status_tells_what_lasts_and_where_and_nothing_of_what_has_passed() {
    let world = world();
    world.lock().unwrap().stubborn = vec![LAN];
    world.lock().unwrap().lacks = Some("nftables cannot be used".into());
    let rig = Rig::start_in(CONFIG, world, false).await;
    let refused = "LAN device lan0: its packets are not forwarded: no device has index 2; tried again every second";
    assert_eq!(
        rig.status().await.troubles,
        [refused, "nftables cannot be used"]
    );
    rig.world.lock().unwrap().stubborn.clear();
    rig.world.lock().unwrap().lacks = None;
    rig.pass(Duration::from_secs(2)).await;
    assert_eq!(rig.status().await.troubles, [""; 0]);
    rig.change_host(|host| drop(host.devices.remove("lan0")))
        .await;
    let troubles = rig.status().await.troubles;
    assert_eq!(
        troubles,
        ["LAN device lan0: it does not exist yet; its hosts have no gateway until it does"]
    );
}
