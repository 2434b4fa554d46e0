//! The daemon's interface to the data path, so that its loop can be tested without a kernel.
//!
//! No other module uses [`Gateway`].

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anabranch_api::{Explanation, FlowRow, PrefixRow, Proto, ReasonCount};
use anabranch_core::Question;
use anabranch_core::{ClassCounters, ClassId, ClassSet, DataPlane, Family};
pub use anabranch_core::{Ended, LinkId};
use anabranch_dataplane::Gateway;
pub use anabranch_dataplane::{
    Error, LinkPath, Role, Route, RouteTable, Settings, Sizes, Swept, UNCONFIRMED_PER_HOST,
    Verdict, Walker, Which, beyond,
};
use anabranch_policy::abi::{
    MAX_CLASSES, ROUTES_BEYOND, ROUTES_FOREIGN, ROUTES_HIDDEN, Rules, Traffic,
};

use crate::config::{Config, Forwards, LanSources, UdpFilter};
use crate::observe::Desired;

/// The gateway's data path; each method is that of [`Gateway`].
#[expect(missing_docs, reason = "as of `Gateway`")]
pub trait Plane: DataPlane<Error = Error> {
    type Walker: Walk;
    fn set_settings(&mut self, settings: &Settings) -> Result<(), Error>;
    fn set_link(
        &mut self,
        link: LinkId,
        family: Family,
        path: Option<&LinkPath>,
    ) -> Result<(), Error>;
    fn set_own_macs(&mut self, macs: &BTreeSet<(u32, [u8; 6])>) -> Result<(), Error>;
    fn attach(&mut self, ifindex: u32, role: Role, layer3: bool, mtu: u32) -> Result<(), Error>;
    fn detach(&mut self, ifindex: u32) -> Result<(), Error>;
    fn attached(&self) -> Result<Vec<u32>, Error>;
    fn walker(&self) -> Arc<Self::Walker>;
    /// The names as last set, by this or an earlier process.
    fn class_names(&self) -> Result<BTreeMap<ClassId, String>, Error>;
    fn set_class_names(&mut self, names: &BTreeMap<ClassId, String>) -> Result<(), Error>;
    /// In the order of the ids, up to the last that was ever used.
    fn class_counters(&self) -> Result<Vec<ClassCounters>, Error>;
    fn set_rules(&mut self, rules: &Rules) -> Result<(), Error>;
    fn is_pressed(&self) -> Result<bool, Error>;
    fn flows_max(&self) -> u64;
    fn explain(
        &mut self,
        from: SocketAddr,
        to: SocketAddr,
        proto: Proto,
    ) -> Result<Explanation, Error>;
    fn ask(&mut self, question: &Question, local_port: u16, number: u32) -> Result<bool, Error>;
    fn reasons(&self) -> Result<Vec<ReasonCount>, Error>;
    fn close(self) -> Result<(), Error>;
}

/// Operations that take longer the more flows there are, and so run outside the loop. Each method is that of [`Walker`].
#[expect(missing_docs, reason = "as of `Walker`")]
pub trait Walk: Send + Sync + 'static {
    fn now(&self) -> Duration;
    fn sweep(&self) -> Result<Swept, Error>;
    fn end_flows(
        &self,
        link: LinkId,
        family: Family,
        classes: ClassSet,
        which: Which,
        opened_before: Duration,
    ) -> Result<Ended, Error>;
    fn flows(&self) -> Result<Vec<FlowRow>, Error>;
    fn prefixes(&self) -> Result<Vec<PrefixRow>, Error>;
    fn known_prefixes(&self) -> Result<u64, Error>;
    fn prefixes_max(&self) -> u64;
}

impl Walk for Walker {
    fn now(&self) -> Duration {
        self.now()
    }

    fn sweep(&self) -> Result<Swept, Error> {
        self.sweep()
    }

    fn end_flows(
        &self,
        link: LinkId,
        family: Family,
        classes: ClassSet,
        which: Which,
        opened_before: Duration,
    ) -> Result<Ended, Error> {
        self.end_flows(link, family, classes, which, opened_before)
    }

    fn flows(&self) -> Result<Vec<FlowRow>, Error> {
        self.flows()
    }

    fn prefixes(&self) -> Result<Vec<PrefixRow>, Error> {
        self.prefixes()
    }

    fn known_prefixes(&self) -> Result<u64, Error> {
        self.known_prefixes()
    }

    fn prefixes_max(&self) -> u64 {
        self.prefixes_max()
    }
}

impl Plane for Gateway {
    type Walker = Walker;

    fn set_settings(&mut self, settings: &Settings) -> Result<(), Error> {
        self.set_settings(settings)
    }

    fn set_link(
        &mut self,
        link: LinkId,
        family: Family,
        path: Option<&LinkPath>,
    ) -> Result<(), Error> {
        self.set_link(link, family, path)
    }

    fn set_own_macs(&mut self, macs: &BTreeSet<(u32, [u8; 6])>) -> Result<(), Error> {
        self.set_own_macs(macs)
    }

    fn attach(&mut self, ifindex: u32, role: Role, layer3: bool, mtu: u32) -> Result<(), Error> {
        self.attach(ifindex, role, layer3, mtu)
    }

    fn detach(&mut self, ifindex: u32) -> Result<(), Error> {
        self.detach(ifindex)
    }

    fn attached(&self) -> Result<Vec<u32>, Error> {
        self.attached()
    }

    fn walker(&self) -> Arc<Walker> {
        self.walker()
    }

    fn class_names(&self) -> Result<BTreeMap<ClassId, String>, Error> {
        let names = (0..).map(ClassId).zip(self.class_names()?);
        Ok(names.filter_map(|(id, name)| Some((id, name?))).collect())
    }

    fn set_class_names(&mut self, names: &BTreeMap<ClassId, String>) -> Result<(), Error> {
        for id in (0..MAX_CLASSES as u8).map(ClassId) {
            self.set_class_name(id.0, names.get(&id).map(|name| &name[..]))?;
        }
        Ok(())
    }

    fn class_counters(&self) -> Result<Vec<ClassCounters>, Error> {
        let classes = self.class_counters()?.into_iter();
        let counters = classes.map(|class| {
            let mut traffic = Traffic::default();
            class.traffic.iter().for_each(|link| traffic += *link);
            ClassCounters {
                counts: class.counts,
                traffic,
            }
        });
        Ok(counters.collect())
    }

    fn set_rules(&mut self, rules: &Rules) -> Result<(), Error> {
        self.set_rules(rules)
    }

    fn is_pressed(&self) -> Result<bool, Error> {
        self.is_pressed()
    }

    fn flows_max(&self) -> u64 {
        self.flows_max()
    }

    fn explain(
        &mut self,
        from: SocketAddr,
        to: SocketAddr,
        proto: Proto,
    ) -> Result<Explanation, Error> {
        self.explain(from, to, proto)
    }

    fn ask(&mut self, question: &Question, local_port: u16, number: u32) -> Result<bool, Error> {
        self.ask(question, local_port, number)
    }

    fn reasons(&self) -> Result<Vec<ReasonCount>, Error> {
        self.reasons()
    }

    fn close(self) -> Result<(), Error> {
        self.close()
    }
}

/// Timers, quotas and ports for the programs. With `fallback_mark` 0, no flow falls back to the kernel's own NAT. `routed` are the
/// links without NAT, as bits. `routes_kernel` is the result of [`routes_kernel`].
pub fn settings(
    config: &Config,
    ephemeral: [u16; 2],
    fallback_mark: u32,
    routed: u32,
    routes_kernel: u32,
) -> Settings {
    let nat = &config.nat;
    let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    Settings {
        tcp_established_ns: ns(nat.tcp_established),
        tcp_transitory_ns: ns(nat.tcp_transitory),
        udp_ns: ns(nat.udp),
        icmp_ns: ns(nat.icmp),
        unconfirmed_ns: ns(nat.tcp_unanswered),
        forwards_kernel: (nat.forwards == Forwards::Kernel).into(),
        routed,
        quota_per_host: config.limits.flows_per_host,
        flows_max: config.limits.flows,
        port_min: nat.ports[0],
        port_max: nat.ports[1],
        ephemeral_min: ephemeral[0],
        ephemeral_max: ephemeral[1],
        udp_filter_open: (nat.udp_filter == UdpFilter::EndpointIndependent).into(),
        fallback_mark,
        unconfirmed_per_host: UNCONFIRMED_PER_HOST,
        flows_per_device: share_of_device(config, config.limits.flows),
        unconfirmed_per_device: share_of_device(config, Sizes::default().unconfirmed_max),
        lan_sources_loose: (nat.lan_sources == LanSources::Loose).into(),
        reserved: nat.reserved,
        routes_kernel,
        zero: 0,
    }
}

/// For which new flows the programs query the kernel's routing, as bits.
pub fn routes_kernel(wanted: &Desired) -> u32 {
    let bits = [
        (wanted.ask_kernel, ROUTES_FOREIGN),
        (wanted.ask_kernel && wanted.hides_rule, ROUTES_HIDDEN),
        (wanted.beyond_room, ROUTES_BEYOND),
    ];
    let set = bits.into_iter().filter(|(is_set, _)| *is_set);
    set.fold(0, |all, (_, bit)| all | bit)
}

/// The share of `all` that one LAN device may use; 0, without a limit, if it is the only one.
fn share_of_device(config: &Config, all: u32) -> u32 {
    match config.lan.len() as u32 {
        0 | 1 => 0,
        devices => (all / devices).max(1),
    }
}

/// Sizes of the maps. Unconfirmed flows have a table of their own, so that a flood fills only that.
pub fn sizes(config: &Config) -> Sizes {
    Sizes {
        flows_max: config.limits.flows,
        prefixes_max: config.limits.prefixes,
        ..Sizes::default()
    }
}
