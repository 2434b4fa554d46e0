//! Services under load: two balancers with the same servers that know nothing of each other, servers that die, and changes while
//! clients go on, with each kind of forwarding.

#[expect(dead_code, reason = "other tests need more of it")]
#[path = "../common/mod.rs"]
mod common;
mod load;
#[path = "../common/serving.rs"]
mod serving;
mod site;

use anabranch_api::{Request, Response};
use anabranch_core::Family;
use anabranch_testbed::netns::Exit;
use anabranch_workload::Transfer;
use nix::sys::signal::Signal;

use common::{Daemon, until};
use load::Load;
use serving::{cut_power, servers};
use site::{SERVERS, Site, Way};

anabranch_testbed::in_both_families!(
    Family:
    connections_through_nat_go_on_by_another_balancer,
    connections_answered_directly_go_on_by_another_balancer,
    connections_in_a_tunnel_go_on_by_another_balancer,
);

/// Ports of a client.
const BEFORE: std::ops::Range<u16> = 20_000..20_100;
const AFTER: std::ops::Range<u16> = 21_000..21_100;

fn connections_through_nat_go_on_by_another_balancer(family: Family) {
    go_on_by_another_balancer(family, Way::Nat);
}

fn connections_answered_directly_go_on_by_another_balancer(family: Family) {
    go_on_by_another_balancer(family, Way::Direct);
}

fn connections_in_a_tunnel_go_on_by_another_balancer(family: Family) {
    go_on_by_another_balancer(family, Way::Tunnel);
}

fn reload(daemon: &Daemon) {
    let reloaded = daemon.call(&Request::Reload);
    assert!(matches!(reloaded, Response::Done), "{reloaded:?}");
}

/// The other balancer has seen none of the connections. It sends their packets where the hash led before the servers changed, so it loses
/// those that were opened after that, and that the change moved.
fn go_on_by_another_balancer(family: Family, way: Way) {
    let site = Site::new(family, way);
    let daemons = [0, 1].map(|number| site.start(number));
    let before = site.hold(BEFORE);
    let formerly = site.choices(&daemons[1], AFTER);
    site.write(SERVERS - 1);
    daemons.iter().for_each(reload);
    let after = site.hold(AFTER);
    let [first, second] = daemons;
    assert_eq!(first.end(Signal::SIGKILL), Exit::Signal(9));
    site.end_balancer(0);
    site.use_balancer(1);
    let lost = before.iter().filter(|held| !held.goes_on()).count();
    assert_eq!(lost, 0, "of {} before the change", before.len());
    let mut moved = 0;
    for (held, formerly) in after.iter().zip(formerly) {
        let has_moved = held.server != formerly;
        assert_eq!(held.goes_on(), !has_moved, "{formerly}, {}", held.server);
        moved += usize::from(has_moved);
    }
    println!(
        "{way:?} {family:?}: {} of {} go on; the change moved {moved}",
        before.len() + after.len() - moved,
        before.len() + after.len()
    );
    assert!((1..after.len() / 2).contains(&moved), "{moved}");
    let more = site.hold(22_000..22_010);
    assert!(more.iter().all(|held| held.goes_on()));
    assert_eq!(second.end(Signal::SIGTERM), Exit::Code(0));
}

#[test]
fn changes_under_load_lose_nothing_through_nat() {
    changes_lose_nothing(Family::V4, Way::Nat);
}

#[test]
fn changes_under_load_lose_nothing_of_what_is_answered_directly() {
    changes_lose_nothing(Family::V6, Way::Direct);
}

#[test]
fn changes_under_load_lose_nothing_in_a_tunnel() {
    changes_lose_nothing(Family::V4, Way::Tunnel);
}

/// A file that is refused, a removal and its end by reloads, and another process, which loads the programs anew.
fn changes_lose_nothing(family: Family, way: Way) {
    const ASKED: std::ops::Range<u16> = 10_000..11_000;
    let site = Site::new(family, way);
    let daemon = site.start(0);
    let held = site.hold(BEFORE);
    let mut load = Load::begin(&site);
    let choices = site.choices(&daemon, ASKED);
    site.write(0);
    match daemon.call(&Request::Reload) {
        Response::Refused { message } if message.contains("service.web.servers = []") => {}
        other => panic!("{other:?}"),
    }
    assert_eq!(site.choices(&daemon, ASKED), choices, "nothing has changed");
    site.write(SERVERS - 1);
    reload(&daemon);
    load.goes_on();
    let of_fewer = site.choices(&daemon, ASKED);
    site.write(SERVERS);
    reload(&daemon);
    load.goes_on();
    assert_eq!(site.choices(&daemon, ASKED), choices, "all are back");
    assert_eq!(daemon.end(Signal::SIGKILL), Exit::Signal(9));
    load.goes_on();
    let daemon = site.balancers[0].start();
    assert!(daemon.instance_status().services.unwrap().adopted);
    load.goes_on();
    let lost = held.iter().filter(|held| !held.goes_on()).count();
    assert_eq!(lost, 0, "of {}", held.len());
    let all = load.end();
    let failed: Vec<_> = all.iter().filter(|one| !one.outcome.is_ok()).collect();
    assert!(failed.is_empty(), "{failed:#?}");
    let pairs = choices.iter().zip(&of_fewer);
    let moved = pairs.filter(|(before, after)| before != after).count();
    let share = moved as f64 / choices.len() as f64;
    println!(
        "{way:?} {family:?}: {} requests, none failed; {share:.3} of choices moved",
        all.len()
    );
    assert!(share <= 1.0 / SERVERS as f64 + 0.03, "{share}");
    assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
}

#[test]
fn of_a_server_that_dies_only_its_own_requests_fail_through_nat() {
    only_its_own_fail(Family::V4, Way::Nat);
}

#[test]
fn of_a_server_that_dies_only_its_own_requests_fail_where_it_answers_directly() {
    only_its_own_fail(Family::V6, Way::Direct);
}

#[test]
fn of_a_server_that_dies_only_its_own_requests_fail_in_a_tunnel() {
    only_its_own_fail(Family::V4, Way::Tunnel);
}

/// How a server died under load.
struct Death {
    number: usize,
    died_s: f64,
    /// From then on it gets no more requests.
    out_s: f64,
    /// Requests that it was sent meanwhile, and those that it had.
    sent: u64,
}

/// A process that ends refuses connections. A machine that ends is silent: clients repeat their SYNs and get other servers.
fn only_its_own_fail(family: Family, way: Way) {
    const SILENT: usize = 1;
    let site = Site::new(family, way);
    let daemon = site.start(0);
    let held = site.hold(BEFORE);
    let mut load = Load::begin(&site);
    let dies: [fn(&Site); 2] = [
        |site| site.servers[0].web.signal(Signal::SIGKILL),
        |site| cut_power(&site.servers[SILENT].node),
    ];
    let deaths = dies.into_iter().enumerate().map(|(number, die)| {
        let of = || servers(&daemon, "web").remove(number);
        let (before, died_s) = (of(), load.now_s());
        die(&site);
        until("it is out of use", || !of().usable);
        let out_s = load.now_s();
        load.goes_on();
        Death {
            number,
            died_s,
            out_s,
            sent: before.active + of().opened - before.opened,
        }
    });
    let deaths: Vec<_> = deaths.collect();
    load.settles();
    let of_others = held
        .iter()
        .filter(|held| usize::from(held.server) != SILENT);
    assert_eq!(of_others.filter(|held| !held.goes_on()).count(), 0);
    let all = load.end();
    let (_, mut failed): (Vec<_>, Vec<&Transfer>) = all.iter().partition(|one| one.outcome.is_ok());
    for death in deaths {
        let name = death.number.to_string();
        let later = all.iter().filter(|one| one.start_s > death.out_s);
        let later = later.filter(|one| one.link.as_ref() == Some(&name));
        assert_eq!(later.count(), 0, "{name} is given requests again");
        let own;
        (failed, own) = failed
            .into_iter()
            .partition(|one| one.start_s > death.out_s || one.end_s() < death.died_s);
        let (count, took_s) = (own.len() as u64, death.out_s - death.died_s);
        println!(
            "{way:?} {family:?}: {name} is out after {took_s:.3} s; {count} failed of {} sent there, of {} in all",
            death.sent,
            all.len()
        );
        assert!(count <= death.sent, "{count} of {}", death.sent);
        assert!(took_s < 1.0, "{took_s}");
        let is_lost = |one: &&Transfer| death.number == SILENT && one.setup_s.is_none();
        let lost: Vec<_> = own.into_iter().filter(is_lost).collect();
        assert!(lost.is_empty(), "only established ones end: {lost:#?}");
    }
    assert!(failed.is_empty(), "{failed:#?}");
    assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
}
