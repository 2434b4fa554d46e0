//! Answers requests, and carries out orders of the operator.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;

use anabranch_api::{
    Explained, Explanation, GatewayStatus, LinkAction, PassedRule, PrefixesStatus, Proto, Response,
    Status,
};
use anabranch_core::rules::{Moment, Sample, Trial};
use anabranch_core::{Admin, ClassId};
use tokio::sync::oneshot;

use super::{GatewayRole, Surroundings, view};
use crate::config::Config;
use crate::plane::{self, Plane, Walk};

impl<P: Plane, S: Surroundings> GatewayRole<P, S> {
    pub(super) fn tell_status(&mut self, reply: oneshot::Sender<Response>) {
        match self.status() {
            Ok(status) => {
                let head = self.shell.status();
                count_prefixes(self.plane.walker(), head, Box::new(status), reply);
            }
            Err(error) => {
                let message = error.to_string();
                // The client may have disconnected.
                let _ = reply.send(Response::Failed { message });
            }
        }
    }

    fn status(&mut self) -> Result<GatewayStatus, plane::Error> {
        let classes = self.plane.class_counters()?;
        let mut status = view::status(self, &classes)?;
        status.prefixes.listed = self.driver.listed().len() as u64;
        status.prefixes.asked = self.driver.asked();
        Ok(status)
    }

    pub(super) fn explain(&mut self, from: SocketAddr, to: SocketAddr, proto: Proto) -> Response {
        match self.plane.explain(from, to, proto) {
            Ok(explanation) => {
                Response::Explanation(Box::new(self.explained(from, to, proto, explanation)))
            }
            Err(error) => Response::Failed {
                message: error.to_string(),
            },
        }
    }

    /// Adds the name of the class, and the rules that do not match.
    fn explained(
        &self,
        from: SocketAddr,
        to: SocketAddr,
        proto: Proto,
        explanation: Explanation,
    ) -> Explained {
        let id = ClassId(explanation.class);
        let name = self.classes.name(id);
        let name = name.map_or_else(|| format!("#{}", id.0), str::to_owned);
        let sample = Sample {
            from: Some(from.ip()),
            source_port: from.port(),
            to: to.ip(),
            port: to.port(),
            protocol: proto.number(),
            dscp: 0,
            device: Some(self.config.lan[0].clone()).filter(|_| self.config.lan.len() == 1),
        };
        let passed = if explanation.bound {
            Vec::new()
        } else {
            passed(&self.config, &sample, self.surroundings.moment(), &name)
        };
        Explained {
            granularity: self.config.algorithm(&name).granularity_word().to_owned(),
            class: name,
            passed,
            explanation,
        }
    }

    pub(super) fn order(
        &mut self,
        name: &str,
        action: LinkAction,
        force: bool,
    ) -> anyhow::Result<Response> {
        let refuse = |message| Ok(Response::Refused { message });
        let Some(id) = self.slots.id(name) else {
            let names: Vec<&str> = self.config.names().collect();
            return refuse(format!("no link {name:?}; there are: {}", names.join(", ")));
        };
        if action != LinkAction::Up && !force && self.driver.is_last(id) {
            return refuse(format!(
                "link {name} is the last that works: without it no new flow is forwarded; --force orders it nevertheless"
            ));
        }
        let before = self.orders.clone();
        self.orders.set(name, action);
        if let Err(error) = self.surroundings.keep_orders(&self.orders) {
            self.orders = before;
            return refuse(format!(
                "link {name} is as it was, as no order can be kept: {error:#}; make room there, then order again"
            ));
        }
        let now = self.shell.now();
        self.driver.set_admin(now, id, admin(action));
        tracing::info!("link {name} {}, by order", words(action));
        Ok(Response::Done)
    }
}

pub(super) fn list_flows(walker: Arc<impl Walk>, limit: usize, reply: oneshot::Sender<Response>) {
    answer_later(reply, move || {
        let mut flows = walker.flows()?;
        let total = flows.len();
        flows.truncate(limit);
        Ok(Response::Flows { total, flows })
    });
}

pub(super) fn list_prefixes(
    walker: Arc<impl Walk>,
    listed: BTreeSet<String>,
    rows: usize,
    reply: oneshot::Sender<Response>,
) {
    answer_later(reply, move || {
        let mut prefixes = walker.prefixes()?;
        for row in &mut prefixes {
            row.listed = listed.contains(&row.prefix);
        }
        let total = prefixes.len();
        prefixes.truncate(rows);
        Ok(Response::Prefixes {
            total,
            limit: walker.prefixes_max(),
            prefixes,
        })
    });
}

fn count_prefixes(
    walker: Arc<impl Walk>,
    head: Status,
    mut status: Box<GatewayStatus>,
    reply: oneshot::Sender<Response>,
) {
    answer_later(reply, move || {
        status.prefixes = PrefixesStatus {
            known: walker.known_prefixes()?,
            limit: walker.prefixes_max(),
            ..status.prefixes
        };
        Ok(Response::Status(Box::new(Status {
            gateway: Some(status),
            ..head
        })))
    });
}

/// Answers in another task, because reading a table may take long.
fn answer_later(
    reply: oneshot::Sender<Response>,
    read: impl FnOnce() -> Result<Response, plane::Error> + Send + 'static,
) {
    tokio::task::spawn_blocking(move || {
        let response = read().unwrap_or_else(|error| Response::Failed {
            message: error.to_string(),
        });
        // The client may have disconnected.
        let _ = reply.send(response);
    });
}

/// The rules before that of `class`, each with what it requires and the flow does not have.
fn passed(config: &Config, sample: &Sample, at: Moment, class: &str) -> Vec<PassedRule> {
    // Rules that do not compile were refused with the configuration.
    let Ok(mut trial) = Trial::new(&config.rules, &config.lan) else {
        return Vec::new();
    };
    let verdict = trial.verdict(sample, at);
    let before = config.rules.iter().take_while(|rule| rule.name() != class);
    let passed = before
        .zip(&verdict.passed)
        .map(|(rule, missed)| PassedRule {
            rule: rule.name().to_owned(),
            because: rule.misses(missed, sample, Some(at)),
        });
    passed.collect()
}

pub(super) fn admin(action: LinkAction) -> Admin {
    match action {
        LinkAction::Drain => Admin::Drain,
        LinkAction::Up => Admin::Up,
        LinkAction::Down => Admin::Down,
    }
}

pub(super) fn words(action: LinkAction) -> &'static str {
    match action {
        LinkAction::Drain => "drained: it takes no new flows",
        LinkAction::Up => "in use",
        LinkAction::Down => "out of use",
    }
}
