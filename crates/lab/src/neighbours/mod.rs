//! A soak of neighbours: the gateway on one box with what stands beside it on real ones, while things happen.
//!
//! The box ([`ground`]) has DHCP clients on two links, a static third link with a shaper ([`links`]), and other programs and their rules
//! ([`services`]): containers, a VPN, a virtual address, a policy table, router advertisements. A plan that is drawn from a seed
//! ([`plan`]) says what happens and in which order: links fail, leases change, routes go and return, programs restart. Two
//! actors carry it out ([`actors`]), while flows of every neighbour are kept open and new ones are opened all the time
//! ([`flows`]). Of what was done and seen, a pure function ([`judge`]) says what was lost without cause.

mod actors;
mod flows;
mod ground;
pub mod judge;
mod links;
mod plan;
mod programs;
mod roles;
mod services;
mod site;

use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use anabranch_workload::client::Stop;
use serde::Serialize;

use crate::topology::{LabError, Result};
use actors::{Stage, act_on_links, act_on_services};
use flows::{Ledger, watch_machine};
use ground::Ground;
use judge::{Event, Verdict, judge};
use plan::LINKS;
use roles::{Role, roles};
use site::Site;

/// What to run.
#[derive(Debug, Clone)]
pub struct Soak {
    /// Of all that is random.
    pub seed: u64,
    /// How long things happen.
    pub length: Duration,
    /// Words of the events that happen; all of them do if there are none.
    pub only: Vec<String>,
    /// The executable whose `run` is the gateway.
    pub binary: PathBuf,
    /// Ends the soak early.
    pub stop: Stop,
}

/// What came of it.
#[derive(Debug, Clone, Serialize)]
pub struct Outcome {
    /// Repeats the order of events.
    pub seed: u64,
    /// How long things happened.
    pub length_ms: u64,
    /// What was done, in the order of its beginning.
    pub events: Vec<Event>,
    /// What was lost, and without cause.
    #[serde(flatten)]
    pub verdict: Verdict,
}

const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Runs a soak. `tell` is told a line per event, as it begins.
///
/// # Errors
/// If the site cannot be built or an event cannot be carried out. An interrupted soak is an error.
pub fn run(soak: &Soak, tell: &(dyn Fn(&str) + Sync)) -> Result<Outcome> {
    let choices = plan::choices(soak.seed);
    tell(&format!("building the site: {choices}"));
    let Site {
        mut links,
        mut services,
        ground,
    } = Site::build(&soak.binary, choices)?;
    let ledger = Arc::new(ledger_of(&ground)?);
    let (ended, closed) = (Stop::default(), Stop::default());
    let stage = Stage {
        ground: &ground,
        ledger: &ledger,
        stop: &ended,
        tell,
    };
    let roles = roles(&ground, choices);
    thread::scope(|scope| {
        let mut servers = Vec::new();
        let mut threads = Vec::new();
        let (ready, readiness) = mpsc::channel();
        for role in &roles {
            let (ready, closed) = (ready.clone(), &closed);
            servers.push(scope.spawn(move || role.serve(ready, closed)));
        }
        drop(ready);
        for _ in &roles {
            // A server that fails drops its sender, and is found finished below.
            let _ = readiness.recv();
        }
        for role in &roles {
            let (ledger, ended) = (&ledger, &ended);
            threads.push(scope.spawn(move || role.watch(ledger, ended)));
        }
        scope.spawn(|| watch_machine(&ledger, &ended));
        let steps = plan::links(soak.seed, &soak.only);
        threads.push(scope.spawn(|| act_on_links(stage, &mut links, steps)));
        let steps = plan::services(soak.seed, &soak.only);
        threads.push(scope.spawn(|| act_on_services(stage, &mut services, steps)));
        let finished = |threads: &[thread::ScopedJoinHandle<'_, Result<()>>]| {
            threads.iter().any(thread::ScopedJoinHandle::is_finished)
        };
        let length_ms = soak.length.as_millis() as u64;
        // Whoever ends early has failed, and nobody else has to go on.
        while ledger.now_ms() < length_ms && !soak.stop.is_ordered() && !finished(&threads) {
            thread::sleep(LOOK_AGAIN);
        }
        ledger.record().length_ms = ledger.now_ms();
        ended.order();
        let ends: Result<()> = threads.into_iter().try_for_each(joined);
        // Nobody is left who could be refused.
        closed.order();
        ends.and(servers.into_iter().try_for_each(joined))
    })?;
    if soak.stop.is_ordered() {
        return Err(LabError::Load("interrupted".into()));
    }
    let mut record = ledger.record();
    record.events.sort_by_key(|event| event.begun_ms);
    let neighbours: Vec<_> = roles.iter().flat_map(Role::neighbours).collect();
    Ok(Outcome {
        seed: soak.seed,
        length_ms: record.length_ms,
        events: record.events.clone(),
        verdict: judge(&record, &neighbours),
    })
}

fn joined<T>(thread: thread::ScopedJoinHandle<'_, T>) -> T {
    thread
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn ledger_of(ground: &Ground) -> Result<Ledger> {
    let mut addresses = Vec::new();
    for link in 0..LINKS {
        let present = ground.present(link)?;
        let missing = || LabError::Load(format!("link {link} has no address"));
        addresses.push(present.ok_or_else(missing)?);
    }
    Ok(Ledger::new(addresses))
}
