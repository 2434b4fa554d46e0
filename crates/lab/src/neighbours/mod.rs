//! A soak of neighbours: the gateway on one box with what stands beside it on real ones, while things happen.
//!
//! The box ([`site`]) has DHCP clients on two links and a static third link with a shaper. A plan that is drawn from a seed
//! ([`plan`]) says what happens and in which order: links fail, leases change, programs restart. It is carried out ([`actors`])
//! while flows of every neighbour are kept open and new ones are opened all the time ([`flows`]). Of what was done and seen,
//! a pure function ([`judge`]) says what was lost without cause.

mod actors;
mod flows;
pub mod judge;
mod plan;
mod site;

use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use anabranch_workload::client::Stop;
use serde::Serialize;

use crate::topology::{LabError, Result, io_error};
use actors::{Stage, act_on_links};
use anabranch_testbed::netns::Namespace;
use flows::{Ledger, Target, Watch, serve, watch, watch_machine};
use judge::{Event, Verdict, judge};
use plan::LINKS;
use site::{Ground, Site};

/// What to run.
#[derive(Debug, Clone)]
pub struct Soak {
    /// Of all that is random.
    pub seed: u64,
    /// How long things happen.
    pub length: Duration,
    /// The executable whose `run` is the gateway.
    pub binary: PathBuf,
    /// Ends the soak early.
    pub stop: Stop,
}

/// What came of it.
#[derive(Debug, Clone, Serialize)]
pub struct Outcome {
    /// Repeats the order of events.
    pub seed: u64,
    /// How long things happened.
    pub length_ms: u64,
    /// What was done, in the order of its beginning.
    pub events: Vec<Event>,
    /// What was lost, and without cause.
    #[serde(flatten)]
    pub verdict: Verdict,
}

const LAN_FLOWS: &str = "LAN host";
const LAN6_FLOWS: &str = "LAN host, IPv6";
const BOX_FLOWS: &str = "the box itself";
const SERVED_FLOWS: &str = "LAN host to the box";
const FROM_OUTSIDE: &str = "outside to the box";

/// Runs a soak. `tell` is told a line per event, as it begins.
///
/// # Errors
/// If the site cannot be built or an event cannot be carried out. An interrupted soak is an error.
pub fn run(soak: &Soak, tell: &(dyn Fn(&str) + Sync)) -> Result<Outcome> {
    tell("building the site");
    let Site { mut links, ground } = Site::build(&soak.binary)?;
    let ledger = Arc::new(ledger_of(&ground)?);
    let (ended, closed) = (Stop::default(), Stop::default());
    let stage = Stage {
        ground: &ground,
        ledger: &ledger,
        stop: &ended,
        tell,
    };
    let roles = roles(&ground);
    thread::scope(|scope| {
        let mut servers = Vec::new();
        let mut threads = Vec::new();
        let (ready, readiness) = mpsc::channel();
        for role in &roles {
            let (ready, closed) = (ready.clone(), &closed);
            servers.push(scope.spawn(move || role.serve(ready, closed)));
        }
        drop(ready);
        for _ in &roles {
            // A server that fails drops its sender, and is found finished below.
            let _ = readiness.recv();
        }
        for role in &roles {
            let (ledger, ended) = (&ledger, &ended);
            threads.push(scope.spawn(move || role.watch(ledger, ended)));
        }
        scope.spawn(|| watch_machine(&ledger, &ended));
        threads.push(scope.spawn(|| act_on_links(stage, &mut links, plan::links(soak.seed))));
        let finished = |threads: &[thread::ScopedJoinHandle<'_, Result<()>>]| {
            threads.iter().any(thread::ScopedJoinHandle::is_finished)
        };
        let length_ms = soak.length.as_millis() as u64;
        // Whoever ends early has failed, and nobody else has to go on.
        while ledger.now_ms() < length_ms && !soak.stop.is_ordered() && !finished(&threads) {
            thread::sleep(LOOK_AGAIN);
        }
        ledger.record().length_ms = ledger.now_ms();
        ended.order();
        let ends: Result<()> = threads.into_iter().try_for_each(joined);
        // Nobody is left who could be refused.
        closed.order();
        ends.and(servers.into_iter().try_for_each(joined))
    })?;
    if soak.stop.is_ordered() {
        return Err(LabError::Load("interrupted".into()));
    }
    let mut record = ledger.record();
    record.events.sort_by_key(|event| event.begun_ms);
    let neighbours: Vec<_> = roles.iter().flat_map(Role::neighbours).collect();
    Ok(Outcome {
        seed: soak.seed,
        length_ms: record.length_ms,
        events: record.events.clone(),
        verdict: judge(&record, &neighbours),
    })
}

const LOOK_AGAIN: Duration = Duration::from_millis(50);

fn joined<T>(thread: thread::ScopedJoinHandle<'_, T>) -> T {
    thread
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn ledger_of(ground: &Ground) -> Result<Ledger> {
    let mut addresses = Vec::new();
    for link in 0..LINKS {
        let present = ground.present(link)?;
        let missing = || LabError::Load(format!("link {link} has no address"));
        addresses.push(present.ok_or_else(missing)?);
    }
    Ok(Ledger::new(addresses))
}

/// What is done in a namespace for as long as the soak lasts.
struct Role<'a> {
    namespace: &'a Namespace,
    /// Answers at these over TCP, and at those over UDP.
    serves: [Vec<std::net::SocketAddr>; 2],
    watches: Vec<Watch>,
}

impl Role<'_> {
    fn serve(&self, ready: mpsc::Sender<()>, stop: &Stop) -> Result<()> {
        let [streams, datagrams] = &self.serves;
        self.inside("servers", || serve(streams, datagrams, ready, stop))
    }

    fn watch(&self, ledger: &Arc<Ledger>, stop: &Stop) -> Result<()> {
        self.inside("clients", || watch(&self.watches, ledger, stop))
    }

    fn inside(&self, who: &str, work: impl FnOnce() -> std::io::Result<()> + Send) -> Result<()> {
        let failed = io_error(format!("{who} in {}", self.namespace.name()));
        self.namespace.run(work)?.map_err(failed)
    }

    fn neighbours(&self) -> impl Iterator<Item = &'static str> {
        self.watches.iter().map(|watch| watch.neighbour)
    }
}

/// Who serves, and whose flows are watched, in the order of the report.
fn roles(ground: &Ground) -> Vec<Role<'_>> {
    let [v4, v6] = site::servers();
    let at = |servers: &[std::net::SocketAddr]| -> Vec<_> {
        servers.iter().copied().map(Target::At).collect()
    };
    let through = |neighbour, targets: Vec<Target>, long| Watch {
        neighbour,
        targets,
        needs: vec![],
        any_link: true,
        long,
    };
    let all = ([0, 0, 0, 0], site::PORT).into();
    let the_box = (
        site::BOX.parse::<std::net::IpAddr>().expect("an address"),
        site::PORT,
    )
        .into();
    let from_outside = (0..LINKS)
        .map(|link| Target::Link(link, site::PORT))
        .collect();
    vec![
        Role {
            namespace: &ground.host,
            serves: [vec![], vec![]],
            watches: vec![
                through(LAN_FLOWS, at(&v4), [9, 4]),
                through(LAN6_FLOWS, at(&v6), [6, 3]),
                Watch {
                    any_link: false,
                    ..through(SERVED_FLOWS, at(&[the_box]), [2, 0])
                },
            ],
        },
        Role {
            namespace: &ground.the_box,
            serves: [vec![all], vec![]],
            watches: vec![through(BOX_FLOWS, at(&v4), [3, 3])],
        },
        Role {
            namespace: &ground.internet,
            serves: [[&v4[..], &v6[..]].concat(), [v4, v6].concat()],
            watches: vec![Watch {
                any_link: false,
                ..through(FROM_OUTSIDE, from_outside, [3, 0])
            }],
        },
    ]
}
