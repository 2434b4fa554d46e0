//! What is known of a run while it goes on.

use std::sync::mpsc::Receiver;
use std::time::Instant;

use anabranch_daemon::control::{LinkState as Found, LinkStatus};
use anabranch_lab::topology::LabReport;
use anabranch_scenario::{CutSeen, DemoLink, Event, EventKind, LinkSeries, LinkState};
use anabranch_workload::Transfer;
use anabranch_workload::client::TransferEvent;

use super::outcome::Evidence;
use super::plan::Plan;
use crate::control::Daemon;
use crate::table;

/// The evidence as it grows.
pub struct Watch {
    epoch: Instant,
    /// Since the epoch, so mostly before it.
    daemon_started_s: Option<f64>,
    duration_s: f64,
    links: Vec<Watched>,
    events: Vec<Event>,
    /// Events handed out by [`Watch::news`].
    told: usize,
    cut: Option<CutSeen>,
    cut_link: String,
    transfers: Count,
}

struct Watched {
    series: LinkSeries,
    /// As last asked.
    status: Option<LinkStatus>,
    state: LinkState,
    /// Bytes from the internet and flows before the run.
    before: (u64, u64),
}

/// Transfers by their fate so far.
#[derive(Debug, Clone, Copy, Default)]
pub struct Count {
    pub running: u64,
    pub done: u64,
    pub failed: u64,
}

/// What there is to draw.
pub struct Frame {
    pub elapsed_s: f64,
    pub links: Vec<LinkFrame>,
    pub transfers: Count,
}

pub struct LinkFrame {
    pub name: String,
    pub rate_bps: u64,
    /// Towards the users, over the last second.
    pub now_bps: f64,
    pub state: LinkState,
    pub flows: u64,
}

impl Watch {
    pub fn new(plan: &Plan, epoch: Instant) -> Self {
        let links = plan.links().map(|(name, down_bps, up_bps)| Watched {
            series: LinkSeries::new(name, down_bps, up_bps),
            status: None,
            state: LinkState::Up,
            before: (0, 0),
        });
        Self {
            epoch,
            daemon_started_s: None,
            duration_s: plan.duration.as_secs_f64(),
            links: links.collect(),
            events: Vec::new(),
            told: 0,
            cut: None,
            cut_link: plan.cut_link.clone(),
            transfers: Count::default(),
        }
    }

    pub fn is_cut(&self) -> bool {
        self.cut.is_some()
    }

    /// The link was cut at this instant.
    pub fn cut(&mut self, at: Instant) {
        let cut_s = at.saturating_duration_since(self.epoch).as_secs_f64();
        self.cut = Some(CutSeen {
            link: self.cut_link.clone(),
            cut_s,
            declared_down_s: None,
            restored_s: None,
        });
        let text = format!(
            "{} is cut: its packets vanish, its carrier stays",
            self.cut_link
        );
        self.events.push(Event {
            t_s: cut_s,
            kind: EventKind::Cut,
            link: Some(self.cut_link.clone()),
            text,
        });
    }

    /// Takes in what the clients told.
    pub fn hear(&mut self, told: &Receiver<TransferEvent>) {
        let count = &mut self.transfers;
        for event in told.try_iter() {
            match event {
                TransferEvent::Started { .. } => count.running += 1,
                TransferEvent::Progress { .. } => {}
                TransferEvent::Finished(transfer) => {
                    count.running = count.running.saturating_sub(1);
                    count.done += u64::from(transfer.outcome.is_ok());
                    count.failed += u64::from(transfer.outcome.is_failure());
                }
            }
        }
    }

    /// Asks the daemon.
    pub fn look(&mut self, daemon: &mut Daemon) -> anyhow::Result<()> {
        let status = daemon.status()?;
        let heard_s = self.epoch.elapsed().as_secs_f64();
        let started_s = *self
            .daemon_started_s
            .get_or_insert(heard_s - status.uptime_s);
        // By the daemon's own clock: how long its answer took to get here says nothing about rates.
        let now_s = started_s + status.uptime_s;
        for link in status.links {
            self.take_in(now_s, link);
        }
        Ok(())
    }

    /// What has happened since the last call.
    pub fn news(&mut self) -> &[Event] {
        let told = std::mem::replace(&mut self.told, self.events.len());
        &self.events[told..]
    }

    fn take_in(&mut self, now_s: f64, status: LinkStatus) {
        let Some(watched) = self
            .links
            .iter_mut()
            .find(|watched| watched.series.name == status.name)
        else {
            return;
        };
        if watched.status.is_none() {
            watched.before = (status.traffic.rx_bytes, status.flows.opened);
        }
        let state = belief(status.state);
        watched.series.push(
            now_s,
            status.traffic.rx_bytes,
            status.traffic.tx_bytes,
            state,
            status.flows.live,
        );
        let former = std::mem::replace(&mut watched.state, state);
        // The daemon says how long it has been in this state: more exact than when it was asked.
        let since_s = (now_s - status.since_s).max(0.0);
        let ended = watched
            .status
            .as_ref()
            .map_or(0, |before| before.flows.live);
        let name = status.name.clone();
        watched.status = Some(status);
        if state != former {
            self.changed(name, state, since_s, ended);
        }
    }

    fn changed(&mut self, name: String, state: LinkState, since_s: f64, flows: u64) {
        let cut = self.cut.as_mut().filter(|cut| cut.link == name);
        let after = |cut: &CutSeen| format!(" {} after the cut", table::time(since_s - cut.cut_s));
        let (kind, text) = match state {
            LinkState::Up => (EventKind::Up, format!("{name} is up")),
            LinkState::Suspect => (
                EventKind::Suspect,
                format!("{name} is suspected and probed"),
            ),
            LinkState::Down => {
                let after = cut.as_deref().map(after).unwrap_or_default();
                (
                    EventKind::Down,
                    format!("{name} is declared down{after}; it had {flows} flows"),
                )
            }
        };
        if let (LinkState::Down, Some(cut)) = (state, cut) {
            cut.declared_down_s.get_or_insert(since_s);
        }
        self.events.push(Event {
            t_s: since_s,
            kind,
            link: Some(name),
            text,
        });
    }

    pub fn frame(&self) -> Frame {
        let links = self.links.iter().map(|watched| LinkFrame {
            name: watched.series.name.clone(),
            rate_bps: watched.series.down_rate_bps,
            now_bps: watched
                .status
                .as_ref()
                .map_or(0.0, |status| status.traffic.rx_bps),
            state: watched.state,
            flows: watched
                .status
                .as_ref()
                .map_or(0, |status| status.flows.live),
        });
        Frame {
            elapsed_s: self.epoch.elapsed().as_secs_f64(),
            links: links.collect(),
            transfers: self.transfers,
        }
    }

    pub fn into_evidence(self, plan: &Plan, transfers: Vec<Transfer>, lab: LabReport) -> Evidence {
        let links = self.links.iter().map(|watched| {
            let (bytes, flows) = watched.status.as_ref().map_or((0, 0), |status| {
                (status.traffic.rx_bytes, status.flows.opened)
            });
            DemoLink {
                name: watched.series.name.clone(),
                rate_bps: watched.series.down_rate_bps,
                bytes: bytes - watched.before.0,
                flows: flows - watched.before.1,
            }
        });
        Evidence {
            policy: plan.policy.to_string(),
            workload: plan.workload.to_string(),
            duration_s: self.duration_s,
            links: links.collect(),
            cut: self.cut,
            events: self.events,
            series: self
                .links
                .into_iter()
                .map(|watched| watched.series)
                .collect(),
            transfers,
            lab,
        }
    }
}

/// What the gateway believes, in the words of results.
fn belief(state: Found) -> LinkState {
    match state {
        Found::Up | Found::Drained => LinkState::Up,
        Found::PossiblyDown => LinkState::Suspect,
        Found::Down | Found::Absent | Found::Disabled => LinkState::Down,
    }
}
