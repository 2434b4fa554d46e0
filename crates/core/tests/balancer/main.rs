//! The balancer, driven by hand: what it asks of the data path, and in which order.

mod classes;
mod configuration;
mod families;
mod metered;
mod order;
mod own;
mod promises;
mod usable;
mod weights;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::time::Duration;

use anabranch_core::rounds::PATIENCE;
use anabranch_core::{
    Admin, Balancer, BuildError, Choice, ClassId, ClassSpec, Classes, Config, DataPlane, DownCause,
    Effect, Ended, Event, Family, LinkCounters, LinkId, LinkSpec, LinkState, Missing, OnReturn,
    PathStatus, PerFamily, State, Suspicion, Time, Whom,
};
use anabranch_policy::abi::WEIGHT_MAX;
use anabranch_policy::{Gauges, NO_TABLE, Request, choose};
use proptest::prelude::*;

const MBIT: u64 = 1_000_000;
/// Of what tests tell that say nothing else; of the other, links are absent.
const V4: Family = Family::V4;
const V6: Family = Family::V6;

/// What the counters are, and what was installed.
struct Plane<'a> {
    counters: &'a [LinkCounters],
    choices: &'a mut BTreeMap<(ClassId, Family), Choice>,
}

impl DataPlane for Plane<'_> {
    type Error = Infallible;

    fn counters(&mut self) -> Result<Vec<LinkCounters>, Infallible> {
        Ok(self.counters.to_vec())
    }

    fn install(
        &mut self,
        class: ClassId,
        family: Family,
        choice: &Choice,
    ) -> Result<(), Infallible> {
        self.choices.insert((class, family), *choice);
        Ok(())
    }

    fn end_flows(&mut self, _: ClassId, _: Family, _: LinkId) -> Result<Ended, Infallible> {
        Ok(Ended::default())
    }
}

/// A way to drive: with what time has made due, or without.
type Drive =
    fn(&mut anabranch_core::Driver, Time, &mut Plane<'_>) -> Result<Vec<Effect>, Infallible>;

/// Two or more links, told of what the test wants.
struct Driver {
    core: anabranch_core::Driver,
    now: Time,
    counters: Vec<LinkCounters>,
    /// Round trips to the fixed node.
    to_node: Vec<Duration>,
    choices: BTreeMap<(ClassId, Family), Choice>,
    /// In the order they were polled, with the usable links installed at that moment: of its class, if it is of one, and
    /// family.
    events: Vec<(Event, u64)>,
}

fn link(name: &str, up_bps: u64, down_bps: u64) -> LinkSpec {
    LinkSpec {
        name: name.into(),
        rate_up_bps: Some(up_bps),
        rate_down_bps: Some(down_bps),
        ..LinkSpec::default()
    }
}

fn metered(spec: LinkSpec) -> LinkSpec {
    LinkSpec {
        metered: true,
        ..spec
    }
}

fn equal(count: usize) -> Vec<LinkSpec> {
    (0..count)
        .map(|i| link(&format!("isp{i}"), 10 * MBIT, 10 * MBIT))
        .collect()
}

/// The end of what the default class has on a link.
fn end_of(link: u16) -> Event {
    end_in(ClassId::DEFAULT, link)
}

/// The end of what a class has on a link, of IPv4.
fn end_in(class: ClassId, link: u16) -> Event {
    Event::EndFlows {
        class,
        link: LinkId(link),
        family: V4,
    }
}

fn class_of(event: &Event) -> ClassId {
    match event {
        Event::EndFlows { class, .. } | Event::MoveUdp { class, .. } => *class,
        _ => ClassId::DEFAULT,
    }
}

fn family_of(event: &Event) -> Family {
    match event {
        Event::Suspected { family, .. }
        | Event::Captive { family, .. }
        | Event::LinkUp { family, .. }
        | Event::LinkDown { family, .. }
        | Event::EndFlows { family, .. }
        | Event::MoveUdp { family, .. }
        | Event::PathMtu { family, .. } => *family,
    }
}

/// The next choice of IPv4 that waits to be installed, and its usable links. Those of IPv6 have none.
fn poll_usable(balancer: &mut Balancer) -> Option<(ClassId, u64)> {
    loop {
        let (class, family, choice) = balancer.poll_choice()?;
        let usable = choice.usable.word[0];
        match family {
            V4 => return Some((class, usable)),
            V6 => assert_eq!(usable, 0),
        }
    }
}

/// The first as a percentage of the second.
fn percent(part: u32, whole: u32) -> u32 {
    (u64::from(part) * 100 / u64::from(whole)) as u32
}

/// Over two links of which it was told nothing yet.
fn balancer(algorithm: &str) -> Balancer {
    let classes = ClassSpec::alone(algorithm.parse().unwrap());
    Balancer::new(Time::ZERO, classes, equal(2), Config::default()).unwrap()
}

impl Driver {
    /// All links present and proven.
    fn new(algorithm: &str, links: Vec<LinkSpec>) -> Driver {
        Driver::with(ClassSpec::alone(algorithm.parse().unwrap()), links)
    }

    /// The same with classes.
    fn with(classes: Classes, links: Vec<LinkSpec>) -> Driver {
        let mut driver = Driver::absent_with(classes, links);
        for i in 0..driver.counters.len() {
            driver.set_present(i);
        }
        driver.count();
        driver.events.clear();
        driver
    }

    fn absent(algorithm: &str, links: Vec<LinkSpec>) -> Driver {
        Driver::absent_with(ClassSpec::alone(algorithm.parse().unwrap()), links)
    }

    fn absent_with(classes: Classes, links: Vec<LinkSpec>) -> Driver {
        let counters = vec![LinkCounters::default(); links.len()];
        let to_node = vec![Duration::from_millis(20); links.len()];
        let config = Config {
            node: Some(V4),
            ..Config::default()
        };
        let balancer = Balancer::new(Time::ZERO, classes, links, config).unwrap();
        Driver {
            to_node,
            core: anabranch_core::Driver::new(balancer),
            now: Time::ZERO,
            counters,
            choices: BTreeMap::new(),
            events: Vec::new(),
        }
    }

    /// Chooses as the programs do, and counts the flow.
    fn choose(&mut self) -> usize {
        let choice = self.choice().expect("a choice was made");
        let mut gauges = Gauges::default();
        for (gauge, counters) in gauges.target.iter_mut().zip(&self.counters) {
            *gauge = counters.flows;
        }
        let decision = choose(&choice, &gauges, &NO_TABLE, &Request::default());
        let chosen = usize::from(decision.target.expect("a link is usable"));
        self.counters[chosen].flows.dispatched += 1;
        chosen
    }

    fn id(i: usize) -> LinkId {
        LinkId(i as u16)
    }

    fn set_present(&mut self, i: usize) {
        self.set_state(i, V4, LinkState::Present);
    }

    fn set_absent(&mut self, i: usize) {
        self.set_state(i, V4, LinkState::Absent(Missing::Carrier));
    }

    fn set_state(&mut self, i: usize, family: Family, state: LinkState) {
        self.core
            .balancer_mut()
            .handle_link_state(self.now, Self::id(i), family, state);
        self.poll(&|_, _| true);
    }

    fn set_admin(&mut self, i: usize, admin: Admin) {
        self.core
            .balancer_mut()
            .set_admin(self.now, Self::id(i), admin);
        self.poll(&|_, _| true);
    }

    fn count(&mut self) {
        let now = self.now;
        let (core, mut plane) = self.parts();
        let Ok(()) = core.read_counters(now, &mut plane);
        self.poll(&|_, _| true);
    }

    /// Lets time pass; probes of the links that `answer` are answered at once.
    fn run(&mut self, duration: Duration, answer: impl Fn(LinkId) -> bool) {
        self.run_paths(duration, |link, _| answer(link));
    }

    /// The same of links for one family each.
    fn run_paths(&mut self, duration: Duration, answer: impl Fn(LinkId, Family) -> bool) {
        let end = self.now + duration;
        while self.core.next_turn() <= end {
            self.now = self.core.next_turn().max(self.now);
            self.drive(|core, now, plane| core.turn(now, plane), &answer);
            self.poll(&answer);
        }
        self.now = end;
    }

    fn poll(&mut self, answer: &dyn Fn(LinkId, Family) -> bool) {
        while self.drive(|core, now, plane| core.poll(now, plane), answer) {}
    }

    /// Whether anything came of it.
    fn drive(&mut self, by: Drive, answer: &dyn Fn(LinkId, Family) -> bool) -> bool {
        let now = self.now;
        let (core, mut plane) = self.parts();
        let Ok(effects) = by(core, now, &mut plane);
        for effect in &effects {
            self.take(*effect, answer);
        }
        !effects.is_empty()
    }

    fn take(&mut self, effect: Effect, answer: &dyn Fn(LinkId, Family) -> bool) {
        match effect {
            Effect::Event(event) => {
                let usable = self.usable_by(class_of(&event), family_of(&event));
                self.events.push((event, usable));
            }
            Effect::Probe(probe) if answer(probe.link, probe.family) => {
                let round_trip = match probe.whom {
                    Whom::Target(_) | Whom::Host { .. } => Duration::from_millis(20),
                    Whom::Node => self.to_node[probe.link.index()],
                };
                let balancer = self.core.balancer_mut();
                balancer.handle_answer(self.now, &probe, round_trip);
            }
            Effect::Probe(_) | Effect::Ask(_) => {}
        }
    }

    fn parts(&mut self) -> (&mut anabranch_core::Driver, Plane<'_>) {
        let plane = Plane {
            counters: &self.counters,
            choices: &mut self.choices,
        };
        (&mut self.core, plane)
    }

    /// How a link fares for IPv4.
    fn path(&self, i: usize) -> PathStatus {
        self.path_for(i, V4)
    }

    fn path_for(&self, i: usize, family: Family) -> PathStatus {
        let status = self.core.balancer().status(self.now);
        status[i].paths[family].clone()
    }

    /// The default class's, as installed.
    fn choice(&self) -> Option<Choice> {
        self.choices.get(&(ClassId::DEFAULT, V4)).copied()
    }

    /// As installed.
    fn usable(&self) -> u64 {
        self.usable_of(ClassId::DEFAULT)
    }

    fn usable_of(&self, class: ClassId) -> u64 {
        self.usable_by(class, V4)
    }

    fn usable_by(&self, class: ClassId, family: Family) -> u64 {
        let choice = self.choices.get(&(class, family));
        choice.map_or(0, |choice| choice.usable.word[0])
    }

    fn weights(&self) -> Vec<u32> {
        let choice = self.choice().expect("a choice was made");
        choice.target[..self.counters.len()]
            .iter()
            .map(|target| target.weight())
            .collect()
    }

    /// Takes a link down by silence: packets go out, nothing comes in, probes are lost.
    fn silence(&mut self, dead: &[usize]) {
        for &i in dead {
            self.counters[i].traffic[V4].tx_packets += 1;
        }
        let dead: Vec<_> = dead.iter().map(|&i| Self::id(i)).collect();
        self.run(Duration::from_secs(2), |link| !dead.contains(&link));
    }

    /// Carries the same load on each link for ten seconds.
    fn carry(&mut self, load_bps: &[(u64, u64)]) {
        for _ in 0..200 {
            for (counters, (up_bps, down_bps)) in self.counters.iter_mut().zip(load_bps) {
                counters.traffic[V4].tx_packets += 1;
                counters.traffic[V4].rx_packets += 1;
                counters.traffic[V4].rx_progress += 1;
                counters.traffic[V4].tx_bytes += up_bps / 8 / 20;
                counters.traffic[V4].rx_bytes += down_bps / 8 / 20;
            }
            self.run(Duration::from_millis(50), |_| true);
        }
    }
}
