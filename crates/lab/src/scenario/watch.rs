//! What is known of a run while it goes on: bytes from the lines, states and flows from the gateway.

use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

use anabranch_api::{LinkState as Found, LinkStatus, PathStatus, Status, Traffic};
use anabranch_scenario::{
    Change, Direction, Event, EventKind, Fault, LinkPlan, LinkReading, LinkSeries, LinkState, Site,
    format,
};
use anabranch_workload::client::TransferEvent;

use crate::daemon::Daemon;
use crate::topology::{Lab, Result};

/// A look at a run.
#[derive(Debug)]
pub struct Moment<'a> {
    /// Since the epoch.
    pub elapsed: Duration,
    /// In the order of the scenario.
    pub links: Vec<&'a LinkNow>,
    /// So far.
    pub transfers: Transfers,
    /// What has happened since the moment before.
    pub news: &'a [Event],
}

/// A link at one moment, as the gateway sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct LinkNow {
    /// As in the scenario.
    pub name: String,
    /// Of the line, towards the users.
    pub rate_bps: u64,
    /// Of each family that it has, IPv4 first.
    pub paths: Vec<PathNow>,
    /// Towards the users, over the last second.
    pub now_bps: f64,
    /// Of balanced flows towards the users, since the run began.
    pub bytes: u64,
    /// Alive.
    pub flows: u64,
    /// Since the run began.
    pub opened: u64,
}

impl LinkNow {
    /// Its path is in this state; the one before. A path is up until something else is known.
    fn change(&mut self, path: &PathStatus, state: LinkState) -> LinkState {
        let mut known = self.paths.iter_mut();
        match known.find(|known| known.family == path.family) {
            Some(known) => std::mem::replace(&mut known.state, state),
            None => {
                let family = path.family.clone();
                self.paths.push(PathNow { family, state });
                LinkState::Up
            }
        }
    }

    /// As of the first of its families.
    fn state(&self) -> LinkState {
        self.paths.first().map_or(LinkState::Up, |path| path.state)
    }
}

/// A link at one moment, for packets of a family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathNow {
    /// `IPv4` or `IPv6`.
    pub family: String,
    /// As the gateway judges it.
    pub state: LinkState,
}

/// Transfers by their fate so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Transfers {
    /// Begun, not ended.
    pub running: u64,
    /// Whole.
    pub done: u64,
    /// Ended otherwise.
    pub failed: u64,
}

impl Transfers {
    fn take_in(&mut self, event: &TransferEvent) {
        match event {
            TransferEvent::Started { .. } => self.running += 1,
            TransferEvent::Progress { .. } => {}
            TransferEvent::Finished(transfer) => {
                self.running = self.running.saturating_sub(1);
                self.done += u64::from(transfer.outcome.is_ok());
                self.failed += u64::from(transfer.outcome.is_failure());
            }
        }
    }
}

/// The evidence as it grows.
pub(super) struct Watch {
    epoch: Instant,
    /// Since the epoch, so mostly before it.
    daemon_started_s: Option<f64>,
    links: Vec<Watched>,
    events: Vec<Event>,
    /// Events that moments have told.
    told: usize,
    transfers: Transfers,
}

struct Watched {
    series: LinkSeries,
    now: LinkNow,
    /// Counters of the gateway when the run began: bytes and flows.
    before: Option<(u64, u64)>,
    /// When the line was cut, while it is.
    cut_s: Option<f64>,
}

impl Watched {
    fn new(link: &LinkPlan) -> Self {
        Self {
            series: LinkSeries::new(&link.name, link.down.rate_bps, link.up.rate_bps),
            now: LinkNow {
                name: link.name.clone(),
                rate_bps: link.down.rate_bps,
                paths: Vec::new(),
                now_bps: 0.0,
                bytes: 0,
                flows: 0,
                opened: 0,
            },
            before: None,
            cut_s: None,
        }
    }

    /// Takes in the gateway's word, and tells of changes of state.
    fn take_in(&mut self, status: &LinkStatus, now_s: f64) -> Vec<Event> {
        let Traffic {
            rx_bytes, rx_bps, ..
        } = status.traffic;
        let (bytes, opened) = *self.before.get_or_insert((rx_bytes, status.flows.opened));
        let had_flows = self.now.flows;
        self.now.now_bps = rx_bps;
        self.now.bytes = rx_bytes.saturating_sub(bytes);
        self.now.flows = status.flows.live;
        self.now.opened = status.flows.opened.saturating_sub(opened);
        let are_several = status.paths.len() > 1;
        let changes = status.paths.iter().filter_map(|path| {
            let state = belief(path.state);
            let former = self.now.change(path, state);
            let since_s = (now_s - changed_s_ago(former, state, path.since_s)).max(0.0);
            let name = match are_several {
                true => format!("{} ({})", self.now.name, path.family),
                false => self.now.name.clone(),
            };
            (state != former).then_some((name, state, since_s))
        });
        let changes: Vec<_> = changes.collect();
        let events = changes.into_iter();
        let event = |(name, state, since_s)| self.changed(name, state, since_s, had_flows);
        events.map(event).collect()
    }

    /// `name` is the link's, with the family that is meant.
    fn changed(&self, name: String, state: LinkState, since_s: f64, flows: u64) -> Event {
        let after = |cut_s: f64| format!(" {} after the cut", seconds(since_s - cut_s));
        let (kind, text) = match state {
            LinkState::Up => (EventKind::Up, format!("{name} is up")),
            LinkState::Suspect => (
                EventKind::Suspect,
                format!("{name} is suspected and probed"),
            ),
            LinkState::Captive => (EventKind::Suspect, format!("{name} is captive")),
            LinkState::Down => {
                let after = self.cut_s.map(after).unwrap_or_default();
                let text = format!("{name} is declared down{after}; it had {flows} flows");
                (EventKind::Down, text)
            }
        };
        Event {
            t_s: since_s,
            kind,
            link: Some(self.now.name.clone()),
            text,
        }
    }
}

impl Watch {
    pub(super) fn new(site: &Site, epoch: Instant) -> Self {
        Self {
            epoch,
            daemon_started_s: None,
            links: site.links.iter().map(Watched::new).collect(),
            events: Vec::new(),
            told: 0,
            transfers: Transfers::default(),
        }
    }

    /// Takes in what the clients tell. False when they have no more to tell, because the load has ended.
    pub(super) fn take_transfers(&mut self, events: &Receiver<TransferEvent>) -> bool {
        loop {
            match events.try_recv() {
                Ok(event) => self.transfers.take_in(&event),
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return false,
            }
        }
    }

    /// Takes in what has happened to the lines.
    pub(super) fn take_faults(&mut self, happened: &Receiver<Fault>) {
        for fault in happened.try_iter() {
            let event = Event::of(&fault);
            let concerned = |link: &&mut Watched| link.now.name == fault.link;
            if let Some(link) = self.links.iter_mut().find(concerned) {
                match fault.change {
                    Change::Cut => link.cut_s = Some(event.t_s),
                    Change::Restore => link.cut_s = None,
                    _ => {}
                }
            }
            self.events.push(event);
        }
    }

    /// Looks at the lines and asks the gateway, if it can be asked. Of others neither flows nor beliefs are known.
    pub(super) fn look(&mut self, lab: &Lab, daemon: Option<&mut Daemon>) -> Result<()> {
        if let Some(daemon) = daemon {
            let status = daemon.status()?;
            self.hear(&status);
        }
        for link in &mut self.links {
            let line = lab.link(&link.now.name)?;
            let looked_s = self.epoch.elapsed().as_secs_f64();
            let [down, up] = [Direction::Down, Direction::Up].map(|way| line.fates(way));
            let reading = LinkReading {
                down_bytes: down?.delivered.bytes,
                up_bytes: up?.delivered.bytes,
                opened: link.now.opened,
                flows: link.now.flows,
                state: link.now.state(),
            };
            link.series.push(looked_s, reading);
        }
        Ok(())
    }

    fn hear(&mut self, status: &Status) {
        let heard_s = self.epoch.elapsed().as_secs_f64();
        let started_s = *self
            .daemon_started_s
            .get_or_insert(heard_s - status.uptime_s);
        // By the daemon's own clock: how long its answer took to get here says nothing about it.
        let now_s = started_s + status.uptime_s;
        for link in &mut self.links {
            let told = |told: &&LinkStatus| told.name == link.now.name;
            let mut links = status.gateway.iter().flat_map(|gateway| &gateway.links);
            if let Some(told) = links.find(told) {
                self.events.extend(link.take_in(told, now_s));
            }
        }
    }

    /// What there is to show since the last call.
    pub(super) fn moment(&mut self) -> Moment<'_> {
        let told = std::mem::replace(&mut self.told, self.events.len());
        Moment {
            elapsed: self.epoch.elapsed(),
            links: self.links.iter().map(|link| &link.now).collect(),
            transfers: self.transfers,
            news: &self.events[told..],
        }
    }

    pub(super) fn into_evidence(mut self) -> (Vec<LinkSeries>, Vec<Event>) {
        self.events.sort_by(|a, b| a.t_s.total_cmp(&b.t_s));
        let series = self.links.into_iter().map(|link| link.series);
        (series.collect(), self.events)
    }
}

/// What the gateway believes, in the words of results.
fn belief(state: Found) -> LinkState {
    match state {
        Found::Up | Found::Drained => LinkState::Up,
        Found::PossiblyDown => LinkState::Suspect,
        Found::Captive => LinkState::Captive,
        Found::Down | Found::Absent | Found::Disabled => LinkState::Down,
    }
}

/// The daemon says how long ago a link was lost or came back, which is more exact than when it was asked. When a suspicion
/// arose or was cleared it does not say.
fn changed_s_ago(former: LinkState, state: LinkState, since_s: f64) -> f64 {
    match (former, state) {
        (_, LinkState::Suspect) | (LinkState::Suspect, LinkState::Up) => 0.0,
        _ => since_s,
    }
}

/// For sentences: not every terminal has a glyph for the narrow space of reports.
fn seconds(time_s: f64) -> String {
    format::seconds(time_s).replace('\u{202f}', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suspicion_is_as_old_as_the_look_and_a_loss_as_the_daemon_says() {
        use LinkState::{Down, Suspect, Up};
        let up_for_s = 60.0;
        assert_eq!(changed_s_ago(Up, Suspect, up_for_s), 0.0);
        assert_eq!(changed_s_ago(Suspect, Up, up_for_s), 0.0);
        assert_eq!(changed_s_ago(Suspect, Down, 0.2), 0.2);
        assert_eq!(changed_s_ago(Down, Up, 0.1), 0.1);
    }
}
