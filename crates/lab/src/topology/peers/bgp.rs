//! A site that speaks BGP with its providers, and they with the internet: BIRD on the gateway, each ISP's router and in the internet.
//!
//! Sessions have the timers of the simulator's model. On last miles BFD watches them if the peer says so; between providers and
//! internet it always does, because whoever runs a line there sees it fail. The internet of the laboratory is one host, which
//! hears everything at once: what BIRD has learnt there is a table that nobody asks, and the host's own route to the LAN follows
//! it as much later as the whole internet would.

use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anabranch_peers::Bgp;
use anabranch_scenario::Family;
use anabranch_testbed::netns::{Child, Namespace};
use tempfile::TempDir;

use super::steward::ip;
use super::{METRIC, accesses, flag};
use crate::topology::{
    Lab, LabError, LabSpec, Result, io_error, lan_network,
    lay::route_to_lan,
    let_forward,
    ready::{wait_ready, within},
    server_network, transit, wan,
};

/// For all sessions to be established.
const READY: Duration = Duration::from_secs(60);
const GRACE: Duration = Duration::from_secs(2);
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);
/// What BIRD has learnt in the internet.
const LEARNT: u32 = 200;
/// Private numbers (RFC 6996): of the site, the internet and the first provider.
const SITE: usize = 64512;
const INTERNET: usize = 64513;
const PROVIDERS: usize = 64520;
/// What all of them have in common. Neither is a lost session restored by the routes it had, nor waited with for a minute.
const SESSION: &str = "hold time 90; keepalive time 30; graceful restart off; connect delay time 1; connect retry time 5; \
    error wait time 1, 5;";
const WATCH: &str = "{ min rx interval 300 ms; min tx interval 300 ms; multiplier 3; }";

/// All who speak. They end on drop.
#[derive(Debug)]
pub struct Speakers {
    _internet: Follower,
    speakers: Mutex<Vec<Speaker>>,
}

#[derive(Debug)]
struct Speaker {
    process: Child,
    directory: TempDir,
}

/// Has the internet's own route follow what is learnt.
#[derive(Debug)]
struct Follower {
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Speakers {
    /// Starts them and waits until the site and the internet know the way to each other by every provider.
    pub(crate) fn start(bgp: Bgp, lab: &Lab) -> Result<Self> {
        let spec = &lab.spec;
        forget_routes(lab)?;
        let_forward(&lab.gateway, spec.families)?;
        let mut speakers = vec![Speaker::start(&lab.gateway, &site(bgp, spec)?)?];
        for (index, router) in lab.routers.iter().enumerate() {
            speakers.push(Speaker::start(router, &provider(bgp, index, spec)?)?);
        }
        speakers.push(Speaker::start(&lab.internet, &internet(spec)?)?);
        for speaker in &mut speakers {
            speaker.wait_established()?;
        }
        wait_for_first(lab)?;
        Ok(Self {
            _internet: Follower::start(bgp.converge, lab)?,
            speakers: Mutex::new(speakers),
        })
    }

    /// Why they cannot be trusted, if one has ended.
    pub fn failure(&self) -> Option<String> {
        let mut speakers = self.speakers.lock().unwrap_or_else(PoisonError::into_inner);
        let ended = |speaker: &mut Speaker| speaker.process.wait(Duration::ZERO).ok().flatten();
        let exit = speakers.iter_mut().find_map(ended)?;
        Some(format!("BIRD ended ({exit:?})"))
    }
}

impl Speaker {
    fn start(namespace: &Namespace, configuration: &str) -> Result<Self> {
        let directory =
            TempDir::with_prefix("anabranch-bird-").map_err(io_error("making a directory"))?;
        let [file, log] = ["bird.conf", "bird.log"].map(|name| directory.path().join(name));
        let text = format!("log {log:?} all;\nprotocol device {{ scan time 1; }}\n{configuration}");
        std::fs::write(&file, text).map_err(io_error("writing BIRD's configuration"))?;
        let mut bird = Command::new("bird");
        bird.arg("-f").arg("-c").arg(&file);
        bird.arg("-s").arg(directory.path().join("control"));
        bird.stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let process = namespace.spawn(bird).map_err(missing)?;
        Ok(Self { process, directory })
    }

    fn wait_established(&mut self) -> Result<()> {
        let [control, log] = ["control", "bird.log"].map(|name| self.directory.path().join(name));
        let is_established = || {
            let mut ask = Command::new("birdc");
            ask.arg("-s").arg(&control).args(["show", "protocols"]);
            let output = ask.output().map_err(io_error("running birdc"))?;
            Ok(is_established(&String::from_utf8_lossy(&output.stdout)))
        };
        wait_ready("bird", &mut self.process, &log, READY, is_established)
    }
}

impl Drop for Speaker {
    fn drop(&mut self) {
        // One that does not end in time is killed with its value.
        let _ = self.process.terminate(GRACE);
    }
}

fn missing(error: anabranch_testbed::netns::NetnsError) -> LabError {
    match error {
        anabranch_testbed::netns::NetnsError::Missing { .. } => LabError::Gateway(
            "the peer BGP needs BIRD 2: `bird` and `birdc` (Debian's package bird2)".to_owned(),
        ),
        other => other.into(),
    }
}

/// Of what `birdc show protocols` prints: every session, and there is one.
fn is_established(protocols: &str) -> bool {
    let mut sessions = protocols
        .lines()
        .filter(|line| line.split_whitespace().nth(1) == Some("BGP"))
        .peekable();
    sessions.peek().is_some() && sessions.all(|line| line.trim_end().ends_with("Established"))
}

/// Until both sides have heard of all providers, and so go by the first.
fn wait_for_first(lab: &Lab) -> Result<()> {
    for &family in lab.spec.families.list() {
        let (flag, lan, servers) = (flag(family), lan_network(family), server_network(family));
        let there = format!("{flag} route show {servers} metric {METRIC}");
        let back = format!("{flag} route show {lan} table {LEARNT}");
        let out = accesses(&lab.spec, family)?[0].next_hop;
        let ([home, _], _) = transit(0, family);
        for (namespace, line, first) in [(&lab.gateway, there, out), (&lab.internet, back, home)] {
            let what = format!("a route by {first}, by BGP");
            within(READY, &what, || {
                Ok(next_hop(&namespace.ip(&line)?) == Some(first))
            })?;
        }
    }
    Ok(())
}

/// What the laboratory says of itself is what here has to be learnt.
fn forget_routes(lab: &Lab) -> Result<()> {
    for &family in lab.spec.families.list() {
        let (flag, lan) = (flag(family), lan_network(family));
        for (index, router) in lab.routers.iter().enumerate() {
            router.ip(&format!("{flag} route delete {lan}"))?;
            lab.gateway
                .ip(&format!("{flag} route delete default dev {}", wan(index)))?;
        }
        lab.internet.ip(&format!("{flag} route delete {lan}"))?;
    }
    Ok(())
}

/// `who` is of one address family, and has a name for each.
fn session(who: &str, ends: [(IpAddr, usize); 2], more: &str, channel: &str) -> String {
    let [(near, own), (far, other)] = ends;
    let word = word(near.into());
    format!(
        "protocol bgp {who}_{word} {{ local {near} as {own}; neighbor {far} as {other}; {SESSION} {more}
    {word} {{ {channel} next hop self; }}; }}\n"
    )
}

fn word(family: Family) -> &'static str {
    match family {
        Family::V4 => "ipv4",
        Family::V6 => "ipv6",
    }
}

/// A network of one's own, and what is learnt of others to a table of the kernel.
fn origin(family: Family, network: Option<&str>, table: &str) -> String {
    let word = word(family);
    let own = network.map(|network| {
        format!("protocol static own_{word} {{ {word}; route {network} unreachable; }}\n")
    });
    own.unwrap_or_default()
        + &format!(
            "protocol kernel kernel_{word} {{ {word} {{ import none; export where source = RTS_BGP; }}; metric {METRIC}; {table} }}\n"
        )
}

/// Providers are preferred in the order of their links.
fn preferring(index: usize) -> String {
    let preference = 200 - index;
    format!(
        "import filter {{ bgp_local_pref = {preference}; accept; }}; export where source = RTS_STATIC;"
    )
}

fn watched(bgp: Bgp) -> &'static str {
    if bgp.bfd { "bfd on;" } else { "" }
}

fn site(bgp: Bgp, spec: &LabSpec) -> Result<String> {
    let mut text =
        format!("router id 10.80.0.1;\nprotocol bfd {{ interface \"wan*\" {WATCH}; }}\n");
    for &family in spec.families.list() {
        text += &origin(family, Some(&lan_network(family)), "");
        for (index, access) in accesses(spec, family)?.into_iter().enumerate() {
            let ends = [(access.address, SITE), (access.next_hop, PROVIDERS + index)];
            let who = format!("isp{index}");
            text += &session(&who, ends, watched(bgp), &preferring(index));
        }
    }
    Ok(text)
}

fn provider(bgp: Bgp, index: usize, spec: &LabSpec) -> Result<String> {
    let number = index + 1;
    let mut text = format!(
        "router id 10.80.2.{number};\nprotocol bfd {{ interface \"customer\", \"upstream\" {WATCH}; }}\n"
    );
    for &family in spec.families.list() {
        let access = accesses(spec, family)?[index];
        let ([near, far], _) = transit(index, family);
        let own = PROVIDERS + index;
        let to_site = [(access.next_hop, own), (access.address, SITE)];
        let to_internet = [(near, own), (far, INTERNET)];
        text += &origin(family, None, "");
        text += &session("site", to_site, watched(bgp), "import all; export all;");
        text += &session(
            "internet",
            to_internet,
            "bfd on;",
            "import all; export all;",
        );
    }
    Ok(text)
}

fn internet(spec: &LabSpec) -> Result<String> {
    let mut text =
        format!("router id 10.80.3.1;\nprotocol bfd {{ interface \"isp*\" {WATCH}; }}\n");
    for &family in spec.families.list() {
        let table = format!("kernel table {LEARNT};");
        text += &origin(family, Some(&server_network(family)), &table);
        for index in 0..spec.isps.len() {
            let ([far, near], _) = transit(index, family);
            let ends = [(near, INTERNET), (far, PROVIDERS + index)];
            let who = format!("isp{index}");
            text += &session(&who, ends, "bfd on;", &preferring(index));
        }
    }
    Ok(text)
}

impl Follower {
    fn start(converge: Duration, lab: &Lab) -> Result<Self> {
        let ends = Arc::new(AtomicBool::new(false));
        let mut ways = Vec::new();
        for &family in lab.spec.families.list() {
            let mut way = Way::new(family, converge, &lab.spec);
            lab.internet
                .run(|| way.begin())?
                .map_err(io_error("leading to the LAN"))?;
            ways.push(way);
        }
        let theirs = Arc::clone(&ends);
        let work = move || {
            while !theirs.load(Ordering::Relaxed) {
                // A look that fails is followed by the next.
                let _ = ways.iter_mut().try_for_each(Way::follow);
                thread::sleep(BETWEEN_LOOKS);
            }
        };
        // A thread that is started inside stays inside, and what it starts, too.
        let thread = lab.internet.run(|| thread::spawn(work))?;
        Ok(Self {
            ends,
            thread: Some(thread),
        })
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        if let Some(Err(panic)) = self.thread.take().map(JoinHandle::join) {
            std::panic::resume_unwind(panic);
        }
    }
}

/// The internet's way to the LAN.
struct Way {
    family: Family,
    converge: Duration,
    /// The words of the route by each provider.
    routes: Vec<(IpAddr, String)>,
    heard: Option<IpAddr>,
    /// When all will have heard of what.
    changes: VecDeque<(Instant, Option<IpAddr>)>,
}

impl Way {
    fn new(family: Family, converge: Duration, spec: &LabSpec) -> Self {
        let route = |index| {
            let ([router, _], _) = transit(index, family);
            (router, route_to_lan(index, family, spec))
        };
        Self {
            family,
            converge,
            routes: (0..spec.isps.len()).map(route).collect(),
            heard: None,
            changes: VecDeque::new(),
        }
    }

    /// All have heard of what is learnt already.
    fn begin(&mut self) -> io::Result<()> {
        self.heard = self.learnt()?;
        self.lead(self.heard)
    }

    fn follow(&mut self) -> io::Result<()> {
        let learnt = self.learnt()?;
        let now = Instant::now();
        if learnt != self.heard {
            self.heard = learnt;
            self.changes.push_back((now + self.converge, learnt));
        }
        let due = self.changes.iter().take_while(|(at, _)| *at <= now).count();
        let last = self.changes.drain(..due).next_back();
        if let Some((_, way)) = last {
            self.lead(way)?;
        }
        Ok(())
    }

    fn learnt(&self) -> io::Result<Option<IpAddr>> {
        let (flag, lan) = (flag(self.family), lan_network(self.family));
        let shown = ip(&format!("{flag} route show {lan} table {LEARNT}"))?;
        Ok(next_hop(&shown))
    }

    fn lead(&self, by: Option<IpAddr>) -> io::Result<()> {
        let known = self.routes.iter().find(|(router, _)| Some(*router) == by);
        let line = match known {
            Some((_, route)) => format!("route replace {route}"),
            None => format!(
                "{} route replace unreachable {}",
                flag(self.family),
                lan_network(self.family)
            ),
        };
        ip(&line).map(drop)
    }
}

/// Of the first route that `ip route show` tells of.
fn next_hop(shown: &str) -> Option<IpAddr> {
    let mut words = shown.split_whitespace().skip_while(|word| *word != "via");
    words.nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_are_established_when_all_of_them_are() {
        let protocols = |last: &str| {
            format!(
                "BIRD 2.0.12 ready.\nName Proto Table State Since Info\ndevice1 Device --- up 12:00:00.000\n\
                 isp0_ipv4 BGP --- up 12:00:00.000 Established   \nisp1_ipv4 BGP --- {last}\n"
            )
        };
        assert!(is_established(&protocols("up 12:00:00.000 Established")));
        assert!(!is_established(&protocols("start 12:00:00.000 Connect")));
        assert!(!is_established("device1 Device --- up 12:00:00.000\n"));
    }
}
