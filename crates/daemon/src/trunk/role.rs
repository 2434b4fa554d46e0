//! The loop of a trunk.

use std::collections::BTreeMap;

use anabranch_core::multilink::{Bins, Controller, Queue, Spread, SublinkId, Wakeup};
use anabranch_core::{Family, ReasonCount};
use anabranch_policy::abi::{MAX_LINKS, Spreading, Sublinks, Traffic};
use anyhow::Context;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tracing::Span;

use super::config::Config;
use super::plane::{Plane, Surroundings};
use super::queues::DeviceQueue;
use super::view::View;
use crate::config::{Configuration, TRUNK};
use crate::control::Call;
use crate::error::Error;
use crate::meter::Meter;
use crate::shell::{NEVER, Role, Shell, tell_status};
use anabranch_api::{Request, Response, Status, SublinkStatus, TrunkStatus};

/// A trunk, and the state of its loop.
pub(crate) struct TrunkRole<P, S> {
    shell: Shell,
    config: Config,
    plane: P,
    surroundings: S,
    bins: Bins,
    /// For DH and DHFV.
    controller: Option<Controller>,
    reassignments: u64,
    view: View,
    queues: BTreeMap<u32, DeviceQueue>,
    meter: Meter,
}

impl<P: Plane, S: Surroundings> TrunkRole<P, S> {
    /// Nothing is written or changed yet.
    pub(crate) fn new(
        config: Config,
        instance: &str,
        (plane, adopted): (P, bool),
        surroundings: S,
    ) -> anyhow::Result<Self> {
        if adopted {
            tracing::info!("took over the trunk of an earlier run");
        }
        let mut role = Self {
            shell: Shell::new(instance, adopted),
            bins: Bins::new(config.sublinks.len())?,
            config,
            plane,
            surroundings,
            controller: None,
            reassignments: 0,
            view: View::default(),
            queues: BTreeMap::new(),
            meter: Meter::default(),
        };
        role.fill_bins()?;
        Ok(role)
    }

    /// Takes over the table if it has the same number of sublinks, otherwise fills a new one; and creates the controller that
    /// maintains it.
    fn fill_bins(&mut self) -> anyhow::Result<()> {
        let count = self.config.sublinks.len();
        self.bins = if self.plane.spreading()?.sublinks[0].count == count as u32 {
            Bins::adopt(count, &self.plane.table()?)?
        } else {
            Bins::new(count)?
        };
        let (bins, parameters, now) =
            (self.bins.clone(), &self.config.parameters, self.shell.now());
        self.controller = match self.config.scheme {
            Spread::Dh => Some(Controller::dh(bins, parameters, now)?),
            Spread::Dhfv => {
                let volumes = self.plane.volumes()?;
                Some(Controller::dhfv(bins, parameters, now, &volumes)?)
            }
            _ => None,
        };
        Ok(())
    }

    // ---- time passes

    fn move_bins(&mut self) -> anyhow::Result<()> {
        let (now, queues) = (self.shell.now(), self.sublink_queues());
        let Some(controller) = &mut self.controller else {
            return Ok(());
        };
        let moves = controller.check_queues(now, &queues, rand::random);
        if moves.is_empty() {
            return Ok(());
        }
        self.bins = controller.bins().clone();
        self.plane.set_table(self.bins.table())?;
        self.reassignments += moves.len() as u64;
        for moved in moves {
            tracing::debug!(
                "bin {} from {} to {}",
                moved.bin.index(),
                self.config.sublinks[moved.from.index()].name,
                self.config.sublinks[moved.to.index()].name
            );
        }
        Ok(())
    }

    // ---- queues

    /// Reads the queues. What cannot be read keeps its last value.
    async fn read_queues(&mut self) {
        let queues = self.surroundings.queues().await;
        if let Some(queues) = self.shell.done(queues.context("queues")) {
            self.queues = queues;
        }
    }

    fn queue_of(&self, sublink: usize) -> Option<&DeviceQueue> {
        let path = self.view.sublinks.get(sublink)?.path?;
        self.queues.get(&path.ifindex)
    }

    fn sublink_queues(&self) -> Vec<Queue> {
        let usable = Family::ALL.map(|family| self.view.usable(family));
        let usable = usable[0] | usable[1];
        let sublinks = self.config.sublinks.iter().enumerate();
        sublinks
            .map(|(i, sublink)| {
                let queue = self.queue_of(i);
                let limit_bytes = queue.and_then(|queue| queue.limit_bytes);
                Queue {
                    length_bytes: queue.map_or(0, |queue| queue.length_bytes),
                    // A queue with a buffer of unknown size never counts as overloaded.
                    buffer_bytes: sublink.buffer_bytes(limit_bytes).unwrap_or(u64::MAX),
                    usable: usable >> i & 1 == 1,
                }
            })
            .collect()
    }

    // ---- the host changes

    /// Inspects the host, and writes the differences to the program's maps.
    async fn look(&mut self) -> anyhow::Result<()> {
        self.shell.troubles.begin_look();
        let snapshot = self.surroundings.snapshot().await;
        let Some(snapshot) = self.shell.done(snapshot.context("host")) else {
            return Ok(());
        };
        let view = View::derive(&self.config, &snapshot);
        self.tell_changes(&view);
        self.surroundings.watch(view.running());
        self.view = view;
        self.tell_sublinks()?;
        self.plane.set_spreading(&self.spreading())?;
        self.attach();
        let config = &self.config;
        let present = config
            .sublinks
            .iter()
            .filter(|sublink| snapshot.devices.contains_key(&sublink.device));
        let devices: Vec<&str> = present.map(|sublink| sublink.device.as_str()).collect();
        let loosened = self.surroundings.loosen(&devices);
        self.shell.done(loosened.context("host"));
        let is_all_told = self.shell.troubles.is_clear();
        let kept = self.surroundings.keep_claims(&self.config, is_all_told);
        self.shell.done(kept);
        Ok(())
    }

    fn tell_changes(&self, view: &View) {
        let before = self.view.sublinks.iter().map(|s| s.missing.as_ref());
        let before = before.map(Some).chain(std::iter::repeat(None));
        for ((sublink, after), before) in
            self.config.sublinks.iter().zip(&view.sublinks).zip(before)
        {
            if before == Some(after.missing.as_ref()) {
                continue;
            }
            match &after.missing {
                Some(missing) => {
                    tracing::warn!("sublink {} out of use: {missing}", sublink.name);
                }
                None => tracing::info!("sublink {} in use", sublink.name),
            }
        }
    }

    fn tell_sublinks(&mut self) -> anyhow::Result<()> {
        for i in 0..MAX_LINKS {
            let path = self.view.sublinks.get(i).and_then(|sublink| sublink.path);
            self.plane.set_sublink(SublinkId(i as u16), path)?;
        }
        Ok(())
    }

    fn spreading(&self) -> Spreading {
        let sublinks = Family::ALL.map(|family| Sublinks {
            count: self.config.sublinks.len() as u32,
            usable: self.view.usable(family),
            weight: self.config.weights(),
            ..Sublinks::default()
        });
        Spreading {
            sublinks,
            spread: self.config.scheme.program().into(),
            flowlet_gap_ns: u64::try_from(self.config.flowlet_gap.as_nanos()).unwrap_or(u64::MAX),
            quantum: self.config.quanta(),
            ..Spreading::default()
        }
    }

    /// Attaches the program to the trunk device, and detaches it from all others.
    fn attach(&mut self) {
        let attached = match self.view.ifindex {
            Some(ifindex) => self.attach_to(ifindex).map_err(|error| error.to_string()),
            None => Err(format!("{}: no such device", self.config.device)),
        };
        if let Err(trouble) = attached {
            self.shell.report_and_retry(&trouble);
        }
    }

    fn attach_to(&mut self, ifindex: u32) -> Result<(), anabranch_dataplane::Error> {
        for other in self.plane.attached()? {
            if other != ifindex {
                self.plane.detach(other)?;
            }
        }
        self.plane.attach(ifindex)
    }

    fn status(&self) -> Result<Status, anabranch_dataplane::Error> {
        let carried = self.plane.carried()?;
        let total: u64 = carried.iter().map(|sublink| sublink.bytes).sum();
        let reasons = ReasonCount::by_frequency(self.plane.reasons()?);
        let sublinks = self.config.sublinks.iter().enumerate();
        let sublinks = sublinks.map(|(i, sublink)| {
            let view = self.view.sublinks.get(i);
            let queue = self.queue_of(i).cloned().unwrap_or_default();
            let missing = view.and_then(|view| view.missing.as_ref());
            SublinkStatus {
                name: sublink.name.clone(),
                device: sublink.device.clone(),
                via: view
                    .and_then(|view| view.path)
                    .map_or_else(Vec::new, |path| path.next_hop.addresses()),
                usable: missing.is_none(),
                why: missing.map(ToString::to_string),
                rate_bps: sublink.rate.map(|rate| rate.bps()),
                packets: carried[i].packets,
                bytes: carried[i].bytes,
                opened: carried[i].opened,
                tx_bps: self.meter.rate(i).tx_bps,
                share: carried[i].bytes as f64 / total.max(1) as f64,
                bins: self.bins.of(SublinkId(i as u16)).count(),
                queue_bytes: queue.length_bytes,
                queue_packets: queue.length_packets,
                buffer_bytes: sublink.buffer_bytes(queue.limit_bytes),
                sent_bytes: queue.sent_bytes,
                sent_packets: queue.sent_packets,
                dropped_packets: queue.dropped_packets,
            }
        });
        let status = TrunkStatus {
            adopted: self.shell.adopted,
            troubles: self.troubles(),
            device: self.config.device.clone(),
            scheme: self.config.scheme.row().name.to_owned(),
            sublinks: sublinks.collect(),
            reassignments: self.reassignments,
            reasons,
        };
        Ok(Status {
            trunk: Some(Box::new(status)),
            ..self.shell.status()
        })
    }
}

impl<P: Plane, S: Surroundings> Role for TrunkRole<P, S> {
    type Config = Config;
    const NAME: &'static str = TRUNK;
    const AT_WORK: &'static str = "spreading";

    fn span() -> Span {
        tracing::error_span!(TRUNK)
    }

    fn config_of(configuration: &Configuration) -> Option<Config> {
        configuration.trunk.clone()
    }

    async fn start(&mut self) -> anyhow::Result<()> {
        self.plane.set_table(self.bins.table())?;
        self.look().await?;
        let is_attached = match self.view.ifindex {
            Some(ifindex) => self.plane.attached()?.contains(&ifindex),
            None => false,
        };
        let troubles: Vec<&str> = self.shell.troubles.met().collect();
        anyhow::ensure!(
            is_attached,
            "trunk {} could not be set up: {}",
            self.config.device,
            troubles.join("; ")
        );
        Ok(())
    }

    fn shell(&self) -> &Shell {
        &self.shell
    }

    fn troubles(&self) -> Vec<String> {
        self.shell.standing()
    }

    async fn event(&mut self) -> anyhow::Result<()> {
        self.surroundings.changed().await?;
        self.shell.look_soon();
        Ok(())
    }

    fn tick(&mut self) -> anyhow::Result<()> {
        let carried = self.plane.carried()?;
        let traffic = carried.iter().map(|sublink| Traffic {
            tx_packets: sublink.packets,
            tx_bytes: sublink.bytes,
            ..Traffic::default()
        });
        self.meter.tick(self.shell.uptime(), traffic);
        self.shell.look_again_after_trouble();
        Ok(())
    }

    fn turn_at(&self) -> Instant {
        match &self.controller {
            Some(controller) => self.shell.instant(controller.wakeup().0),
            None => Instant::now() + NEVER,
        }
    }

    /// Inspects the host if it changed, gives the controller what it waits for, and writes the bins that move.
    async fn turn(&mut self) -> anyhow::Result<()> {
        if self.shell.take_look() {
            self.look().await?;
        }
        let Some((at, wakeup)) = self.controller.as_ref().map(Controller::wakeup) else {
            return Ok(());
        };
        if at > self.shell.now() {
            return Ok(());
        }
        match wakeup {
            Wakeup::Volumes => {
                let volumes = self.plane.volumes()?;
                let now = self.shell.now();
                if let Some(controller) = &mut self.controller {
                    controller.record_volumes(now, &volumes);
                }
            }
            Wakeup::Queues => {
                self.read_queues().await;
                self.move_bins()?;
            }
        }
        Ok(())
    }

    async fn answer(&mut self, (request, reply): Call) -> anyhow::Result<()> {
        if request != Request::Status {
            return Ok(());
        }
        self.read_queues().await;
        tell_status(self.status(), reply);
        Ok(())
    }

    async fn check_config(&mut self, config: &Config) -> Result<(), Error> {
        self.surroundings.check(config).await
    }

    async fn adopt_config(
        &mut self,
        config: Config,
        reply: oneshot::Sender<Response>,
    ) -> anyhow::Result<()> {
        self.config = config;
        self.view = View::default();
        self.fill_bins()?;
        self.plane.set_table(self.bins.table())?;
        self.look().await?;
        tracing::info!(
            "configuration reloaded: {} sublinks, {}",
            self.config.sublinks.len(),
            self.config.scheme.row().name
        );
        // The client may have disconnected.
        let _ = reply.send(Response::Done);
        Ok(())
    }

    async fn close(self) -> anyhow::Result<()> {
        let closed = self.plane.close().context("detach the trunk");
        let restored = self.surroundings.restore().await;
        restored.context("put the host back")?;
        closed
    }
}
