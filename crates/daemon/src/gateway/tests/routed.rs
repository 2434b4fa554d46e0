//! Links without NAT.

use anabranch_core::FlowState;

use anabranch_policy::abi::MAX_LINKS;

use super::*;

/// The first link, in both families.
const FIBER_ROUTED: u32 = 1 | 1 << MAX_LINKS;

fn with(fiber: &str) -> String {
    CONFIG.replace("device = \"wan0\"", &format!("device = \"wan0\", {fiber}"))
}

/// A flow that the LAN host knows by `local`, and the internet by `external`.
pub fn flow(link: u16, local: &str, external: &str) -> FlowRow {
    FlowRow {
        proto: "tcp".into(),
        state: FlowState::Established,
        link,
        class: 0,
        why: String::new(),
        local: local.parse().unwrap(),
        external: external.parse().unwrap(),
        remote: "192.0.2.1:80".parse().unwrap(),
        packets_out: 1,
        bytes_out: 40,
        packets_in: 1,
        bytes_in: 40,
        age_ms: 1,
        idle_ms: 1,
        tried: Vec::new(),
    }
}

#[tokio::test(start_paused = true)]
async fn links_without_nat_are_told_before_the_first_flow() {
    let rig = Rig::start_in(&with("nat = false"), world(), false).await;
    let told = rig.told();
    // Links of before are forgotten before.
    let first = told
        .iter()
        .find(|told| !matches!(told, Told::Link(_, None)));
    assert_eq!(first, Some(&Told::Routed(FIBER_ROUTED)), "{told:?}");
    let links = rig.status().await.links;
    assert_eq!(
        links.iter().map(|link| link.nat).collect::<Vec<_>>(),
        [false, true]
    );
}

#[tokio::test(start_paused = true)]
async fn a_link_turns_when_its_flows_have_ended_and_no_new_ones_begin() {
    let rig = Rig::start().await;
    rig.told();
    let held = hold_flows(&rig.world).await;
    let response = rig.begin_reload(&with("nat = false")).await;
    rig.pass_meanwhile(Duration::from_secs(2)).await;
    let before = rig.told();
    assert_eq!(before, [Told::Settings, Told::Choice(0b10)]);
    drop(held);
    let Response::Done = response.await.unwrap() else {
        panic!("refused")
    };
    rig.pass(Duration::from_secs(1)).await;
    assert_eq!(
        rig.told(),
        [
            Told::Ended(0),
            Told::Routed(FIBER_ROUTED),
            Told::Choice(0b11)
        ]
    );
    let Response::Done = rig.reload(CONFIG).await else {
        panic!("refused")
    };
    rig.pass(Duration::from_secs(1)).await;
    assert_eq!(
        rig.told(),
        [
            Told::Routed(FIBER_ROUTED),
            Told::Choice(0b10),
            Told::Ended(0),
            Told::Settings,
            Told::Choice(0b11)
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_new_address_of_a_link_ends_no_flow_that_has_its_own() {
    let rig = Rig::start_in(&with("nat = false"), world(), false).await;
    rig.told();
    rig.change_host(|host| {
        let wan = host.devices.get_mut("wan0").unwrap();
        wan.addresses.remove(0);
    })
    .await;
    assert_eq!(rig.told(), [Told::Link(0, Some("203.0.113.9".into()))]);
}

#[tokio::test(start_paused = true)]
async fn flows_of_before_a_link_turned_end_when_they_are_adopted() {
    const OWN: &str = "198.18.0.5:4000";
    const TRANSLATED: &str = "203.0.113.2:4000";
    for (fiber, external, ends) in [
        ("nat = false", OWN, false),
        ("nat = false", TRANSLATED, true),
        ("nat = true", OWN, true),
        ("nat = true", TRANSLATED, false),
    ] {
        let world = world();
        world.lock().unwrap().flows = vec![flow(0, OWN, external)];
        let rig = Rig::start_in(&with(fiber), world, true).await;
        let told = rig.told();
        assert_eq!(told.contains(&Told::Ended(0)), ends, "{fiber}: {told:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_tells_of_a_class_that_chooses_for_each_packet() {
    let text = with("nat = false")
        + "[[rule]]\nname = \"spread\"\ngranularity = \"packet\"\nlinks = \"fiber\"\n";
    let rig = Rig::start_in(&text, world(), false).await;
    for (class, granularity) in [(1, "packet"), (0, "connection")] {
        rig.world.lock().unwrap().explanation = Some(Explanation {
            link: Some(0),
            class,
            why: String::new(),
            bound: false,
            hash: 0,
            weighed: Vec::new(),
        });
        let question = Request::Explain {
            from: "192.168.1.20:4000".parse().unwrap(),
            to: "192.0.2.1:80".parse().unwrap(),
            proto: Proto::Tcp,
        };
        let Response::Explanation(explained) = rig.call(question).await else {
            panic!("no explanation")
        };
        assert_eq!(explained.granularity, granularity);
    }
    let classes = rig.status().await.classes;
    let granularities: Vec<String> = classes.into_iter().map(|class| class.granularity).collect();
    assert_eq!(granularities, ["packet", "connection"]);
}
