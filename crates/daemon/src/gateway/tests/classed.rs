//! Classes that rules name, over reloads and restarts.

use super::*;

fn with_rules(rules: &str) -> String {
    format!("{CONFIG}{rules}")
}

const BULK: &str = r#"
[[rule]]
name = "bulk"
dscp = "cs1"
links = ["fiber"]
then = ["lte"]
"#;

const VOICE: &str = r#"
[[rule]]
name = "voice"
dscp = "ef"
links = ["lte"]
none = "drop"
"#;

fn names(rig: &Rig) -> Vec<(u8, String)> {
    let names = rig.world.lock().unwrap().class_names.clone();
    names.into_iter().map(|(id, name)| (id.0, name)).collect()
}

fn set_flows(rig: &Rig, class: u8, flows: u64) {
    let mut world = rig.world.lock().unwrap();
    world.class_flows.insert(ClassId(class), flows);
}

#[tokio::test(start_paused = true)]
async fn a_class_has_a_choice_of_its_own_and_loses_flows_with_its_links() {
    let rules = with_rules(&[BULK, VOICE].concat());
    let rig = Rig::start_in(&rules, world(), false).await;
    let told = rig.told();
    for choice in [
        Told::Choice(0b11),
        Told::ClassChoice(1, 0b01),
        Told::ClassChoice(2, 0b10),
    ] {
        assert!(told.contains(&choice), "{choice:?} in {told:?}");
    }
    {
        let mut world = rig.world.lock().unwrap();
        world.dead = vec!["ppp0"];
        world.ended.clear();
    }
    rig.pass(Duration::from_secs(1)).await;
    assert_eq!(
        rig.told(),
        [
            Told::Choice(0b01),
            Told::ClassChoice(1, 0b01),
            Told::ClassChoice(2, 0),
            Told::Ended(1),
        ],
        "one walk, when all choices are installed"
    );
    let [(_, ended)] = rig.world.lock().unwrap().ended[..] else {
        panic!("one walk");
    };
    let ended: Vec<u8> = (0..3).filter(|id| ended.contains(ClassId(*id))).collect();
    assert_eq!(ended, [0, 1], "voice has no other link for its flows");
}

#[tokio::test(start_paused = true)]
async fn a_class_keeps_its_number_over_a_reload_and_a_restart() {
    let rig = Rig::start_in(&with_rules(BULK), world(), false).await;
    assert_eq!(names(&rig), [(1, "bulk".into())]);
    rig.told();
    rig.reload(&with_rules(&[VOICE, BULK].concat())).await;
    assert_eq!(names(&rig), [(1, "bulk".into()), (2, "voice".into())]);
    let told = rig.told();
    assert!(told.contains(&Told::ClassChoice(2, 0b10)), "{told:?}");
    let of_bulk = |told: &Told| matches!(told, Told::ClassChoice(1, _));
    assert!(!told.iter().any(of_bulk), "{told:?}");

    let world = rig.world.clone();
    let rig = Rig::start_in(&with_rules(VOICE), world, true).await;
    assert_eq!(names(&rig), [(2, "voice".into())]);
}

#[tokio::test(start_paused = true)]
async fn a_class_that_left_goes_by_the_default_class_until_its_last_flow_is_gone() {
    let rig = Rig::start_in(&with_rules(BULK), world(), false).await;
    set_flows(&rig, 1, 3);
    rig.told();
    rig.reload(&with_rules(VOICE)).await;
    assert_eq!(names(&rig), [(1, "bulk".into()), (2, "voice".into())]);
    assert!(rig.told().contains(&Told::ClassChoice(1, 0b11)));
    set_flows(&rig, 1, 0);
    rig.reload(&with_rules(VOICE)).await;
    assert_eq!(names(&rig), [(2, "voice".into())]);
}

#[tokio::test(start_paused = true)]
async fn status_tells_each_class_in_the_order_of_its_rules_with_what_it_uses() {
    let rig = Rig::start_in(&with_rules(BULK), world(), false).await;
    set_flows(&rig, 1, 3);
    rig.reload(&with_rules(
        &[VOICE, &BULK.replace("bulk", "video")].concat(),
    ))
    .await;
    set_flows(&rig, 2, 5);
    rig.world.lock().unwrap().dead = vec!["ppp0"];
    rig.pass(Duration::from_secs(1)).await;
    let classes = rig.status().await.classes;
    let told: Vec<_> = classes
        .iter()
        .map(|class| (&class.name[..], class.slot, class.leaving, class.flows.live))
        .collect();
    assert_eq!(
        told,
        [
            ("voice", 2, false, 5),
            ("video", 3, false, 0),
            ("bulk", 1, true, 3),
            ("default", 0, false, 0)
        ]
    );
    let links = |class: usize| -> Vec<Vec<(&str, bool)>> {
        let tiers = classes[class].tiers.iter();
        let link =
            |link: &anabranch_api::ClassLink| (link.link.clone().leak() as &str, link.usable);
        tiers.map(|tier| tier.iter().map(link).collect()).collect()
    };
    assert_eq!(links(0), [vec![("lte", false)]]);
    assert_eq!(links(1), [vec![("fiber", true)], vec![("lte", false)]]);
    assert_eq!(links(3), [vec![("fiber", true), ("lte", false)]]);
}

#[tokio::test(start_paused = true)]
async fn an_explanation_names_the_class_and_the_rules_that_are_passed() {
    let night = BULK
        .replace("bulk", "night")
        .replace("dscp = \"cs1\"", "when = \"22:00-06:00\"");
    let rules = with_rules(&[BULK, &night].concat());
    let rig = Rig::start_in(&rules, world(), false).await;
    rig.world.lock().unwrap().explanation = Some(Explanation {
        link: Some(0),
        class: 0,
        why: "the only link".into(),
        bound: false,
        hash: 0,
        weighed: Vec::new(),
    });
    let request = Request::Explain {
        from: "192.168.1.20:50000".parse().unwrap(),
        to: "203.0.113.7:443".parse().unwrap(),
        proto: Proto::Tcp,
    };
    let Response::Explanation(explained) = rig.call(request).await else {
        panic!("no explanation");
    };
    assert_eq!(explained.class, "default");
    let passed: Vec<String> = explained
        .passed
        .iter()
        .map(|rule| format!("{} {}", rule.rule, rule.because.join("; ")))
        .collect();
    assert_eq!(
        passed,
        [
            "bulk dscp: be, not cs1",
            "night when: mon 09:00, not 22:00-06:00"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn rules_are_told_by_the_numbers_of_their_classes_and_as_the_time_goes_by() {
    let night = VOICE.replace("dscp = \"ef\"", "when = \"22:00-06:00\"");
    let rig = Rig::start_in(&with_rules(BULK), world(), false).await;
    let told = || {
        let (active, classes) = rig.world.lock().unwrap().rules.clone();
        (active, classes[..3].to_vec())
    };
    assert_eq!(told(), (0b010, vec![1, 0, 0]));
    rig.reload(&with_rules(&[&night, BULK].concat())).await;
    assert_eq!(
        told(),
        (0b100, vec![2, 1, 0]),
        "bulk is the second, and class 1"
    );
    rig.world.lock().unwrap().hour = 14;
    rig.pass(Duration::from_secs(2)).await;
    assert_eq!(told(), (0b110, vec![2, 1, 0]));
    rig.reload(CONFIG).await;
    assert_eq!(told(), (0, vec![0, 0, 0]));
}

const OWN: &str = r#"
[[rule]]
name = "backup"
from = "self"
ports = 873
when = "mon 09:00-10:00"
links = ["lte"]
then = ["fiber"]
[[rule]]
name = "mail"
protocol = "tcp"
ports = 25
links = ["lte"]
none = "drop"
[[rule]]
name = "calls"
from = "self"
protocol = "udp"
links = ["lte"]
none = "kernel"
[[rule]]
name = "lan"
from = "192.168.1.0/24"
links = ["lte"]
"#;

/// Where the host's own packets go by rules: their places and ways.
fn own_ways(rig: &Rig) -> Vec<(usize, Way)> {
    let world = rig.world.lock().unwrap();
    let ways = world.ways.rules.iter();
    ways.map(|way| (way.place, way.way[Family::V4])).collect()
}

#[tokio::test(start_paused = true)]
async fn the_hosts_own_traffic_follows_the_tiers_and_hours_of_its_rules() {
    let rig = Rig::start_in(&with_rules(OWN), world(), false).await;
    let [fiber, lte] = [0, 1].map(|link| Way::Link(LinkId(link)));
    assert_eq!(own_ways(&rig), [(0, lte), (1, lte), (2, lte)]);
    rig.world.lock().unwrap().dead = vec!["ppp0"];
    rig.pass(Duration::from_secs(1)).await;
    let without_lte = [(0, fiber), (1, Way::Refused), (2, Way::Kernel)];
    assert_eq!(own_ways(&rig), without_lte);
    rig.world.lock().unwrap().hour = 1;
    rig.pass(Duration::from_secs(2)).await;
    assert_eq!(own_ways(&rig), without_lte[1..], "at ten");
    rig.world.lock().unwrap().dead.clear();
    rig.pass(Duration::from_secs(3)).await;
    assert_eq!(own_ways(&rig), [(1, lte), (2, lte)]);
    rig.reload(CONFIG).await;
    assert_eq!(own_ways(&rig), []);
}
