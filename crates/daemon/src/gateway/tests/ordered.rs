//! Orders and reloads.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_reload_changes_what_it_must_and_nothing_else() {
    let rig = Rig::start().await;
    rig.told();
    let Response::Done = rig.reload(&CONFIG.replace("rr", "lcf")).await else {
        panic!("refused")
    };
    assert_eq!(rig.told(), [Told::Settings, Told::Choice(0b11)]);

    let without: String = CONFIG
        .lines()
        .filter(|line| !line.contains("fiber"))
        .map(|line| format!("{line}\n"))
        .collect();
    let Response::Done = rig.reload(&without).await else {
        panic!("refused")
    };
    assert_eq!(
        rig.told(),
        [
            Told::Settings,
            Told::Choice(0b10),
            Told::Ended(0),
            Told::Detach(FIBER),
            Told::Link(0, None)
        ]
    );
    assert_eq!(
        rig.status().await.links[0].slot,
        1,
        "a name keeps its number"
    );
}

#[tokio::test(start_paused = true)]
async fn a_link_that_was_down_is_not_trusted_after_a_reload() {
    let rig = Rig::start().await;
    rig.world.lock().unwrap().dead = vec!["wan0"];
    rig.pass(Duration::from_secs(1)).await;
    rig.told();
    let Response::Done = rig.reload(&CONFIG.replace("rr", "lcf")).await else {
        panic!("refused")
    };
    rig.pass(Duration::from_secs(2)).await;
    let choices: Vec<Told> = rig
        .told()
        .into_iter()
        .filter(|told| matches!(told, Told::Choice(_)))
        .collect();
    assert_eq!(choices, [Told::Choice(0b10)]);
}

#[tokio::test(start_paused = true)]
async fn an_order_takes_a_link_out_and_brings_it_back() {
    let rig = Rig::start().await;
    rig.told();
    let order = |action| Request::Link {
        name: "fiber".into(),
        action,
        force: false,
    };
    rig.call(order(LinkAction::Drain)).await;
    assert_eq!(rig.told(), [Told::Choice(0b10)], "its flows live on");
    rig.call(order(LinkAction::Down)).await;
    assert_eq!(rig.told(), [Told::Ended(0)]);
    assert_eq!(rig.status().await.links[0].state, Shown::Disabled);
    rig.call(order(LinkAction::Up)).await;
    assert_eq!(rig.told(), [Told::Choice(0b11)]);
    let Response::Refused { message } = rig
        .call(Request::Link {
            name: "dsl".into(),
            action: LinkAction::Up,
            force: false,
        })
        .await
    else {
        panic!("not refused")
    };
    assert_eq!(message, r#"no link "dsl"; there are: fiber, lte"#);
    let refused = Error::from(BadInput::new(message));
    assert_eq!(refused.exit_code(), 2);
}

#[tokio::test(start_paused = true)]
async fn the_last_link_that_works_is_taken_away_only_by_force() {
    let rig = Rig::start().await;
    let order = |name: &str, action, force| Request::Link {
        name: name.into(),
        action,
        force,
    };
    rig.call(order("fiber", LinkAction::Drain, false)).await;
    rig.told();
    for action in [LinkAction::Drain, LinkAction::Down] {
        let Response::Refused { message } = rig.call(order("lte", action, false)).await else {
            panic!("not refused")
        };
        assert_eq!(
            message,
            "link lte is the last that works: without it no new flow is forwarded; --force orders it nevertheless"
        );
    }
    assert_eq!(rig.told(), []);
    rig.call(order("lte", LinkAction::Drain, true)).await;
    assert_eq!(rig.told(), [Told::Choice(0)]);
}

#[tokio::test(start_paused = true)]
async fn orders_outlive_the_daemon() {
    let first = Rig::start().await;
    let order = |action| Request::Link {
        name: "fiber".into(),
        action,
        force: false,
    };
    first.call(order(LinkAction::Drain)).await;
    let world = world();
    world.lock().unwrap().orders = first.world.lock().unwrap().orders.clone();
    let next = Rig::start_in(CONFIG, world, true).await;
    assert_eq!(next.status().await.links[0].state, Shown::Drained);
    assert!(!next.told().contains(&Told::Choice(0b11)));
    next.call(order(LinkAction::Up)).await;
    assert!(next.world.lock().unwrap().orders.is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_order_that_cannot_be_kept_is_refused_and_changes_nothing() {
    let rig = Rig::start().await;
    rig.told();
    rig.world.lock().unwrap().is_full = true;
    let order = || Request::Link {
        name: "fiber".into(),
        action: LinkAction::Drain,
        force: false,
    };
    let Response::Refused { message } = rig.call(order()).await else {
        panic!("not refused")
    };
    assert_eq!(
        message,
        "link fiber is as it was, as no order can be kept: write state.json: no space; make room there, then order again"
    );
    rig.world.lock().unwrap().is_full = false;
    rig.pass(Duration::from_secs(3)).await;
    assert_eq!(rig.told(), []);
    assert!(rig.world.lock().unwrap().orders.is_empty());
    assert!(matches!(rig.call(order()).await, Response::Done));
    assert_eq!(rig.told(), [Told::Choice(0b10)]);
}

#[tokio::test(start_paused = true)]
async fn without_room_for_its_state_the_gateway_starts_and_reloads_and_keeps_it_later() {
    let world = world();
    world.lock().unwrap().is_full = true;
    let rig = Rig::start_in(CONFIG, world, false).await;
    assert!(rig.told().contains(&Told::Choice(0b11)));
    let reloaded = rig.reload(&CONFIG.replace("lte", "cable")).await;
    assert!(matches!(reloaded, Response::Done), "{reloaded:?}");
    rig.world.lock().unwrap().is_full = false;
    rig.pass(Duration::from_secs(3)).await;
    let kept = rig.world.lock().unwrap().slots.clone();
    assert_eq!(kept.id("cable"), Some(LinkId(2)), "{kept:?}");
}

#[tokio::test(start_paused = true)]
async fn a_device_that_left_the_configuration_is_claimed_until_its_flows_have_ended_and_it_is_detached()
 {
    let rig = Rig::start().await;
    let without: Vec<&str> = CONFIG.lines().filter(|l| !l.contains("fiber")).collect();
    let held = hold_flows(&rig.world).await;
    rig.told();
    let response = rig.begin_reload(&without.join("\n")).await;
    rig.pass_meanwhile(Duration::from_millis(100)).await;
    let claimed = || rig.world.lock().unwrap().claims.contains(&"wan0".into());
    assert!(claimed() && !rig.told().contains(&Told::Detach(FIBER)));
    rig.world.lock().unwrap().stubborn = vec![FIBER];
    drop(held);
    assert!(matches!(response.await.unwrap(), Response::Done));
    rig.pass(Duration::from_secs(2)).await;
    assert!(claimed() && !rig.told().contains(&Told::Detach(FIBER)));
    rig.world.lock().unwrap().stubborn.clear();
    rig.pass(Duration::from_secs(2)).await;
    assert!(!claimed() && rig.told().contains(&Told::Detach(FIBER)));
}

#[tokio::test(start_paused = true)]
async fn flows_of_a_link_that_leaves_the_configuration_end_whichever_it_is() {
    for (name, slot) in [("fiber", 0), ("lte", 1)] {
        let rig = Rig::start().await;
        rig.told();
        let without: Vec<&str> = CONFIG.lines().filter(|line| !line.contains(name)).collect();
        let reloaded = rig.reload(&without.join("\n")).await;
        assert!(matches!(reloaded, Response::Done), "{reloaded:?}");
        let told = rig.told();
        assert!(told.contains(&Told::Ended(slot)), "{name}: {told:?}");
    }
}
