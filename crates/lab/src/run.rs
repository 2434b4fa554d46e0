//! One run: a workload on a lab, with links that fail and return on a schedule.

use std::collections::BTreeSet;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anabranch_workload::client::{self, ClientConfig, TransferEvent};
use anabranch_workload::{Extent, Size, Transfer, Workload};
use serde::{Deserialize, Serialize};

use crate::emulator::Direction;
use crate::topology::{Lab, LabError, LabReport, Result};

/// What happens to a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// It becomes a blackhole.
    Cut,
    Restore,
    Rate {
        direction: Direction,
        rate_bps: u64,
    },
}

/// A change and its time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    pub link: String,
    pub change: Change,
    /// Since the epoch of the run. In a [`Run`]'s plan: when it is to happen; in its [`Recording`]: when it did.
    pub at_s: f64,
}

/// What to do on a lab.
#[derive(Debug, Clone)]
pub struct Run {
    pub workload: Workload,
    /// Begin with [`Lab::client_config`]; its epoch is the run's.
    pub client: ClientConfig,
    /// In any order. Faults planned for after the workload's end do not happen.
    pub faults: Vec<Fault>,
}

/// What came of it.
#[derive(Debug, Clone, Serialize)]
pub struct Recording {
    /// The workload in words, with its seed.
    pub workload: String,
    pub workload_seed: u64,
    /// When the workload ended, since the epoch.
    pub ended_s: f64,
    pub faults: Vec<Fault>,
    #[serde(skip)]
    pub transfers: Vec<Transfer>,
    /// Conditions, lateness, drops; `lab.problems` says why the figures cannot be trusted, if they cannot.
    pub lab: LabReport,
}

/// The files a workload asks for, for [`crate::topology::LabSpec::file_bytes`]. A workload that draws sizes without
/// end has no such list.
pub fn files_of(workload: &Workload) -> Result<Vec<u64>> {
    match (workload.size, workload.extent) {
        (Size::Fixed(bytes), _) => Ok(vec![bytes]),
        (_, Extent::Rounds(_)) => {
            let rounds = workload.tabs().flatten();
            let sizes = rounds.flat_map(|round| round.sizes);
            Ok(sizes.collect::<BTreeSet<_>>().into_iter().collect())
        }
        (_, Extent::Duration(_)) => Err(LabError::Workload(
            "random sizes for a duration: the web server needs a list of files; give a number of rounds or a fixed size"
                .into(),
        )),
    }
}

impl Lab {
    /// The clients' side of the lab: server, sources and links are set, time begins now.
    pub fn client_config(&self) -> ClientConfig {
        ClientConfig {
            links: self.external_addresses(),
            ..ClientConfig::new(self.server(), self.client_addresses())
        }
    }

    /// Runs a workload from its beginning to its end. `events` tells what happens meanwhile to whoever listens.
    pub fn run(&self, run: Run, events: mpsc::Sender<TransferEvent>) -> Result<Recording> {
        self.check_files(&run.workload)?;
        for fault in &run.faults {
            self.link(&fault.link)?;
        }
        let epoch = run.client.epoch;
        let (ended, end) = mpsc::channel::<()>();
        let (transfers, faults) = thread::scope(|scope| {
            let faults = scope.spawn(|| self.play(run.faults, epoch, end));
            let work = || client::run(&run.workload, run.client, events);
            let transfers = self.clients().run(work);
            drop(ended);
            let faults = faults
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            (transfers, faults)
        });
        Ok(Recording {
            workload: run.workload.to_string(),
            workload_seed: run.workload.seed,
            ended_s: epoch.elapsed().as_secs_f64(),
            faults: faults?,
            transfers: transfers?.map_err(|error| LabError::Workload(error.to_string()))?,
            lab: self.report()?,
        })
    }

    fn check_files(&self, workload: &Workload) -> Result<()> {
        let there = &self.spec().file_bytes;
        match files_of(workload)?
            .iter()
            .find(|bytes| !there.contains(bytes))
        {
            None => Ok(()),
            Some(missing) => Err(LabError::Workload(format!(
                "the web server has no file of {missing} bytes: add it to file_bytes"
            ))),
        }
    }

    /// Applies the faults in their order until all are done or the run has ended.
    fn play(
        &self,
        mut plan: Vec<Fault>,
        epoch: Instant,
        end: mpsc::Receiver<()>,
    ) -> Result<Vec<Fault>> {
        plan.sort_by(|a, b| a.at_s.total_cmp(&b.at_s));
        let mut done = Vec::new();
        for fault in plan {
            let at = epoch + Duration::from_secs_f64(fault.at_s.max(0.0));
            let wait = at.saturating_duration_since(Instant::now());
            if end.recv_timeout(wait) != Err(RecvTimeoutError::Timeout) {
                break;
            }
            let happened = self.apply(&fault)?;
            let at_s = happened.saturating_duration_since(epoch).as_secs_f64();
            done.push(Fault { at_s, ..fault });
        }
        Ok(done)
    }

    fn apply(&self, fault: &Fault) -> Result<Instant> {
        match fault.change {
            Change::Cut => self.cut(&fault.link),
            Change::Restore => self.restore(&fault.link),
            Change::Rate {
                direction,
                rate_bps,
            } => self.set_rate(&fault.link, direction, rate_bps),
        }
    }
}
