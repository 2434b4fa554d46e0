//! One run of a scenario on real kernels.
//!
//! The site of the scenario is built as a [`Lab`] ([`plan`]), with `anabranch run` under the run's policy as its gateway, or the
//! peer that is compared with it. When every link has answered a probe of anabranch's, time begins: clients ask, lines change on schedule. Meanwhile the emulated
//! lines and the daemon are looked at in the scenario's sampling period ([`watch`]); whoever draws a picture of it is
//! shown every look. What the clients received and what the lines carried makes the [`Record`]; what the machine was
//! like, and why it may not have been good enough, goes with it ([`conditions`]).

mod conditions;
mod plan;
mod watch;

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anabranch_api::{LinkState as Found, LinkStatus, PathStatus};
use anabranch_scenario::{Families, Fault, Network, Policy, Record, Run, Site, World};
use anabranch_workload::client::TransferEvent;

use crate::daemon::Daemon;
use crate::run::{Recording, Senders};
use crate::topology::{Gateway, Lab, LabError, Result};
use crate::trunk;
use conditions::Conditions;
use watch::Watch;

pub use crate::setup::Setup;
pub use watch::{LinkNow, Moment, PathNow, Transfers};

/// For every link to answer its first probes.
const READY: Duration = Duration::from_secs(10);
const BETWEEN_TRIES: Duration = Duration::from_millis(50);

/// Carries out one run: of a site here, of a trunk in [`crate::trunk`]. `progress` is told the time since the run
/// began, in the scenario's sampling period.
///
/// # Errors
/// As [`run_site`] and [`crate::trunk::run`].
pub fn run(run: &Run, setup: &Setup, progress: &mut dyn FnMut(Duration)) -> Result<Record> {
    match run.scenario.network {
        Network::Site(_) => run_site(run, setup, &mut |moment| progress(moment.elapsed)),
        Network::Trunk(_) => trunk::run(run, setup, progress),
    }
}

/// Carries out one run of a site. `observe` is shown a look at it in the scenario's sampling period.
///
/// # Errors
/// If the scenario asks for what only the simulator has, the lab cannot be built, or the gateway fails. A run that was
/// carried out but cannot be trusted is no error: see [`Record::problems`].
pub fn run_site(run: &Run, setup: &Setup, observe: &mut dyn FnMut(&Moment)) -> Result<Record> {
    let network = run.network();
    let site = plan::site(&network)?;
    let gateway = match run.policy {
        Policy::Peer(peer) => Gateway::Peer(peer),
        _ => Gateway::Anabranch {
            binary: setup.binary.clone(),
            settings: plan::settings(run, site)?,
        },
    };
    let mut lab = Lab::build(&plan::lab(run, site)?, &gateway)?;
    let mut daemon = match gateway {
        Gateway::Anabranch { .. } => Some(Daemon::connect(lab.anabranch()?.instance())?),
        _ => None,
    };
    if let Some(daemon) = &mut daemon {
        wait_for_links(daemon, run.scenario.families)?;
    }
    let stage = Stage {
        run,
        site,
        setup,
        lab: &lab,
    };
    stage.play(daemon.as_mut(), observe)
}

/// Everything is up, and time has not begun.
struct Stage<'a> {
    run: &'a Run,
    site: &'a Site,
    setup: &'a Setup,
    lab: &'a Lab,
}

impl Stage<'_> {
    /// Whoever is no anabranch has no daemon to ask.
    fn play(
        &self,
        mut daemon: Option<&mut Daemon>,
        observe: &mut dyn FnMut(&Moment),
    ) -> Result<Record> {
        let before = Conditions::read(self.lab, daemon.as_deref_mut())?;
        let orders = plan::orders(self.run, self.lab, self.setup);
        self.lab.restart_traces(orders.client.epoch)?;
        let mut watch = Watch::new(self.site, orders.client.epoch);
        watch.look(self.lab, daemon.as_deref_mut())?;
        let (senders, receivers) = channels();
        let recording = thread::scope(|scope| {
            let running = scope.spawn(|| self.lab.run(orders, senders));
            let watched = self.keep_watch(&mut watch, daemon.as_deref_mut(), &receivers, observe);
            if watched.is_err() {
                self.setup.stop.order();
            }
            let recording = running
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            watched.and(recording)
        })?;
        let after = Conditions::read(self.lab, daemon)?;
        Ok(self.record(watch, [before, after], recording))
    }

    /// Looks until the load has ended, and once more.
    fn keep_watch(
        &self,
        watch: &mut Watch,
        mut daemon: Option<&mut Daemon>,
        receivers: &Receivers,
        observe: &mut dyn FnMut(&Moment),
    ) -> Result<()> {
        let mut next = Instant::now();
        loop {
            let goes_on = watch.take_transfers(&receivers.transfers);
            watch.take_faults(&receivers.faults);
            watch.look(self.lab, daemon.as_deref_mut())?;
            observe(&watch.moment());
            if !goes_on {
                return Ok(());
            }
            next = (next + self.run.scenario.sample).max(Instant::now());
            thread::sleep(next.saturating_duration_since(Instant::now()));
        }
    }

    fn record(
        &self,
        watch: Watch,
        [before, after]: [Conditions; 2],
        recording: Recording,
    ) -> Record {
        let mut problems = recording.lab.problems.clone();
        problems.extend(conditions::problem_of_load(&recording.transfers));
        if self.setup.stop.is_ordered() {
            problems.push("interrupted before its end".into());
        }
        let (series, events) = watch.into_evidence();
        Record {
            world: World::Lab,
            series,
            events,
            links: plan::capacities(self.site),
            counts: before.counts_until(&after),
            conditions: conditions::words(self.run, &after, &recording, self.lab.spec()),
            transfers: recording.transfers,
            problems,
        }
    }
}

/// What the run tells while it goes on.
struct Receivers {
    transfers: mpsc::Receiver<TransferEvent>,
    faults: mpsc::Receiver<Fault>,
}

fn channels() -> (Senders, Receivers) {
    let (transfers, ended) = mpsc::channel();
    let (faults, happened) = mpsc::channel();
    let receivers = Receivers {
        transfers: ended,
        faults: happened,
    };
    (Senders { transfers, faults }, receivers)
}

/// A link, and the family of it, that has not answered yet; no path if the gateway does not know the family.
fn unanswered(
    links: &[LinkStatus],
    families: Families,
) -> Option<(&LinkStatus, Option<&PathStatus>)> {
    let answered =
        |path: &PathStatus| path.state == Found::Up && path.probe.round_trip_ms.is_some();
    links.iter().find_map(|link| {
        let mut paths = families.list().iter().map(|family| {
            let of_family = |path: &&PathStatus| path.family == family.to_string();
            link.paths.iter().find(of_family)
        });
        let waiting = paths.find(|path| !path.is_some_and(answered))?;
        Some((link, waiting))
    })
}

/// A gateway that has just started takes its links on trust until each has answered.
fn wait_for_links(daemon: &mut Daemon, families: Families) -> Result<()> {
    let deadline = Instant::now() + READY;
    loop {
        let links = daemon.gateway_status()?.links;
        let Some((link, waiting)) = unanswered(&links, families) else {
            return Ok(());
        };
        if Instant::now() > deadline {
            let why = waiting.map_or(&link.why, |path| &path.why);
            return Err(LabError::Gateway(format!(
                "link {} has not answered a probe of each family within {} s: {why}",
                link.name,
                READY.as_secs(),
            )));
        }
        thread::sleep(BETWEEN_TRIES);
    }
}
