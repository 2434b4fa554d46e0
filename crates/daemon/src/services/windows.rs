//! Windows of time, for policies that go by what servers did in the last one.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use anabranch_core::served::{Counted, Served, Windows};
use anabranch_dataplane::services::Services;
use anabranch_policy::abi::{Gauges, Meter};
use tokio::time::Instant;

use super::config::Service;
use super::{Placed, PlacedServer, ServicesRole};

/// The windows of a service.
pub(super) struct Window {
    began: Instant,
    ends: Instant,
    servers: BTreeMap<SocketAddr, (Windows, Served)>,
}

impl Window {
    fn begin(now: Instant, lasts: Duration) -> Self {
        Self {
            began: now,
            ends: now + lasts,
            servers: BTreeMap::new(),
        }
    }

    /// Ends it and begins the next. A server that was not there before has done nothing.
    fn end(&mut self, now: Instant, lasts: Duration, counted: BTreeMap<SocketAddr, Counted>) {
        let lasted = now - self.began;
        let servers = counted.into_iter().map(|(server, counted)| {
            let before = self.servers.remove(&server).map(|(windows, _)| windows);
            let mut windows = before.unwrap_or_else(|| Windows::begin(counted));
            let served = windows.end(counted, lasted);
            (server, (windows, served))
        });
        let servers = servers.collect();
        *self = Self {
            servers,
            ..Self::begin(now, lasts)
        };
    }
}

impl ServicesRole {
    /// What a server did in the last window, and how its last check went.
    pub(super) fn served(&self, service: &Service, server: SocketAddr) -> Served {
        let window = self.windows.get(&service.name);
        let served = window.and_then(|window| window.servers.get(&server));
        let check_time = service
            .policy
            .goes_by_checks()
            .then(|| self.checks.took(&(service.name.clone(), server)));
        let served = served.map(|(_, served)| *served).unwrap_or_default();
        let polled = self.polling.load(&service.name, server);
        Served {
            open: polled.unwrap_or(served.open),
            check_time: check_time.flatten(),
            ..served
        }
    }

    /// When the next window ends.
    pub(super) fn window_ends(&self) -> Option<Instant> {
        self.windows.values().map(|window| window.ends).min()
    }

    /// Begins windows of services that need them, and ends those of others.
    pub(super) fn adopt_windows(&mut self) {
        let now = Instant::now();
        let measured = self.config.services.iter().filter_map(|service| {
            let lasts = service.window?;
            let window = self.windows.remove(&service.name);
            let window = window.unwrap_or_else(|| Window::begin(now, lasts));
            Some((service.name.clone(), window))
        });
        self.windows = measured.collect();
    }

    /// Ends the windows that are over, and writes what follows from them.
    pub(super) fn end_windows(&mut self) -> anyhow::Result<()> {
        let now = Instant::now();
        for service in self.config.services.clone() {
            let window = self.windows.get_mut(&service.name);
            let (Some(lasts), Some(window)) = (service.window, window) else {
                continue;
            };
            if now < window.ends {
                continue;
            }
            let placed = self.placed.get(&service.name);
            let counted = placed.map(|placed| counted(&self.plane, placed));
            window.end(now, lasts, counted.transpose()?.unwrap_or_default());
            self.tell_choices_again(&service)?;
        }
        Ok(())
    }
}

/// What the programs have counted of each server.
fn counted(
    plane: &Services,
    placed: &Placed,
) -> Result<BTreeMap<SocketAddr, Counted>, anabranch_dataplane::Error> {
    let gauges = plane.gauges(placed.id)?;
    let servers = placed.servers.iter();
    let counted = servers.map(|(endpoint, server)| {
        let meter = plane.meter(placed.id, server.id)?;
        Ok((*endpoint, counted_of(&gauges, server, &meter)))
    });
    counted.collect()
}

fn counted_of(gauges: &Gauges, server: &PlacedServer, meter: &Meter) -> Counted {
    Counted {
        sent_bytes: meter.sent_bytes,
        answers: meter.answers,
        answering: Duration::from_micros(meter.answering_us),
        open: gauges.target[server.id.index()].active(),
    }
}
