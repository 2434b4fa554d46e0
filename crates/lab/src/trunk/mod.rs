//! A trunk of a scenario on real kernels.
//!
//! ```text
//!  servers ── near ══ sub0 ══ far ── clients
//!                  ══ sub1 ══
//!                  ══ …    ══
//!                  ── back ──
//! ```
//!
//! Two nodes, and as many cables between them as the trunk has sublinks, each shaped at the near node by a token bucket
//! filter to the sublink's rate and buffer. `anabranch run` spreads the near node's trunk device, over which the clients
//! are routed. What the clients send takes the line back, which the link emulator carries: it has the propagation of
//! the whole round trip, because the kernel's shapers know none. So round trips are the scenario's, and the queue of a
//! sublink is where the product looks for it. Sublinks that differ in delay, or lose packets, are lines of the emulator
//! behind their shapers. The hosts of each side share a cable, on which every one of them has its rate ([`access`]). The
//! undivided link is a trunk of one sublink.
//!
//! What became of a sublink's packets is told by the program and the queue ([`Sight`]); reordering is counted where the
//! clients receive, by the numbers that the servers' sockets gave their packets ([`Watcher`]).

mod access;
mod nodes;
mod order;
mod plan;
mod sight;

use std::iter::Peekable;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anabranch_scenario::{Fault, Load, Record, Run, World};
use anabranch_workload::Transfer;
use anabranch_workload::client::{self, ClientConfig};

use crate::daemon::Daemon;
use crate::run::demand;
use crate::setup::Setup;
use crate::topology::{LabError, Result, ZEROS};
use anabranch_testbed::netns::Namespace;
use nodes::Nodes;
use order::{Order, Watcher};
use plan::Plan;
use sight::{Sight, Watch};

/// Carries out one run of a scenario whose network is a trunk. `observe` is told the time since the run began, in the
/// scenario's sampling period.
///
/// # Errors
/// If the scenario asks for what only the simulator has, the nodes cannot be built, or the trunk fails. A run that was
/// carried out but cannot be trusted is no error: see [`Record::problems`].
pub fn run(run: &Run, setup: &Setup, observe: &mut dyn FnMut(Duration)) -> Result<Record> {
    let plan = Plan::of(run)?;
    let mut nodes = Nodes::build(&plan, setup)?;
    let mut daemon = Daemon::connect(nodes.instance())?;
    let families = plan.families.list().iter();
    let watch_order = families.map(|&family| Watcher::start(nodes.clients(), family));
    let watchers = watch_order.collect::<Result<Vec<_>>>()?;
    let before = Sight::take(&mut daemon, &nodes)?;
    let mut watch = Watch::new(&plan);
    watch.look(Duration::ZERO, &mut daemon, &nodes)?;
    let transfers = play(run, setup, &nodes, &mut daemon, &mut watch, observe)?;
    let after = Sight::take(&mut daemon, &nodes)?;
    let mut order = Order::default();
    for watcher in watchers {
        order += watcher.stop();
    }
    let mut problems = order.problems();
    problems.extend(nodes.problems()?);
    if setup.stop.is_ordered() {
        problems.push("interrupted before its end".into());
    }
    let mut counts = before.counts_until(&after);
    counts.reordered = order.reordered;
    let mut conditions = plan.conditions();
    conditions.extend(nodes.conditions()?);
    conditions.extend(before.words_until(&after));
    nodes.stop()?;
    let (series, events) = watch.into_evidence();
    Ok(Record {
        world: World::Lab,
        transfers,
        series,
        events,
        links: plan.capacities(),
        counts,
        conditions,
        problems,
    })
}

/// From the first transfer to the last, with the faults in their time.
fn play(
    run: &Run,
    setup: &Setup,
    nodes: &Nodes,
    daemon: &mut Daemon,
    watch: &mut Watch,
    observe: &mut dyn FnMut(Duration),
) -> Result<Vec<Transfer>> {
    let config = client_config(run, setup, nodes);
    let (epoch, load) = (config.epoch, run.load());
    thread::scope(|scope| {
        let asking = scope.spawn(move || ask(nodes.clients(), &load, config));
        let mut faults = run.scenario.faults.iter().peekable();
        let mut next = epoch;
        let watched = loop {
            let over = asking.is_finished();
            let looked = watch.look(epoch.elapsed(), daemon, nodes);
            let looked = looked.and_then(|()| happen(&mut faults, nodes, epoch, watch));
            observe(epoch.elapsed());
            if over || looked.is_err() {
                break looked;
            }
            next = (next + run.scenario.sample).max(Instant::now());
            thread::sleep(next.saturating_duration_since(Instant::now()));
        };
        if watched.is_err() {
            setup.stop.order();
        }
        let transfers = asking
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        watched.and(transfers)
    })
}

/// Lets the faults happen whose time has come.
fn happen<'a>(
    faults: &mut Peekable<impl Iterator<Item = &'a Fault>>,
    nodes: &Nodes,
    epoch: Instant,
    watch: &mut Watch,
) -> Result<()> {
    while let Some(fault) = faults.next_if(|fault| fault.at <= epoch.elapsed()) {
        watch.note(nodes.apply(fault, epoch)?);
    }
    Ok(())
}

fn ask(clients: &Namespace, load: &Load, config: ClientConfig) -> Result<Vec<Transfer>> {
    let demand = demand(load)?;
    let (nobody, _) = mpsc::channel();
    let transfers = clients.run(|| client::run(demand, config, nobody))?;
    transfers.map_err(|error| LabError::Load(error.to_string()))
}

/// Time begins when this is called.
fn client_config(run: &Run, setup: &Setup, nodes: &Nodes) -> ClientConfig {
    let users = run.scenario.load.users();
    ClientConfig {
        path: ZEROS.to_owned(),
        connect_timeout: run.scenario.patience,
        idle_timeout: run.scenario.patience,
        deadline: run.scenario.limit,
        stop: setup.stop.clone(),
        ..ClientConfig::new(nodes.addresses(users))
    }
}
