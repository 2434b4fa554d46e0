//! The world around the gateway's loop: in the daemon the kernel and other programs, in tests whatever they say.

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

/// The world around the loop.
pub trait Surroundings {
    /// Devices, addresses and routes as they stand.
    fn snapshot(&mut self) -> impl Future<Output = anyhow::Result<Snapshot>>;
    /// Returns when they have changed. Cancel-safe.
    fn changed(&mut self) -> impl Future<Output = anyhow::Result<()>>;
    /// Whether anything is carried: how soon a lost carrier has to be seen.
    fn rest(&mut self, is_quiet: bool);
    /// Tells the data path of these destinations, and of the prefixes of masses: they are written beside the loop.
    fn set_routes(&mut self, routes: &[Route], masses: &[(MassKey, Verdict)])
    -> anyhow::Result<()>;
    /// Makes routing rules, settings and the fallback as `desired` wants them. Returns what could not be done.
    fn apply(
        &mut self,
        config: &Config,
        desired: &Desired,
        ways: &Ways,
    ) -> impl Future<Output = Vec<anyhow::Error>>;
    /// What stands beside the gateway on this host.
    fn survey(
        &self,
        config: &Config,
        host: Snapshot,
    ) -> impl Future<Output = anyhow::Result<Vec<Finding>>> + Send + 'static;
    /// Something that the survey reads has changed, and netlink does not tell of it; asked often.
    fn has_other_neighbours(&self) -> bool;
    /// Nothing that others have here treats packets otherwise which no connection is known of; asked for every probe.
    fn lets_untracked_pass(&self) -> bool;
    /// Whether a firewall or NAT of others looks at connections, as far as the last survey knows.
    fn others_track(&self) -> bool;
    /// Whether this host can do as a configuration says; its devices are the instance's from here on.
    fn check(&mut self, config: &Config) -> impl Future<Output = Result<(), crate::Error>>;
    /// Asks over one link.
    fn probe(
        &self,
        inquiry: Inquiry,
        via: Via,
    ) -> impl Future<Output = Option<Answer>> + Send + 'static;
    /// Makes a test of one link.
    fn test(
        &self,
        ask: Ask<(String, Family)>,
        via: Via,
    ) -> impl Future<Output = Outcome> + Send + 'static;
    /// Asks a destination by a segment that a RST with this number answers.
    fn ask(&self, to: SocketAddr, from_port: u16, number: u32, via: &Via);
    /// Remembers the numbers of the links beyond this process. What is remembered already costs nothing.
    fn keep_slots(&mut self, slots: &Slots) -> anyhow::Result<()>;
    /// Remembers whose the devices are beyond this process, and lets go of those that left the configuration and have
    /// no program.
    fn keep_claims(&mut self, config: &Config, has_stale_programs: bool) -> anyhow::Result<()>;
    /// Remembers what was ordered, also beyond a clean stop; else the orders of before.
    fn keep_orders(&mut self, orders: &Orders) -> anyhow::Result<()>;
    /// Remembers what checks show, beyond a crash.
    fn keep_tested(&mut self, tested: &Tested) -> anyhow::Result<()>;
    /// The time of the week, as the host's clock and time zone have it.
    fn moment(&self) -> Moment;
    /// The ports of the host's own sockets.
    fn ephemeral_ports(&self) -> anyhow::Result<[u16; 2]>;
    /// Mark of what the kernel's own NAT carries; 0 if nothing. [`apply`](Self::apply) may find that it can.
    fn fallback_mark(&self, config: &Config) -> u32;
    /// Somebody took away what guards the host, or set back what it needs; asked often.
    fn has_lost_guard(&mut self) -> bool;
    /// Has the host's own UDP leave `address`, which `link` has or had.
    fn abandon(&self, link: &str, address: IpAddr);
    /// The same of conversations that had no packet for `idle` and are `meant`, since a better link has returned.
    fn move_idle(
        &self,
        returned: Arc<Mutex<Return>>,
        idle: Duration,
        is_meant: impl Fn(&Conversation) -> bool + Send + 'static,
    ) -> impl Future<Output = anyhow::Result<Moved>> + Send + 'static;
    /// What the host lacks, and what cannot be done without.
    fn lacks(&self) -> Option<String>;
    /// Entries of the kernel's connection table, and how many there may be.
    fn connection_table(&self) -> Option<(u64, u64)>;
    /// What the host's own filter has dropped for us.
    fn drops(&self) -> anyhow::Result<Vec<ReasonCount>>;
    /// Puts back what was changed.
    fn restore(self) -> impl Future<Output = anyhow::Result<()>>;
}
