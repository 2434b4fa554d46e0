//! Links that have to pass checks.

use super::*;

/// Three failures take five seconds each, give or take one half.
const FALL: Duration = Duration::from_secs(17);
const RISE: Duration = Duration::from_secs(12);
const CHECK: &str = r#"
[[check]]
link = "fiber"
command = ["/bin/true"]
"#;

fn with(check: &str) -> String {
    format!("{CONFIG}{check}")
}

fn fails(world: &Shared) {
    let failure = Outcome::Failure("exit code 1".to_owned());
    world.lock().unwrap().test = Some(("fiber".to_owned(), failure));
}

#[tokio::test(start_paused = true)]
async fn a_link_is_down_while_its_check_is_and_status_says_why() {
    let rig = Rig::start_in(&with(CHECK), world(), false).await;
    rig.pass(RISE).await;
    let fiber = rig.status().await.links.remove(0);
    assert_eq!(fiber.state, Shown::Up);
    let check = &fiber.paths[0].checks[0];
    assert_eq!(
        (check.check.as_str(), check.state.as_str()),
        ("command /bin/true", "up")
    );
    fails(&rig.world);
    rig.told();
    rig.pass(FALL).await;
    assert_eq!(rig.told(), [Told::Choice(0b10), Told::Ended(0)]);
    let fiber = rig.status().await.links.remove(0);
    assert_eq!((fiber.state, fiber.usable), (Shown::Down, false));
    assert_eq!(fiber.why, "a check fails: command /bin/true: exit code 1");
    rig.world.lock().unwrap().test = None;
    rig.pass(RISE).await;
    assert_eq!(rig.status().await.links[0].state, Shown::Up);
}

#[tokio::test(start_paused = true)]
async fn a_test_that_is_not_made_takes_no_link_down_and_is_told() {
    let world = world();
    let inconclusive = Outcome::Inconclusive("not run".to_owned());
    world.lock().unwrap().test = Some(("fiber".to_owned(), inconclusive));
    let rig = Rig::start_in(&with(CHECK), world, false).await;
    rig.pass(FALL * 3).await;
    let fiber = rig.status().await.links.remove(0);
    assert_eq!(fiber.state, Shown::Up);
    let check = &fiber.paths[0].checks[0];
    assert_eq!(
        (check.state.as_str(), check.why.as_deref()),
        ("unknown", Some("not run"))
    );
}

#[tokio::test(start_paused = true)]
async fn what_a_check_has_shown_outlives_reloads_and_the_daemon() {
    let world = world();
    fails(&world);
    let rig = Rig::start_in(&with(CHECK), world.clone(), false).await;
    rig.pass(FALL).await;
    assert_eq!(rig.status().await.links[0].state, Shown::Down);
    let another = CHECK.replace("/bin/true\"]", "/bin/true\"]\nfall = 9\ninterval = \"4s\"");
    rig.reload(&with(&another)).await;
    assert_eq!(rig.status().await.links[0].state, Shown::Down);
    let next = Rig::start_in(&with(CHECK), world.clone(), true).await;
    assert_eq!(next.status().await.links[0].state, Shown::Down);
    next.reload(CONFIG).await;
    next.pass(Duration::from_secs(1)).await;
    assert_eq!(
        next.status().await.links[0].state,
        Shown::Up,
        "it has no check"
    );
}

#[tokio::test(start_paused = true)]
async fn a_link_that_is_away_is_not_tested() {
    let rig = Rig::start_in(&with(CHECK), world(), false).await;
    rig.change_host(|host| drop(host.devices.remove("wan0")))
        .await;
    let before = rig.world.lock().unwrap().tests;
    rig.pass(FALL).await;
    assert_eq!(rig.world.lock().unwrap().tests, before);
}
