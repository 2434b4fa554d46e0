//! One run: a workload on a lab, with links that fail and return on a schedule.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Instant;

use anabranch_scenario::{Fault, Load};
use anabranch_workload::Transfer;
use anabranch_workload::client::{self, Addresses, ClientConfig, Demand, TransferEvent};

use crate::topology::{Lab, LabError, LabReport, Result, ZEROS};

/// What to do on a lab.
#[derive(Debug, Clone)]
pub struct Run {
    /// What the users ask for, and when.
    pub load: Load,
    /// Begin with [`Lab::client_config`]; its epoch is the run's.
    pub client: ClientConfig,
    /// In any order, at times since the epoch. Faults planned for after the load's end do not happen.
    pub faults: Vec<Fault>,
}

/// Where it is told what happens, while it happens.
#[derive(Debug, Clone)]
pub struct Senders {
    /// Every step of every transfer.
    pub transfers: mpsc::Sender<TransferEvent>,
    /// Those that have happened, with their times.
    pub faults: mpsc::Sender<Fault>,
}

impl Senders {
    /// Nobody does.
    pub fn nobody() -> Self {
        Self {
            transfers: mpsc::channel().0,
            faults: mpsc::channel().0,
        }
    }
}

/// What came of it.
#[derive(Debug, Clone)]
pub struct Recording {
    /// When the load ended.
    pub ended: Instant,
    /// Those that happened, at the times when they did.
    pub faults: Vec<Fault>,
    /// In the order in which they ended.
    pub transfers: Vec<Transfer>,
    /// Conditions, lateness, drops; `lab.problems` says why the figures cannot be trusted, if they cannot.
    pub lab: LabReport,
}

impl Lab {
    /// The clients' side of the lab: server, sources and links are set, time begins now.
    pub fn client_config(&self) -> ClientConfig {
        let families = self.spec().families.list().iter();
        let addresses = families.map(|&family| Addresses {
            servers: self.servers(family),
            sources: self.clients_of(family),
        });
        ClientConfig {
            seed: self.spec().seed,
            links: self.external_addresses(),
            multipath: self.is_multipath(),
            path: ZEROS.to_owned(),
            ..ClientConfig::new(addresses.collect())
        }
    }

    /// Runs a load from its beginning to its end and tells what happens meanwhile to whoever listens.
    pub fn run(&self, run: Run, senders: Senders) -> Result<Recording> {
        for fault in &run.faults {
            self.hop(fault)?;
        }
        let epoch = run.client.epoch;
        let demand = demand(&run.load)?;
        let (ended, end) = mpsc::channel::<()>();
        let (transfers, faults) = thread::scope(|scope| {
            let faults = scope.spawn(|| self.play(run.faults, epoch, end, &senders.faults));
            let work = || client::run(demand, run.client, senders.transfers);
            let transfers = self.clients().run(work);
            drop(ended);
            let faults = faults
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            (transfers, faults)
        });
        Ok(Recording {
            ended: Instant::now(),
            faults: faults?,
            transfers: transfers?.map_err(|error| LabError::Load(error.to_string()))?,
            lab: self.report()?,
        })
    }

    /// Applies the faults in their order until all are done or the run has ended.
    fn play(
        &self,
        mut plan: Vec<Fault>,
        epoch: Instant,
        end: mpsc::Receiver<()>,
        happened: &mpsc::Sender<Fault>,
    ) -> Result<Vec<Fault>> {
        plan.sort_by_key(|fault| fault.at);
        let mut done = Vec::new();
        for fault in plan {
            let wait = (epoch + fault.at).saturating_duration_since(Instant::now());
            if end.recv_timeout(wait) != Err(RecvTimeoutError::Timeout) {
                break;
            }
            let at = self.apply(&fault)?.saturating_duration_since(epoch);
            let fault = Fault { at, ..fault };
            // Nobody listening is the caller's choice: the recording is complete without.
            let _ = happened.send(fault.clone());
            done.push(fault);
        }
        Ok(done)
    }
}

/// What the client is to ask for.
///
/// # Errors
/// If users come in groups: here all are alike.
pub(crate) fn demand(load: &Load) -> Result<Demand<'_>> {
    match load {
        Load::Pages(workload) => Ok(Demand::Pages(workload)),
        Load::Arrivals(plan) => Ok(Demand::Arrivals(plan)),
        Load::Groups(groups) => Err(LabError::Spec {
            key: "group",
            value: groups.len().to_string(),
            allowed: "the laboratory's users are all alike; run it in the simulator".to_owned(),
        }),
    }
}
