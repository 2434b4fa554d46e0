//! Inspects the host, and keeps its routes, rules and fallback in line with the links.

use anabranch_core::rules::{Class, WhenNone, active};
use anabranch_core::{ClassId, Family, LinkId, Reach, TargetSpec};
use anabranch_policy::PerFamily;
use anyhow::Context;

use super::{GatewayRole, Surroundings};
use crate::host::{RuleWay, Way, Ways};
use crate::observe::Desired;
use crate::plane::Plane;
use anabranch_core::checks::ProbeTarget;

impl<P: Plane, S: Surroundings> GatewayRole<P, S> {
    /// Inspects the host, and writes to the data path what has changed.
    pub(super) async fn look(&mut self) -> anyhow::Result<()> {
        self.shell.troubles.begin_look();
        self.keep_state();
        let snapshot = self.surroundings.snapshot().await;
        let Some(mut snapshot) = self.shell.done(snapshot.context("host")) else {
            return Ok(());
        };
        self.uses.tell(&self.config, &self.slots, &mut snapshot);
        let mut wanted = Desired::derive(&self.config, &self.slots, &snapshot);
        let (now, patience) = (self.shell.now(), self.config.availability.grace);
        self.grace.hold(now, patience, &snapshot, &mut wanted);
        self.uses.note(&snapshot, &wanted);
        for (id, view) in &wanted.links {
            for (family, path) in view.paths.iter() {
                let spec = |(target, reach): &(ProbeTarget, Reach)| TargetSpec {
                    reach: *reach,
                    kind: target.kind(),
                };
                let specs: Vec<_> = path.targets.iter().map(spec).collect();
                self.driver.set_targets(*id, family, &specs);
            }
        }
        self.shorten(&mut wanted);
        self.seen = wanted.of_host();
        self.survey.see(&self.config, snapshot);
        // The data path does not use the rules.
        self.told.rules.clone_from(&wanted.rules);
        self.told.beside.clone_from(&wanted.beside);
        let has_turned = self.routed != self.routed_links();
        if wanted != self.told || has_turned || self.shell.has_rest() || self.has_stale_programs() {
            self.tell(wanted)?;
        }
        self.ways = self.ways();
        // Repeated even without a change, because another program may have flushed the routing rules.
        self.apply_to_host().await;
        let has_stale_programs = self.has_stale_programs();
        let kept = self
            .surroundings
            .keep_claims(&self.config, has_stale_programs);
        self.shell.done(kept);
        Ok(())
    }

    /// Lowers the MTU of links on which longer packets vanish, so that the MSS of new TCP connections is lowered to it.
    fn shorten(&mut self, wanted: &mut Desired) {
        let now = self.shell.now();
        for (id, view) in &mut wanted.links {
            for (family, path) in view.paths.iter_mut() {
                let hosts = path.far_hosts().len();
                if let Ok(path) = &mut path.path {
                    self.driver.set_length(now, *id, family, path.mtu, hosts);
                    let found = self.driver.path_mtu(*id, family);
                    path.mtu = path.mtu.min(found.unwrap_or(u32::MAX));
                }
            }
        }
    }

    /// Saves state for the next process. If that fails (the disk is full, for instance), the gateway continues.
    fn keep_state(&mut self) {
        let slots = self.surroundings.keep_slots(&self.slots);
        let orders = slots.and_then(|()| self.surroundings.keep_orders(&self.orders));
        let tested = self.remembered_tests();
        let kept = orders.and_then(|()| self.surroundings.keep_tested(&tested));
        if let Err(error) = kept {
            self.shell.report_and_retry(&format!(
                "{error:#}: make room there, or a crash forgets the orders and what was changed on the host"
            ));
        }
    }

    /// Where the host's own traffic is routed, by the choices of the classes and the active rules.
    pub(super) fn ways(&self) -> Ways {
        let held = match &self.told_rules {
            Some((held, _)) => *held,
            None => active(&self.config.rules, self.surroundings.moment()),
        };
        let rules = self
            .config
            .rules
            .iter()
            .zip(self.classes.of_rules(&self.config));
        let rules = rules.enumerate().filter(|(place, (rule, _))| {
            held & (1 << (place + 1)) != 0 && !rule.matches.own_traffic().is_empty()
        });
        Ways {
            first_usable: PerFamily::from_fn(|family| self.first_usable(ClassId::DEFAULT, family)),
            alive: PerFamily::from_fn(|family| self.driver.alive(family)),
            rules: rules
                .map(|(place, (rule, class))| RuleWay {
                    place,
                    class,
                    way: PerFamily::from_fn(|family| self.way(&rule.class, class, family)),
                })
                .collect(),
        }
    }

    fn way(&self, class: &Class, id: ClassId, family: Family) -> Way {
        match (self.first_usable(id, family), class.when_none) {
            (Some(link), _) => Way::Link(link),
            (None, WhenNone::Drop) => Way::Refused,
            // No link of the default class is left either.
            (None, WhenNone::Any | WhenNone::Kernel) => Way::Kernel,
        }
    }

    fn first_usable(&self, class: ClassId, family: Family) -> Option<LinkId> {
        self.driver.first_usable(&self.config, class, family)
    }

    pub(super) async fn apply_to_host(&mut self) {
        let failed = self
            .surroundings
            .apply(&self.config, &self.seen, &self.ways);
        for error in failed.await {
            self.shell.report_and_retry(&format!("host: {error:#}"));
        }
        let mark = self.surroundings.fallback_mark(&self.config);
        if mark == self.fallback_mark {
            return;
        }
        let set = self.set_settings();
        self.shell.done(set);
    }
}
