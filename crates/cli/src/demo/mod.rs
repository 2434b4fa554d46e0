//! The product's main job, shown: a gateway over three links, and one of them dies.
//!
//! A laboratory is built of network namespaces: clients, three ISPs behind emulated lines, a web server, and between
//! them this very executable as `anabranch run`. The clients keep all links loaded with downloads. Half way through,
//! one line turns into a blackhole: its carrier stays, its packets vanish ([`plan`]). Meanwhile the daemon is asked for
//! its status five times a second, the way anybody could ask it ([`watch`]), and the answers are drawn ([`screen`]).
//! What the clients received, not what the gateway claims, makes the figures at the end ([`outcome`]).
//!
//! Nothing here measures or judges by itself: transfers come from `workload`, faults and links from `lab`, figures and
//! plots from `scenario`. An interrupt ends the run early and everything is taken down the same way.

mod outcome;
mod plan;
mod screen;
mod watch;

use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anabranch_daemon::BadInput;
use anabranch_daemon::control::LinkState;
use anabranch_lab::netns::NetnsError;
use anabranch_lab::topology::{Gateway, Lab, LabError};
use anabranch_scenario::write_json;
use anabranch_workload::Transfer;
use anabranch_workload::client::{self, ClientError, TransferEvent};
use anyhow::{Context, bail};
use tokio::signal::unix::{SignalKind, signal};

use crate::args::DemoArgs;
use crate::control::Daemon;
use crate::output::print;
use outcome::Evidence;
use plan::Plan;
use screen::Screen;
use watch::Watch;

/// Between two looks at the daemon.
const LOOK: Duration = Duration::from_millis(200);
/// For every link to answer its first probes.
const READY: Duration = Duration::from_secs(10);
/// After the planned end, before the clients are given up.
const GRACE: Duration = Duration::from_secs(5);

pub fn run(args: &DemoArgs) -> anyhow::Result<()> {
    let plan = Plan::new(args.policy, Duration::from_secs(args.seconds.into()));
    let interrupted = interrupts()?;
    let mut lab = build(&plan)?;
    print(plan.introduction())?;
    let evidence = play(&plan, &mut lab, &interrupted)?;
    drop(lab);
    let result = evidence.result();
    let page = evidence.report(&result).write(&args.out)?;
    if let Some(path) = &args.json {
        write_json(path, &result)?;
    }
    print(format!(
        "{}report: {}\n",
        evidence.summary(&result),
        page.display()
    ))
}

fn build(plan: &Plan) -> anyhow::Result<Lab> {
    let gateway = Gateway::Anabranch {
        binary: std::env::current_exe()?,
        settings: plan.settings(),
    };
    match Lab::build(&plan.lab(), &gateway) {
        Err(LabError::Namespace(NetnsError::Privilege)) => Err(BadInput::new(
            "the demo needs root for network namespaces and BPF: run `sudo anabranch demo`",
        )
        .into()),
        built => built.context("building the laboratory"),
    }
}

/// Carries the plan out and watches.
fn play(plan: &Plan, lab: &mut Lab, interrupted: &Receiver<()>) -> anyhow::Result<Evidence> {
    let mut daemon = Daemon::of(lab.anabranch()?.instance())?;
    let (events, told) = mpsc::channel();
    wait_for_links(&mut daemon)?;
    let config = plan.client(lab);
    let epoch = config.epoch;
    let mut watch = Watch::new(plan, epoch);
    watch.look(&mut daemon)?;
    let mut screen = Screen::new(plan);
    let mut clients = Some(start_clients(plan, lab, config, events)?);
    let end = epoch + plan.duration + GRACE;
    while clients
        .as_ref()
        .is_some_and(|clients| !clients.is_finished())
        && Instant::now() < end
    {
        if plan.is_cut_due(epoch.elapsed()) && !watch.is_cut() {
            watch.cut(lab.cut(&plan.cut_link)?);
        }
        watch.hear(&told);
        watch.look(&mut daemon)?;
        for event in watch.news() {
            screen.tell(event)?;
        }
        screen.draw(&watch.frame())?;
        match interrupted.recv_timeout(LOOK) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(()) | Err(RecvTimeoutError::Disconnected) => bail!("interrupted"),
        }
    }
    screen.finish()?;
    let clients = clients
        .take()
        .filter(JoinHandle::is_finished)
        .context("the clients did not end in time")?;
    let transfers = clients
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
    Ok(watch.into_evidence(plan, transfers, lab.report()?))
}

/// A gateway that has just started takes its links on trust until each has answered.
fn wait_for_links(daemon: &mut Daemon) -> anyhow::Result<()> {
    let deadline = Instant::now() + READY;
    loop {
        let links = daemon.status()?.links;
        let Some(waiting) = links.iter().find(|link| link.state != LinkState::Up) else {
            return Ok(());
        };
        if Instant::now() > deadline {
            bail!(
                "link {} is not up after {} s: {}",
                waiting.name,
                READY.as_secs(),
                waiting.why
            );
        }
        thread::sleep(LOOK);
    }
}

/// The clients run on a thread of their own that nobody has to wait for: an interrupt must not last as long as a
/// download.
fn start_clients(
    plan: &Plan,
    lab: &Lab,
    config: client::ClientConfig,
    events: mpsc::Sender<TransferEvent>,
) -> anyhow::Result<JoinHandle<Result<Vec<Transfer>, ClientError>>> {
    let workload = plan.workload.clone();
    let _inside = lab.clients().enter()?;
    Ok(thread::spawn(move || {
        client::run(&workload, config, events)
    }))
}

/// Ctrl-C, and what a service manager sends.
fn interrupts() -> anyhow::Result<Receiver<()>> {
    let (sender, receiver) = mpsc::channel();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let (mut interrupt, mut terminate) = {
        let _inside = runtime.enter();
        (
            signal(SignalKind::interrupt())?,
            signal(SignalKind::terminate())?,
        )
    };
    thread::spawn(move || {
        runtime.block_on(async {
            tokio::select! { _ = interrupt.recv() => {}, _ = terminate.recv() => {} }
        });
        // The receiver is gone only when the demo is over.
        let _ = sender.send(());
    });
    Ok(receiver)
}
