//! Floods against a gateway, beside innocent hosts who should not notice.
//!
//! An attack is a stream of small frames, made in the kernel at up to 200 000 packets per second ([`flood`]), from a
//! host on the LAN or from beyond the first ISP ([`kinds`]). In the same LAN an innocent host holds live connections,
//! opens new ones and asks questions, a host that nobody has seen before opens its first ones, and the gateway itself
//! pings the internet ([`innocent`]). What it says of its links meanwhile is held against what they are ([`verdicts`]); some attacks need
//! a site with something special, or a link that is broken ([`scene`]). The same happens to nftables' masquerading NAT. A [`Row`] tells what each of them
//! lost.
//!
//! What the attack sends ends at the ISPs' devices ([`site`]), so that neither the ISPs nor the emulated round trip is
//! what breaks. Losses that happened outside the gateway, where this machine's queues were full, are counted apart: they
//! make a row invalid, not failed.

mod flood;
mod frame;
mod innocent;
mod kinds;
mod ranges;
mod scene;
mod scenery;
mod service;
mod site;
mod verdicts;

use std::fs;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, mpsc};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use anabranch_api::ReasonCount;
use anabranch_scenario::Family;
use anabranch_workload::client::Stop;
use serde::Serialize;
use tokio::sync::watch;

use crate::topology::{LabError, Result, io_error};
use anabranch_testbed::netns::Namespace;
use flood::Flood;
use innocent::{Callers, TCP_PORT, UDP_PORT};
pub use kinds::{ATTACKS, Attack};
pub use site::From;
use site::{Said, Site};
pub use verdicts::Verdicts;
use verdicts::Watch;

/// Who is attacked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Subject {
    /// Ours, started from `Trial::binary`.
    Anabranch,
    /// Masquerading, a random link per connection; of a service DNAT, a random server per connection.
    Nftables,
    /// Of a service: a proxy.
    Haproxy,
}

/// One attack on one gateway.
#[derive(Debug, Clone)]
pub struct Trial {
    /// What is sent.
    pub attack: &'static Attack,
    /// Against whom.
    pub subject: Subject,
    /// Of everybody's packets.
    pub family: Family,
    /// Of the innocents' packets.
    pub round_trip: Duration,
    /// Frames of the attack per second.
    pub rate_pps: u32,
    /// At least; a flood goes on until the last connection and query have met their ends.
    pub length: Duration,
    /// The executable whose `run` is the gateway.
    pub binary: PathBuf,
    /// Ends the trial early.
    pub stop: Stop,
}

/// What came of it.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// The attack's name.
    pub attack: &'static str,
    /// Who was attacked.
    pub subject: Subject,
    /// `v4` or `v6`.
    pub family: &'static str,
    /// Of the frames made that reached the gateway, while they were made.
    pub rate_pps: u64,
    /// Round trip of the innocents' packets, as asked for.
    pub rtt_ms: u64,
    /// Connections of the innocent host that were there before.
    pub flows_live: usize,
    /// Of them, those that did not live through the attack.
    pub flows_lost: usize,
    /// Its new connections, established and answered within ten seconds.
    pub connects_tried: usize,
    /// Of them, those that were.
    pub connects_ok: usize,
    /// Its questions over UDP, answered within five seconds, sent again once after two.
    pub queries_tried: usize,
    /// Of them, those that were.
    pub queries_ok: usize,
    /// Of five.
    pub own_pings_ok: usize,
    /// New connections of a host that was not seen before the attack.
    pub newcomer_tried: usize,
    /// Of them, those that were established.
    pub newcomer_ok: usize,
    /// Packets of the attack that left by a link.
    pub passed: u64,
    /// With a source of the LAN, or a VLAN tag.
    pub leaked: u64,
    /// What Anabranch said of its links, or its servers.
    pub verdicts: Option<Verdicts>,
    /// New connections of innocents that did not take the nearest link; none where no link is.
    pub steered: Option<usize>,
    /// On this machine's processors, whoever's packets they were.
    pub softnet_drops: u64,
    /// On the innocents' way, the gateway's own devices included.
    pub device_drops: u64,
    /// Something was lost, but this machine's queues lost packets too.
    pub invalid: bool,
    /// How packets left the gateway's programs during the attack.
    pub reasons: Vec<ReasonCount>,
}

/// Connections that stand before the attack.
pub const FLOWS: usize = 1000;
/// Attempts of the innocent host during the attack.
pub const CONNECTS: usize = 80;
/// Questions of the innocent host during the attack.
pub const QUERIES: usize = 100;
/// Echo requests of the gateway itself during the attack.
pub const PINGS: usize = 5;
const NEWCOMER_CONNECTS: usize = 20;
const QUERY_BYTES: usize = 40;
/// More than one frame, where the attack consists of fragments.
const LONG_QUERY_BYTES: usize = 2000;
const ESTABLISHED_WITHIN: Duration = Duration::from_secs(30);
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// Of the innocents' new connections, to ask each link once in a lifetime what it is like.
const STEERED_MAX: usize = 10;
/// One packet in so many lost by this machine explains a loss.
const DROPS_DIVISOR: u64 = 1000;

impl Row {
    /// Whether an innocent noticed. The newcomer is not asked: what may befall it is told in docs/attacks.md.
    pub fn lossless(&self) -> bool {
        self.flows_lost == 0
            && self.connects_ok == self.connects_tried
            && self.queries_ok == self.queries_tried
            && self.own_pings_ok == PINGS
    }

    /// What a gateway is to be blamed for, in a word each; nothing if it stood the attack.
    pub fn failures(&self) -> Vec<&'static str> {
        let judged = [
            (!self.lossless(), "lost"),
            (self.leaked > 0, "leaked"),
            (
                self.verdicts.is_some_and(|all| !all.just()),
                "wrong verdict",
            ),
            (
                self.steered.is_some_and(|steered| steered > STEERED_MAX),
                "steered",
            ),
        ];
        let failed = judged.into_iter().filter(|(failed, _)| *failed);
        failed.map(|(_, word)| word).collect()
    }
}

/// Carries out one trial. `progress` is told what goes on.
///
/// # Errors
/// If the site cannot be built, the gateway fails, or the innocents cannot even begin. An interrupted trial is an error.
pub fn run(trial: &Trial, progress: &mut dyn FnMut(&str)) -> Result<Row> {
    progress("building the site");
    let site = Site::build(
        trial.subject,
        trial.family,
        &trial.binary,
        trial.round_trip,
        trial.attack.scene,
    )?;
    let cable = match trial.attack.from {
        From::Lan => site.lan_cable(),
        From::Internet => site.internet_cable(),
    };
    let plan = trial.attack.plan(&site, &cable)?;
    let mut flood = Flood::load(&plan, trial.family, cable.index()?)?;
    flood.sink_at(&site.routers)?;
    flood.collude_at(&site.attacker)?;
    if let Some(container) = &site.container {
        flood.serve_at(container)?;
    }
    let stage = Stage {
        trial,
        site: &site,
        attacker: cable.near,
        flood: &flood,
        callers: Arc::default(),
    };
    stage.play(progress)
}

/// Everything is up, and nobody has begun.
struct Stage<'a> {
    trial: &'a Trial,
    site: &'a Site,
    attacker: &'a Namespace,
    flood: &'a Flood,
    callers: Arc<Callers>,
}

/// What can be read off the site at a moment.
struct Look {
    counted: flood::Counted,
    refused: u64,
    softnet_drops: u64,
    device_drops: u64,
    reasons: Vec<ReasonCount>,
    /// Connections that came by other links than the first.
    by_others: usize,
}

/// What the innocents did during the attack.
struct Deeds {
    connects_ok: usize,
    queries_ok: usize,
    own_pings_ok: usize,
    newcomer_ok: usize,
}

impl Stage<'_> {
    fn play(&self, progress: &mut dyn FnMut(&str)) -> Result<Row> {
        thread::scope(|scope| {
            // Whoever leaves early drops these, which ends the threads that wait for them.
            let (end_all, all_ends) = watch::channel(false);
            let (end_attack, attack_ends) = watch::channel(false);
            let (ready, readiness) = mpsc::channel();
            let over = all_ends.clone();
            let serving = scope.spawn(|| self.serve(ready, over));
            let _ = readiness.recv();
            self.site.wait_for_service()?;
            self.trial.attack.scene.break_link(self.site)?;
            let watching = scope.spawn(|| self.watch_links(all_ends));
            progress("opening the live flows");
            let (established, news) = mpsc::channel();
            let over = attack_ends.clone();
            let keeping = scope.spawn(|| self.keep_flows(established, over));
            self.wait_for_flows(&news)?;
            let before = self.look()?;
            progress("attack");
            let sending = scope.spawn(|| self.send(attack_ends));
            let deeds = self.watch_deeds();
            end_attack.send_replace(true);
            let took = joined(sending)?;
            let (deeds, after) = (deeds?, self.look()?);
            progress("afterwards");
            let flows_lost = joined(keeping)?;
            end_all.send_replace(true);
            joined(serving)?;
            let found = (joined(watching)?, flows_lost);
            Ok(self.row(found, &deeds, took, [before, after]))
        })
    }

    fn serve(&self, ready: mpsc::Sender<()>, over: watch::Receiver<bool>) -> Result<()> {
        let (tcp, udp) = (self.site.servers(TCP_PORT), self.site.servers(UDP_PORT));
        let serve = || innocent::serve([&tcp, &udp], &self.callers, ready, over);
        self.site
            .internet
            .run(serve)?
            .map_err(io_error("the internet's servers"))
    }

    /// Asks the gateway what it thinks of its links, until the end.
    fn watch_links(&self, over: watch::Receiver<bool>) -> Result<Option<Verdicts>> {
        let Some(mut daemon) = self.site.daemon()? else {
            return Ok(None);
        };
        let broken = self.trial.attack.scene.broken();
        let states = Said::of(&daemon.status()?).states;
        let mut watch = Watch::new(states.len(), broken, Instant::now());
        while over.has_changed().is_ok() && !*over.borrow() {
            let states = Said::of(&daemon.status()?).states;
            watch.note(Instant::now(), states.into_iter());
            thread::sleep(LOOK_AGAIN);
        }
        Ok(Some(watch.verdicts()))
    }

    fn keep_flows(
        &self,
        established: mpsc::Sender<()>,
        over: watch::Receiver<bool>,
    ) -> Result<usize> {
        let servers = self.site.called(TCP_PORT);
        let keep = || innocent::keep_flows(&servers, FLOWS, established, over);
        self.site
            .victim
            .run(keep)?
            .map_err(io_error("the live flows"))
    }

    fn wait_for_flows(&self, news: &mpsc::Receiver<()>) -> Result<()> {
        let deadline = Instant::now() + ESTABLISHED_WITHIN;
        for established in 0..FLOWS {
            let left = deadline.saturating_duration_since(Instant::now());
            if news.recv_timeout(left).is_err() {
                let seconds = ESTABLISHED_WITHIN.as_secs();
                return Err(LabError::Load(format!(
                    "{established} of {FLOWS} flows were established within {seconds} s, before any attack"
                )));
            }
        }
        Ok(())
    }

    /// Returns how long it sent.
    fn send(&self, over: watch::Receiver<bool>) -> Result<Duration> {
        let rate_pps = self.trial.rate_pps.min(self.trial.attack.rate_max_pps);
        self.flood.send(self.attacker, rate_pps, &over)
    }

    /// Lets the innocents do what they do, until all of it is done and the attack has lasted long enough.
    fn watch_deeds(&self) -> Result<Deeds> {
        let begun = Instant::now();
        let head_start = self.trial.attack.scene.head_start();
        self.pause_until(begun + head_start)?;
        let deeds = thread::scope(|scope| {
            let connects = scope.spawn(|| self.connect(&self.site.victim, CONNECTS));
            let newcomer = scope.spawn(|| self.connect(&self.site.newcomer, NEWCOMER_CONNECTS));
            let queries = scope.spawn(|| self.query());
            let pings = scope.spawn(|| own_pings(&self.site.gateway, self.site.server()));
            Ok::<_, LabError>(Deeds {
                connects_ok: joined(connects)?,
                newcomer_ok: joined(newcomer)?,
                queries_ok: joined(queries)?,
                own_pings_ok: joined(pings)?,
            })
        });
        self.pause_until(begun + head_start + self.innocents_length())?;
        deeds
    }

    fn connect(&self, host: &Namespace, count: usize) -> Result<usize> {
        let servers = self.site.called(TCP_PORT);
        host.run(|| innocent::connect(&servers, count, self.spread()))?
            .map_err(io_error("new connections"))
    }

    fn query(&self) -> Result<usize> {
        let servers = self.site.called(UDP_PORT);
        let bytes = match self.trial.attack.fragments() {
            true => LONG_QUERY_BYTES,
            false => QUERY_BYTES,
        };
        let query = || innocent::query(&servers, self.queries(), bytes, self.spread());
        self.site.victim.run(query)?.map_err(io_error("queries"))
    }

    /// A proxy of connections answers none.
    fn queries(&self) -> usize {
        match self.trial.subject {
            Subject::Haproxy => 0,
            Subject::Anabranch | Subject::Nftables => QUERIES,
        }
    }

    /// Over which the innocents begin what they do.
    fn spread(&self) -> Duration {
        self.innocents_length().mul_f64(0.8)
    }

    fn innocents_length(&self) -> Duration {
        self.trial.length.saturating_sub(Duration::from_secs(1))
    }

    fn pause_until(&self, end: Instant) -> Result<()> {
        while Instant::now() < end {
            if self.trial.stop.is_ordered() {
                return Err(LabError::Load("interrupted".into()));
            }
            thread::sleep(LOOK_AGAIN.min(end.saturating_duration_since(Instant::now())));
        }
        Ok(())
    }

    fn look(&self) -> Result<Look> {
        let status = self.site.status()?;
        Ok(Look {
            counted: self.flood.counted()?,
            refused: self.site.refused(self.trial.attack.from)?,
            softnet_drops: softnet_drops()?,
            device_drops: self.site.device_drops()?,
            reasons: status.map_or_else(Vec::new, |status| Said::of(&status).reasons),
            by_others: self.connections_by_others(),
        })
    }

    fn connections_by_others(&self) -> usize {
        let callers = self.callers.lock().unwrap_or_else(PoisonError::into_inner);
        let nearest = self.site.external();
        let others = callers.iter().filter(|(caller, _)| **caller != nearest);
        others.map(|(_, connections)| connections).sum()
    }

    fn row(
        &self,
        (verdicts, flows_lost): (Option<Verdicts>, usize),
        deeds: &Deeds,
        took: Duration,
        [before, after]: [Look; 2],
    ) -> Row {
        let counted = after.counted - before.counted;
        let offered = counted.made.saturating_sub(after.refused - before.refused);
        let has_nearest = self.trial.attack.scene.has_nearest_link();
        let mut row = Row {
            attack: self.trial.attack.name,
            subject: self.trial.subject,
            family: match self.trial.family {
                Family::V4 => "v4",
                Family::V6 => "v6",
            },
            rate_pps: (offered as f64 / took.as_secs_f64()) as u64,
            rtt_ms: self.trial.round_trip.as_millis() as u64,
            flows_live: FLOWS,
            flows_lost,
            connects_tried: CONNECTS,
            connects_ok: deeds.connects_ok,
            queries_tried: self.queries(),
            queries_ok: deeds.queries_ok,
            own_pings_ok: deeds.own_pings_ok,
            newcomer_tried: NEWCOMER_CONNECTS,
            newcomer_ok: deeds.newcomer_ok,
            passed: counted.arrived,
            leaked: counted.leaked,
            verdicts,
            steered: has_nearest.then(|| after.by_others - before.by_others),
            softnet_drops: after.softnet_drops - before.softnet_drops,
            device_drops: after.device_drops.saturating_sub(before.device_drops),
            invalid: false,
            reasons: since(&before.reasons, after.reasons),
        };
        // The gateway's device drops what has a tag that it knows no device for.
        let device_drops = match self.trial.attack.is_tagged() {
            true => 0,
            false => row.device_drops,
        };
        let drops = row.softnet_drops + device_drops;
        row.invalid = !row.failures().is_empty() && drops * DROPS_DIVISOR > offered;
        row
    }
}

fn joined<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn own_pings(gateway: &Namespace, server: IpAddr) -> Result<usize> {
    // Its exit code says what its words say as well.
    let command = format!("ping -n -q -c {PINGS} -i 0.4 -W 5 {server} 2>&1; true");
    let said = gateway.exec("sh", &["-c", &command])?;
    let received = said
        .split(", ")
        .find_map(|part| part.strip_suffix(" received"));
    let received = received.and_then(|number| number.parse().ok());
    received.ok_or_else(|| LabError::Load(format!("ping said: {}", said.trim())))
}

/// Packets dropped because a processor's backlog was full (the second column of softnet_stat, hexadecimal).
fn softnet_drops() -> Result<u64> {
    let path = "/proc/net/softnet_stat";
    let text = fs::read_to_string(path).map_err(io_error(format!("reading {path}")))?;
    let of_line = |line: &str| u64::from_str_radix(line.split_whitespace().nth(1)?, 16).ok();
    Ok(text.lines().filter_map(of_line).sum())
}

/// What was counted since, most frequent first.
fn since(before: &[ReasonCount], after: Vec<ReasonCount>) -> Vec<ReasonCount> {
    let mut news = after;
    for reason in &mut news {
        let old = before.iter().find(|old| old.name == reason.name);
        reason.packets -= old.map_or(0, |old| old.packets.min(reason.packets));
    }
    ReasonCount::by_frequency(news)
}
