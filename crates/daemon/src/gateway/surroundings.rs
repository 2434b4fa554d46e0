//! What the gateway needs of its host: in the daemon the kernel and other programs, in tests a fake.

use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anabranch_api::{Finding, ReasonCount};
use anabranch_core::Family;
use anabranch_core::checks::{Ask, Outcome};
use anabranch_core::rules::Moment;

use crate::config::Config;
use crate::host::{Conversation, Moved, Return, Ways};
use crate::observe::{Desired, MassKey, Snapshot};
use crate::plane::{Route, Verdict};
use crate::probe::{Answer, Inquiry, Via};
use crate::slots::{Orders, Slots, Tested};

/// The host and the internet, as the gateway uses them.
pub trait Surroundings {
    /// Devices, addresses and routes as they stand.
    fn snapshot(&mut self) -> impl Future<Output = anyhow::Result<Snapshot>>;
    /// Returns when they have changed. Cancel-safe.
    fn changed(&mut self) -> impl Future<Output = anyhow::Result<()>>;
    /// Says whether anything is carried: then a lost carrier has to be noticed sooner.
    fn rest(&mut self, is_quiet: bool);
    /// Writes these destinations, and large groups of prefixes, to the data path: another thread does it, since it may take seconds.
    fn set_routes(&mut self, routes: &[Route], masses: &[(MassKey, Verdict)])
    -> anyhow::Result<()>;
    /// Sets routing rules, settings and the fallback as `desired` says. Returns what could not be done.
    fn apply(
        &mut self,
        config: &Config,
        desired: &Desired,
        ways: &Ways,
    ) -> impl Future<Output = Vec<anyhow::Error>>;
    /// Surveys other programs and hosts beside the gateway.
    fn survey(
        &self,
        config: &Config,
        host: Snapshot,
    ) -> impl Future<Output = anyhow::Result<Vec<Finding>>> + Send + 'static;
    /// Whether something that the survey reads has changed without a netlink message; called often.
    fn has_other_neighbours(&self) -> bool;
    /// Whether no firewall of others treats packets without a tracked connection differently; called for every probe.
    fn lets_untracked_pass(&self) -> bool;
    /// Whether a firewall or NAT of others uses connection tracking, by the last survey.
    fn others_track(&self) -> bool;
    /// Checks that this host can do what a configuration says, and claims its devices for this instance.
    fn check(&mut self, config: &Config) -> impl Future<Output = Result<(), crate::Error>>;
    /// Sends a probe over one link, and waits for the answer.
    fn probe(
        &self,
        inquiry: Inquiry,
        via: Via,
    ) -> impl Future<Output = Option<Answer>> + Send + 'static;
    /// Makes a check's test over one link.
    fn test(
        &self,
        ask: Ask<(String, Family)>,
        via: Via,
    ) -> impl Future<Output = Outcome> + Send + 'static;
    /// Probes a destination by a TCP segment that a RST with this number answers.
    fn ask(&self, to: SocketAddr, from_port: u16, number: u32, via: &Via);
    /// Saves the numbers of the links for the next process. Saving the same again costs nothing.
    fn keep_slots(&mut self, slots: &Slots) -> anyhow::Result<()>;
    /// Saves which devices belong to this instance for the next process, and releases those that left the configuration and have
    /// no program.
    fn keep_claims(&mut self, config: &Config, has_stale_programs: bool) -> anyhow::Result<()>;
    /// Saves the operator's orders, also beyond a clean stop. If that fails, the former orders stay saved.
    fn keep_orders(&mut self, orders: &Orders) -> anyhow::Result<()>;
    /// Saves the results of checks, to survive a crash.
    fn keep_tested(&mut self, tested: &Tested) -> anyhow::Result<()>;
    /// The time of the week, by the host's clock and time zone.
    fn moment(&self) -> Moment;
    /// The ports of the host's own sockets.
    fn ephemeral_ports(&self) -> anyhow::Result<[u16; 2]>;
    /// Mark of packets for the kernel's own NAT; 0 if that is not available. [`apply`](Self::apply) may make it available.
    fn fallback_mark(&self, config: &Config) -> u32;
    /// Whether another program removed our nftables table or undid a setting; called often.
    fn has_lost_guard(&mut self) -> bool;
    /// Makes the host's own UDP leave `address`, which `link` has or had.
    fn abandon(&self, link: &str, address: IpAddr);
    /// The same for conversations that were idle for `idle` and are `meant`, since a better link has returned.
    fn move_idle(
        &self,
        returned: Arc<Mutex<Return>>,
        idle: Duration,
        is_meant: impl Fn(&Conversation) -> bool + Send + 'static,
    ) -> impl Future<Output = anyhow::Result<Moved>> + Send + 'static;
    /// What the host lacks, and what does not work without it.
    fn lacks(&self) -> Option<String>;
    /// Number of entries in the kernel's connection table, and its limit.
    fn connection_table(&self) -> Option<(u64, u64)>;
    /// Packets that our nftables table has dropped.
    fn drops(&self) -> anyhow::Result<Vec<ReasonCount>>;
    /// Restores what was changed.
    fn restore(self) -> impl Future<Output = anyhow::Result<()>>;
}
