//! A choice by itself: nanoseconds of `ab_choose`, which the gateway calls for every new flow, among 16 and among 256 targets
//! under `BPF_PROG_TEST_RUN`. All targets are usable and nothing binds the flow, so that what scans has all of them to scan.

use anabranch_dataplane::despite_signals;
use anabranch_policy::{Dispatch, Granularity, Load, abi};
use anyhow::{Context, Result, ensure};
use aya::maps::Array;
use aya::programs::{SchedClassifier, TestRun, TestRunOptions};
use aya::{Ebpf, EbpfLoader, include_bytes_aligned};

use crate::ratios::{median, sorted};

static OBJECT: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/choice.bpf.o"));

const REPEAT: u32 = 1_000;
const WALKS: usize = 500;
/// An Ethernet and an IP header: the least that a test run takes.
const FRAME: [u8; 34] = [0; 34];

/// What is chosen among how many, by the names of rows.
pub const CHOICES: [(&str, Dispatch, u16); 7] = [
    ("choice_16_weighted", Dispatch::Weighted, 16),
    ("choice_16_best", Dispatch::Best, 16),
    ("choice_256_weighted", Dispatch::Weighted, 256),
    ("choice_256_best", Dispatch::Best, 256),
    ("choice_256_table", Dispatch::Table, 256),
    ("choice_256_two", Dispatch::RandomTwo, 256),
    ("choice_256_turns", Dispatch::Turns, 256),
];

/// Nanoseconds per choice, the median of many test runs.
pub fn measure(dispatch: Dispatch, targets: u16) -> Result<f64> {
    let mut bpf = EbpfLoader::new().load(OBJECT)?;
    write(&mut bpf, "choice", choice(dispatch, targets))?;
    write(&mut bpf, "consistent", table(targets))?;
    nanoseconds(&mut bpf, "choose", targets.into())
}

/// Of one call of a program that gives a number below `count`, the median of many test runs.
pub fn nanoseconds(bpf: &mut Ebpf, name: &'static str, count: u32) -> Result<f64> {
    let program = bpf.program_mut(name).context(name)?;
    let program: &mut SchedClassifier = program.try_into()?;
    program.load()?;
    let durations: Result<Vec<_>> = (0..WALKS).map(|_| run(program, count)).collect();
    Ok(median(&sorted(durations?.into_iter())))
}

fn run(program: &SchedClassifier, count: u32) -> Result<f64> {
    let ran = despite_signals(|| {
        program.test_run(TestRunOptions {
            data_in: Some(&FRAME),
            repeat: REPEAT,
            ..TestRunOptions::new()
        })
    })?;
    let given = ran.return_value;
    ensure!(given < count, "{given} was chosen of {count}");
    Ok(ran.duration.as_nanos() as f64)
}

/// Of a map with one entry.
pub fn write<T: aya::Pod>(bpf: &mut Ebpf, name: &'static str, value: T) -> Result<()> {
    let map = bpf.map_mut(name).context(name)?;
    let mut map = Array::<_, T>::try_from(map)?;
    Ok(map.set(0, value, 0)?)
}

fn choice(dispatch: Dispatch, targets: u16) -> abi::Choice {
    let mut choice = abi::Choice {
        dispatch: dispatch.into(),
        load: Load::Active.into(),
        count: targets.into(),
        usable: (0..targets).collect(),
        working: (0..targets).collect(),
        granularity: Granularity::Connection.into(),
        ..Default::default()
    };
    for target in choice.target.iter_mut().take(targets.into()) {
        *target = abi::Target::new(abi::WEIGHT_MIN, 0);
    }
    choice
}

/// Each target as often as the others; which slot is whose does not matter to how long it takes.
fn table(targets: u16) -> abi::Consistent {
    let mut table = abi::Consistent {
        target: [0; abi::CONSISTENT_SLOTS],
        slots: 0,
    };
    for (slot, target) in (0..).zip(&mut table.target) {
        *target = slot % targets;
    }
    table
}
