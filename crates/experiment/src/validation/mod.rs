//! The simulator held against queueing theory, against the formulas of TCP's throughput, and against a real stack.
//!
//! What is measured and what theory says is [`anabranch_sim::validation`]; here seeds are spread over processors and the
//! curves are drawn.

mod lab;
mod mutations;

use std::any::TypeId;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use anabranch_report::chart::Chart;
use anabranch_scenario::stats::{Estimate, NOT_NEGATIVE};
use anabranch_sim::validation::{
    CODEL, CUBIC, ECN, Effort, Expected, FAIRNESS, GOODPUT, HASHES, HYSTART, IDLE, Kind,
    LINUX_MBPS, LOST_SYNS, NEWRENO, Observed, QUEUES, RED, REPEATS, RTT_S, SAWTOOTH, SLOW_START,
    TAILS, Topic, beside_linux, cubic_curve, goodputs, mathis, mutants, pftk,
};

use crate::files::built_in;
use crate::{
    Context, Experiment, ExperimentError, Findings, Mutation, Observation, Region, Sample, Verdict,
    figures,
};

pub static EXPERIMENT: Experiment = Experiment {
    name: "validation",
    title: "the simulator against queueing theory, TCP's formulas and Linux",
    figures: figures! {
        "queues": "queues of known waiting times, the spread of the flow hash, when gentle RED and CoDel drop"
            => queues;
        "tcp": "handshake, slow start and its end, sawtooth, CUBIC's curve, repair of losses, marks, fairness, repetition"
            => tcp;
        "goodput": "goodput against loss beside Mathis, PFTK and Linux" => goodput;
        "lab" [Lab]: "the same scenario in the simulator and on real kernels" => lab::lab;
        "bulk" [Lab]: "one download in the simulator and on real kernels, for three TCPs, buffers and rates of loss"
            => lab::bulk;
    },
    mutations: mutations::ALL,
    files: built_in!(
        "validation",
        [
            "README.md",
            "expected.toml",
            "lab-arrivals.toml",
            "lab-bulk.toml",
            "lab-downloads.toml"
        ]
    ),
};

const SEGMENT_MBIT: f64 = 1448. * 8. / 1e6;

fn effort(context: &Context) -> Effort {
    if context.options.quick {
        Effort::Brief
    } else {
        Effort::Full
    }
}

fn queues(context: &Context) -> Result<Findings, ExperimentError> {
    let mut findings = Findings::default();
    let topics: Vec<Topic> = QUEUES
        .iter()
        .chain(HASHES)
        .chain(&[RED, CODEL])
        .copied()
        .collect();
    for (topic, observed) in topics.iter().zip(measure(context, &topics)?) {
        judge(&mut findings, topic, &observed, context);
    }
    Ok(findings)
}

fn tcp(context: &Context) -> Result<Findings, ExperimentError> {
    let mut findings = Findings::default();
    let topics = [
        IDLE, SLOW_START, SAWTOOTH, CUBIC, HYSTART, NEWRENO, LOST_SYNS, TAILS, ECN, FAIRNESS,
        REPEATS,
    ];
    for (topic, observed) in topics.iter().zip(measure(context, &topics)?) {
        judge(&mut findings, topic, &observed, context);
    }
    let curve = cubic_curve();
    let step = curve.len().div_ceil(200);
    let points = |of: fn(&(f64, f64, f64)) -> f64| {
        let every = curve.iter().step_by(step);
        every.map(|point| (point.0, of(point))).collect::<Vec<_>>()
    };
    let chart = Chart::new("CUBIC after a loss", "time, s", "window, segments")
        .line("simulator", points(|point| point.1))
        .dashed("C·(t − K)³ + W_max", points(|point| point.2));
    findings.plot("cubic", chart);
    Ok(findings)
}

fn goodput(context: &Context) -> Result<Findings, ExperimentError> {
    let mut findings = Findings::default();
    let observed = measure(context, &[GOODPUT])?.remove(0);
    judge(&mut findings, &GOODPUT, &observed, context);
    for (kind, p, ratios) in beside_linux(&observed, effort(context)) {
        let control = if kind == Kind::LinuxReno {
            "reno"
        } else {
            "cubic"
        };
        let ratios = seeded(context, &ratios);
        findings.observe(format!("{control}_{}", p * 1000.), ratios.mean());
    }
    let measured = goodputs(&observed, effort(context));
    findings.plot("goodput", theory(&measured));
    findings.plot("goodput-linux", linux(&measured));
    Ok(findings)
}

/// What the simulator measured of one TCP, in Mbit/s.
fn estimates(measured: &[(Kind, f64, Vec<f64>)], of: Kind) -> Vec<(f64, Estimate)> {
    let mine = measured.iter().filter(|(kind, ..)| *kind == of);
    let points = mine.filter_map(|(_, p, segments)| {
        let mbps = segments.iter().map(|segments| segments * SEGMENT_MBIT);
        Some((*p, Estimate::of(mbps)?.within(NOT_NEGATIVE)))
    });
    points.collect()
}

fn formula(of: impl Fn(f64) -> f64) -> Vec<(f64, f64)> {
    let losses = (0..=50).map(|i| 1e-4 * 500f64.powf(f64::from(i) / 50.));
    losses.map(|p| (p, of(p) * SEGMENT_MBIT)).collect()
}

fn theory(measured: &[(Kind, f64, Vec<f64>)]) -> Chart {
    Chart::new("One flow, round trip 50 ms", "loss", "goodput, Mbit/s")
        .log_x()
        .log_y()
        .dashed("Mathis", formula(|p| mathis(p, RTT_S, 1.)))
        .dashed("PFTK", formula(|p| pftk(p, RTT_S, 1., 0.2)))
        .estimates("SACK", estimates(measured, Kind::Sack))
        .estimates("Reno without SACK", estimates(measured, Kind::Reno))
}

fn linux(measured: &[(Kind, f64, Vec<f64>)]) -> Chart {
    Chart::new(
        "One flow as Linux sends, round trip 50 ms",
        "loss",
        "goodput, Mbit/s",
    )
    .log_x()
    .log_y()
    .dashed("Mathis", formula(|p| mathis(p, RTT_S, 1.)))
    .estimates("Reno, simulator", estimates(measured, Kind::LinuxReno))
    .estimates("CUBIC, simulator", estimates(measured, Kind::LinuxCubic))
    .points("Reno, Linux 6.18", LINUX_MBPS.map(|(p, reno, _)| (p, reno)))
    .points(
        "CUBIC, Linux 6.18",
        LINUX_MBPS.map(|(p, _, cubic)| (p, cubic)),
    )
}

fn judge(findings: &mut Findings, topic: &Topic, observed: &Observed, context: &Context) {
    for check in (topic.judge)(observed, effort(context)) {
        let region = match check.expected {
            Expected::Around { value, tolerance } => Region::around(value, tolerance),
            Expected::AtLeast(least) => Region::at_least(least),
        };
        let observation = match (topic.random, &check.values[..]) {
            (false, [value]) => Observation::Exact(*value),
            (_, values) => seeded(context, values).mean(),
        };
        let stated = match check.identity {
            true => Verdict::Sanity,
            false => Verdict::Reproduced,
        };
        let claim = format!("{}: {}", check.number, check.name);
        findings.check(claim, observation, region, check.unit, stated);
    }
}

/// What every seed gave, in their order.
fn seeded(context: &Context, values: &[f64]) -> Sample {
    let seeds = context.seeds().into_iter();
    seeds.zip(values.iter().copied()).collect()
}

/// Measures all seeds of all topics on the options' threads.
fn measure(context: &Context, topics: &[Topic]) -> Result<Vec<Observed>, ExperimentError> {
    let seeds = context.seeds();
    let of = |topic: usize| {
        topics[topic]
            .seeds(&seeds)
            .iter()
            .map(move |seed| (topic, *seed))
    };
    let tasks: Vec<(usize, u64)> = (0..topics.len()).flat_map(of).collect();
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let results = Mutex::new(BTreeMap::new());
    let work = || {
        while let Some((task, (topic, seed))) = {
            let task = next.fetch_add(1, Ordering::Relaxed);
            tasks.get(task).map(|what| (task, *what))
        } {
            let numbers = measured(context, &topics[topic], seed);
            let mut results = results.lock().expect("no thread panicked");
            results.insert(task, (topic, numbers));
            let done = done.fetch_add(1, Ordering::Relaxed) + 1;
            context.progress.runs(done, tasks.len());
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..context.options.jobs.max(1) {
            scope.spawn(work);
        }
    });
    let mut by_topic = vec![Vec::new(); topics.len()];
    let results = results.into_inner().expect("no thread panicked");
    for (topic, numbers) in results.into_values() {
        by_topic[topic].push(numbers?);
    }
    Ok(by_topic.into_iter().map(Observed::new).collect())
}

/// What is the same under several mutations is measured once.
fn measured(context: &Context, topic: &Topic, seed: u64) -> Result<Vec<f64>, ExperimentError> {
    let Mutation { name, topics, .. } = *context.mutation;
    let broken =
        mutants().find(|mutant| topics && mutant.name == name && mutant.topic == topic.title);
    let (told, measure) = match broken {
        Some(mutant) => (format!("{} ({name})", topic.title), mutant.measure),
        None => (topic.title.to_owned(), topic.measure),
    };
    let run = format!("{told}, seed {seed}");
    let maker = TypeId::of::<Topic>();
    if let Some(known) = context.known(maker, &run) {
        return Ok(known);
    }
    let numbers = context.numbers(&run, seed, || Ok(measure(seed, effort(context))))?;
    context.keep(maker, &run, numbers.clone());
    Ok(numbers)
}
