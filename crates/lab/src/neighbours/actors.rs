//! Who makes happen what the plan says: one for links and daemon, one for services. Each does one thing at a time.

use std::thread;
use std::time::{Duration, Instant};

use anabranch_api::LinkState;
use anabranch_workload::client::Stop;

use super::flows::Ledger;
use super::ground::{CUSTOMER, Ground, address_customer, address6, route, until};
use super::judge::{Event, Harm, Part};
use super::links::Links;
use super::plan::{Happening, NAMES, Step};
use super::services::{
    Services, flush_policy_table, lead_guest, leave_guest, load_container_rules, load_vpn_rules,
    make_policy_table, stop,
};
use crate::daemon::Daemon;
use crate::topology::ready::within;
use crate::topology::{Result, wan};
use anabranch_testbed::netns;

const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// What passes between a route's going and its return.
const ROUTE_AWAY: Duration = Duration::from_millis(800);
/// For the gateway's own rules of nftables to return.
const GUARDED_AGAIN: Duration = Duration::from_secs(5);
/// For another link to be in use before one is taken away.
const OTHERS: Duration = Duration::from_secs(20);

/// What an actor needs besides what it acts on.
#[derive(Clone, Copy)]
pub(super) struct Stage<'a> {
    pub ground: &'a Ground,
    pub ledger: &'a Ledger,
    pub stop: &'a Stop,
    /// Told of every event as it begins.
    pub tell: &'a (dyn Fn(&str) + Sync),
}

/// When a happening had its effect, and when that was over.
struct Effect {
    done_ms: u64,
    mended_ms: u64,
    harm: Harm,
}

impl Stage<'_> {
    /// Whether the run goes on after this time.
    fn pause(&self, length: Duration) -> bool {
        let end = Instant::now() + length;
        while Instant::now() < end && !self.stop.is_ordered() {
            thread::sleep(LOOK_AGAIN.min(end.saturating_duration_since(Instant::now())));
        }
        !self.stop.is_ordered()
    }

    fn now_ms(&self) -> u64 {
        self.ledger.now_ms()
    }

    fn act(
        &self,
        steps: impl Iterator<Item = Step>,
        mut carry_out: impl FnMut(&Step) -> Result<Effect>,
    ) -> Result<()> {
        for step in steps {
            if !self.pause(Duration::from_millis(step.pause_ms)) {
                break;
            }
            let begun_ms = self.now_ms();
            let what = match step.what.lasts() {
                true => format!("{} for {} ms", step.what, step.hold_ms),
                false => step.what.to_string(),
            };
            (self.tell)(&format!("{:7.1} s  {what}", begun_ms as f64 / 1000.0));
            let effect = carry_out(&step)?;
            self.ledger.record().events.push(Event {
                begun_ms,
                done_ms: effect.done_ms,
                mended_ms: effect.mended_ms,
                what,
                harm: effect.harm,
            });
        }
        // Whoever ends before the order has failed.
        while self.pause(OTHERS) {}
        Ok(())
    }

    /// Does something, and undoes it after a while.
    fn hold(
        &self,
        step: &Step,
        harm: Harm,
        begin: impl FnOnce() -> netns::Result<()>,
        undo: impl FnOnce() -> netns::Result<()>,
    ) -> Result<Effect> {
        begin()?;
        let done_ms = self.now_ms();
        self.pause(Duration::from_millis(step.hold_ms));
        undo()?;
        Ok(Effect {
            done_ms,
            mended_ms: self.now_ms(),
            harm,
        })
    }

    fn wait(&self, what: &str, mut holds: impl FnMut() -> Result<bool>) -> Result<()> {
        until(what, || Ok(self.stop.is_ordered() || holds()?))
    }

    fn at_once(&self, harm: Harm) -> Effect {
        let now_ms = self.now_ms();
        Effect {
            done_ms: now_ms,
            mended_ms: now_ms,
            harm,
        }
    }
}

/// Carries out what happens to links and daemon until the order to stop.
pub(super) fn act_on_links(
    stage: Stage<'_>,
    links: &mut Links,
    steps: impl Iterator<Item = Step>,
) -> Result<()> {
    stage.act(steps, |step| happen_to_link(stage, links, step))
}

fn happen_to_link(stage: Stage<'_>, links: &mut Links, step: &Step) -> Result<Effect> {
    let ground = stage.ground;
    match step.what {
        Happening::Carrier(link) => {
            wait_for_another(stage, links, link);
            let isp = &ground.isps[link];
            let out = || isp.ip(&format!("link set {CUSTOMER} down")).map(drop);
            let back = || {
                isp.ip(&format!("link set {CUSTOMER} up"))?;
                address_customer(link, isp)
            };
            stage.hold(step, Harm::Ends(Part::Link(link)), out, back)
        }
        Happening::Silence(link) => {
            wait_for_another(stage, links, link);
            let isp = &ground.isps[link];
            let out = || isp.nft(SILENCE);
            let back = || {
                isp.exec("nft", &["delete", "table", "netdev", "silence"])
                    .map(drop)
            };
            stage.hold(step, Harm::Ends(Part::Link(link)), out, back)
        }
        Happening::RouteAway(link) => {
            let route = route(link);
            ground.the_box.ip(&format!("route delete {route}"))?;
            stage.pause(ROUTE_AWAY);
            ground.the_box.ip(&format!("route replace {route}"))?;
            Ok(stage.at_once(Harm::Interrupts(Part::Link(link))))
        }
        Happening::Deprecated(link) => {
            let (address, device) = (address6(link, 2), wan(link));
            let set = |preferred: &str| {
                let life = format!("valid_lft forever preferred_lft {preferred}");
                let line = format!("address change {address}/64 dev {device} {life}");
                ground.the_box.ip(&line).map(drop)
            };
            stage.hold(step, Harm::Nothing, || set("0"), || set("forever"))
        }
        Happening::LeaseRenewed(link) => {
            links.renew(link, ground)?;
            Ok(stage.at_once(Harm::Nothing))
        }
        Happening::LeaseChanged(link) => {
            wait_for_another(stage, links, link);
            let given = links.change_lease(link, ground)?;
            stage.wait(&format!("{} has address {given}", NAMES[link]), || {
                Ok(ground.present(link)? == Some(given))
            })?;
            stage.ledger.set_address(link, given);
            Ok(stage.at_once(Harm::Ends(Part::Link(link))))
        }
        Happening::DhcpClientRestarts(link) => {
            links.restart_client(link, ground)?;
            stage.wait(&format!("{} has its address again", NAMES[link]), || {
                Ok(ground.present(link)?.is_some())
            })?;
            Ok(stage.at_once(Harm::Readdresses(link)))
        }
        Happening::DhcpServerRestarts(link) => {
            links.restart_server(link, ground)?;
            Ok(stage.at_once(Harm::Nothing))
        }
        Happening::ShaperRestarts(link) => {
            ground.shape(link)?;
            Ok(stage.at_once(Harm::Nothing))
        }
        Happening::Reload => {
            links.gateway.reload();
            Ok(stage.at_once(Harm::Nothing))
        }
        Happening::Kill => {
            links.gateway.kill()?;
            links.gateway.restart(&ground.the_box)?;
            Ok(stage.at_once(Harm::Nothing))
        }
        Happening::IngressShaper(link) => {
            let (begin, undo) = (
                || ground.shape_ingress(link),
                || ground.unshape_ingress(link),
            );
            stage.hold(step, Harm::Nothing, begin, undo)
        }
        Happening::Stop => {
            links.gateway.stop()?;
            stage.pause(ROUTE_AWAY);
            links.gateway.restart(&ground.the_box)?;
            Ok(stage.at_once(Harm::Ends(Part::Gateway)))
        }
        Happening::Flush => {
            ground.the_box.exec("nft", &["flush", "ruleset"])?;
            stage.pause(ROUTE_AWAY);
            load_vpn_rules(&ground.the_box)?;
            load_container_rules(&ground.the_box)?;
            within(
                GUARDED_AGAIN,
                "the gateway's table of nftables returns",
                || ground.is_guarded(),
            )?;
            Ok(stage.at_once(Harm::Ends(Part::Netfilter)))
        }
        other => unreachable!("{other} is no happening of links"),
    }
}

/// Carries out what happens to services until the order to stop.
pub(super) fn act_on_services(
    stage: Stage<'_>,
    services: &mut Services,
    steps: impl Iterator<Item = Step>,
) -> Result<()> {
    stage.act(steps, |step| happen_to_service(stage, services, step))
}

fn happen_to_service(stage: Stage<'_>, services: &mut Services, step: &Step) -> Result<Effect> {
    let ground = stage.ground;
    let the_box = &ground.the_box;
    match step.what {
        Happening::AnotherMaster => {
            let mut other = services.start_rival(ground)?;
            stage.pause(Duration::from_millis(step.hold_ms));
            stop(&mut other)?;
            stage.wait("the box has the virtual address again", || {
                ground.is_master()
            })?;
            Ok(stage.at_once(Harm::Ends(Part::VirtualAddress)))
        }
        Happening::KeepalivedRestarts => {
            services.restart_keepalived(ground)?;
            stage.wait("the box has the virtual address again", || {
                ground.is_master()
            })?;
            Ok(stage.at_once(Harm::Interrupts(Part::VirtualAddress)))
        }
        Happening::RadvdRestarts => {
            services.restart_radvd(ground)?;
            stage.wait("hosts are told a router again", || ground.hears_router())?;
            Ok(stage.at_once(Harm::Interrupts(Part::Advertisements)))
        }
        Happening::OtherPrefix => {
            services.prefer_other(ground)?;
            stage.wait("hosts are told a router again", || ground.hears_router())?;
            Ok(stage.at_once(Harm::Interrupts(Part::Advertisements)))
        }
        Happening::ContainersReload => {
            load_container_rules(the_box)?;
            Ok(stage.at_once(Harm::Nothing))
        }
        Happening::PolicyTable => {
            flush_policy_table(the_box)?;
            stage.pause(ROUTE_AWAY);
            make_policy_table(the_box)?;
            Ok(stage.at_once(Harm::Interrupts(Part::PolicyTable)))
        }
        Happening::SourceRule(link) => {
            let (begin, undo) = (|| lead_guest(the_box, link), || leave_guest(the_box));
            stage.hold(step, Harm::Steers(link), begin, undo)
        }
        other => unreachable!("{other} is no happening of services"),
    }
}

/// What a modem does that has lost its line: everything that comes, from either side, is lost, but for ARP and neighbour
/// discovery.
const SILENCE: &str = "table netdev silence {
  chain from { type filter hook ingress device customer priority 0;
    icmpv6 type { 133, 134, 135, 136 } accept
    meta protocol { ip, ip6 } drop
  }
  chain to { type filter hook egress device customer priority 0;
    icmpv6 type { 133, 134, 135, 136 } accept
    meta protocol { ip, ip6 } drop
  }
}";

/// Waits until some other link is in use, for a while: what has no alternative cannot fail over.
fn wait_for_another(stage: Stage<'_>, links: &Links, link: usize) {
    let end = Instant::now() + OTHERS;
    while Instant::now() < end && !stage.stop.is_ordered() {
        let status =
            Daemon::connect(links.gateway.instance()).and_then(|mut it| it.gateway_status());
        let others = status.is_ok_and(|status| {
            let up = |it: &&anabranch_api::LinkStatus| {
                it.name != NAMES[link] && it.state == LinkState::Up
            };
            status.links.iter().find(up).is_some()
        });
        if others {
            return;
        }
        thread::sleep(LOOK_AGAIN);
    }
}
