//! `anabranch-fuzz`: as many packets as wanted through the loaded programs; ends with 1 at the first violation.

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use anabranch_fuzz::live::{self, Live};
use anabranch_fuzz::rig::Outcome;
use anabranch_fuzz::round::{Arena, PACKETS, Tally, Violation, seed_of};
use anabranch_fuzz::script::{Script, Shot, to_hex};
use anabranch_policy::Fate;
use anyhow::Result;
use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use rand::RngExt;

#[derive(Parser)]
#[command(
    about = "Mutated packets through the loaded programs; ends with 1 at the first violation"
)]
struct Args {
    /// How many packets, rounded up to whole rounds
    #[arg(long, default_value_t = 10_000_000)]
    packets: u64,
    /// What the rounds are drawn from; random without
    #[arg(long)]
    seed: Option<u64>,
    /// The first round, to repeat one
    #[arg(long, default_value_t = 0)]
    first_round: u64,
    /// Rigs side by side; one per processor without
    #[arg(long)]
    jobs: Option<usize>,
    /// Play this file instead, and tell what became of every packet
    #[arg(long)]
    replay: Option<PathBuf>,
    /// Find a short script for every reason, write them to this folder and end
    #[arg(long)]
    collect: Option<PathBuf>,
    /// Where the corpus is
    #[arg(long, default_value = "crates/fuzz/corpus")]
    corpus: PathBuf,
    /// The product, for the packets that are sent for real
    #[arg(long, default_value = "target/release/anabranch")]
    product: PathBuf,
    /// How many of those that were sent or left to the kernel are sent for real
    #[arg(long, default_value_t = 1000)]
    live: usize,
    /// Where a violation is written to
    #[arg(long, default_value = "target/fuzz")]
    out: PathBuf,
}

fn main() -> Result<ExitCode> {
    let args = Args::parse();
    let violation = match &args.replay {
        Some(path) => replay(path)?,
        None => fuzz(&args)?,
    };
    let Some(violation) = violation else {
        return Ok(ExitCode::SUCCESS);
    };
    eprintln!("violation: {}", violation.words);
    if args.replay.is_none() {
        let path = violation.keep(&args.out)?;
        eprintln!(
            "{} packets lead to it: {}",
            violation.script.shots.len(),
            path.display()
        );
        eprintln!("again: anabranch-fuzz --replay {}", path.display());
    }
    Ok(ExitCode::FAILURE)
}

fn replay(path: &Path) -> Result<Option<Violation>> {
    let script = Script::read(path)?;
    let found = Arena::new()?.play(&script, |shot, outcome| {
        println!("{} {}\n  {outcome}", shot.port, to_hex(&shot.frame));
    })?;
    Ok(found.map(|(_, words)| Violation::repeating(words, script)))
}

fn fuzz(args: &Args) -> Result<Option<Violation>> {
    let mut arena = Arena::new()?;
    if let Some(folder) = &args.collect {
        collect(&mut arena, folder)?;
        return Ok(None);
    }
    if let Some(violation) = arena.corpus(&args.corpus)? {
        return Ok(Some(violation));
    }
    drop(arena);
    rounds(args)
}

/// Rounds in which a reason is looked for.
const COLLECTED_ROUNDS: u64 = 20;
/// Of every reason, and of the beginning of a round.
const SAMPLES: usize = 500;

fn collect(arena: &mut Arena, folder: &Path) -> Result<()> {
    fs::create_dir_all(folder)?;
    let reasons = anabranch_policy::reasons();
    for (number, reason) in reasons.iter().enumerate() {
        let found = (0..COLLECTED_ROUNDS).find_map(|round| {
            let mut shots = Vec::new();
            let mut last = None;
            let told = arena.round(seed_of(1, round), PACKETS, |shot, outcome| {
                shots.push(shot.clone());
                if last.is_none() && outcome.reasons.contains(&number) {
                    last = Some(shots.len());
                }
            });
            shots.truncate(last?);
            let told = told.is_ok().then(|| arena.told().clone())?;
            Some(Script { told, shots })
        });
        let Some(script) = found else { continue };
        let script = arena.fewest(script, |arena, script| {
            let (mut place, mut found) = (0, None);
            arena.play(script, |_, outcome| {
                if outcome.reasons.contains(&number) {
                    found.get_or_insert(place);
                }
                place += 1;
            })?;
            Ok(found)
        })?;
        let name = reason.name.to_lowercase().replace('_', "-");
        let path = folder.join(format!("{name}.hex"));
        fs::write(&path, script.print(reason.words, &[]))?;
        println!("{}: {} packets", path.display(), script.shots.len());
    }
    Ok(())
}

/// What the workers share.
struct Work {
    seed: u64,
    next: AtomicU64,
    end: u64,
    over: AtomicBool,
    found: Mutex<Option<Violation>>,
    tally: Mutex<Tally>,
    samples: Mutex<Samples>,
    bar: ProgressBar,
}

fn rounds(args: &Args) -> Result<Option<Violation>> {
    let seed = args.seed.unwrap_or_else(|| rand::rng().random());
    let rounds = args.packets.div_ceil(PACKETS);
    println!("seed {seed}: {rounds} rounds of {PACKETS} packets");
    let style = ProgressStyle::with_template(
        "{bar:40} {percent:>3} %  {human_pos} packets  {per_sec}  {eta} left",
    )?;
    let work = Work {
        seed,
        next: args.first_round.into(),
        end: args.first_round + rounds,
        over: AtomicBool::new(false),
        found: Mutex::default(),
        tally: Mutex::default(),
        samples: Mutex::default(),
        bar: ProgressBar::new(rounds * PACKETS).with_style(style),
    };
    let began = Instant::now();
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let jobs = args.jobs.unwrap_or(cpus);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..jobs).map(|_| scope.spawn(|| worker(&work))).collect();
        let join = |worker: std::thread::ScopedJoinHandle<'_, Result<()>>| worker.join();
        workers.into_iter().try_for_each(|worker| {
            join(worker).unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    })?;
    work.bar.finish_and_clear();
    let tally = work
        .tally
        .into_inner()
        .unwrap_or_else(|poison| poison.into_inner());
    tell(&tally, began.elapsed().as_secs_f64());
    let found = work
        .found
        .into_inner()
        .unwrap_or_else(|poison| poison.into_inner());
    if found.is_some() || args.live == 0 {
        return Ok(found);
    }
    let samples = work
        .samples
        .into_inner()
        .unwrap_or_else(|poison| poison.into_inner());
    send_for_real(args, &samples.take(args.live))
}

fn send_for_real(args: &Args, shots: &[Shot]) -> Result<Option<Violation>> {
    let (passed, found) = Live::start(&args.product)?.send(shots)?;
    println!(
        "sent for real: {} packets; {} came out at the ISPs, {} on the LAN",
        passed.sent, passed.at_isps, passed.on_lan
    );
    Ok(found)
}

/// Packets that were sent or left to the kernel: the beginning of a round, whose flows begin with it, and the last of
/// every reason.
#[derive(Default)]
struct Samples {
    first: Vec<Shot>,
    by_reason: BTreeMap<usize, VecDeque<Shot>>,
}

impl Samples {
    fn add(&mut self, shot: &Shot, outcome: &Outcome) {
        if self.first.len() < SAMPLES && live::is_sendable(shot) {
            self.first.push(shot.clone());
        }
        let fate = outcome.reason().map(|reason| reason.fate);
        if !live::is_sendable(shot) || !matches!(fate, Some(Fate::Sent | Fate::Passed)) {
            return;
        }
        for &reason in &outcome.reasons {
            let kept = self.by_reason.entry(reason).or_default();
            kept.truncate(SAMPLES - 1);
            kept.push_front(shot.clone());
        }
    }

    fn merge(&mut self, other: Samples) {
        self.first = other.first;
        for (reason, shots) in other.by_reason {
            self.by_reason.entry(reason).or_default().extend(shots);
        }
    }

    /// Half of them from a round's beginning, half in turn from all reasons.
    fn take(mut self, count: usize) -> Vec<Shot> {
        let mut taken = self.first;
        taken.truncate(count / 2);
        while taken.len() < count && self.by_reason.values().any(|shots| !shots.is_empty()) {
            taken.extend(self.by_reason.values_mut().filter_map(VecDeque::pop_front));
        }
        taken
    }
}

fn worker(work: &Work) -> Result<()> {
    let mut arena = Arena::new()?;
    let mut kept = Samples::default();
    while !work.over.load(Ordering::Relaxed) {
        let round = work.next.fetch_add(1, Ordering::Relaxed);
        if round >= work.end {
            break;
        }
        let mut samples = Samples::default();
        let violation = arena.round(seed_of(work.seed, round), PACKETS, |shot, outcome| {
            samples.add(shot, outcome);
        })?;
        kept = samples;
        work.bar.inc(PACKETS);
        if let Some(violation) = violation {
            work.over.store(true, Ordering::Relaxed);
            let mut shrunk = arena.shrink(violation)?;
            shrunk.words += &format!(" (seed {}, round {round})", work.seed);
            if let Ok(mut found) = work.found.lock() {
                found.get_or_insert(shrunk);
            }
        }
    }
    if let Ok(mut samples) = work.samples.lock() {
        samples.merge(kept);
    }
    if let Ok(mut tally) = work.tally.lock() {
        tally.merge(&arena.tally);
    }
    Ok(())
}

fn tell(tally: &Tally, seconds: f64) {
    let packets: u64 = tally.0.iter().sum();
    println!("{packets} packets in {seconds:.1} s");
    let counts = anabranch_policy::reasons().iter().zip(&tally.0);
    let (reached, not_reached): (Vec<_>, Vec<_>) = counts.partition(|&(_, &count)| count > 0);
    for (reason, count) in reached {
        println!("{count:>12}  {}", reason.words);
    }
    println!("not reached:");
    for (reason, _) in not_reached {
        println!("{:>12}  {}", "", reason.words);
    }
}
