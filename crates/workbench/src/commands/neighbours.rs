//! `anabranch-lab neighbours`: what a gateway's neighbours lose while things happen to all of them.

use std::fmt::Write;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use anabranch_console::output::print;
use anabranch_console::table::{self, Columns};
use anabranch_lab::neighbours::judge::{Loss, Row, seconds};
use anabranch_lab::neighbours::{self, Outcome, Soak};
use anabranch_results::write_json;
use anyhow::{Context, bail};

use crate::args::NeighboursArgs;
use crate::interrupt::{self, Interrupted};
use crate::preconditions;

/// Losses of each neighbour that are printed; --json has all of them.
const SHOWN: usize = 3;

pub fn run(args: &NeighboursArgs) -> anyhow::Result<()> {
    let soak = Soak {
        seed: args.seed.unwrap_or_else(any_seed),
        length: Duration::from_secs(args.seconds.into()),
        only: args.only.clone(),
        binary: preconditions::laboratory()?,
        stop: interrupt::stop()?,
    };
    eprintln!("seed {}, {} seconds", soak.seed, args.seconds);
    let outcome = neighbours::run(&soak, &|line| eprintln!("{line}"));
    if soak.stop.is_ordered() {
        let kept = "nothing is kept".to_owned();
        return Err(Interrupted { kept }.into());
    }
    let outcome = outcome.with_context(|| format!("seed {}", soak.seed))?;
    if let Some(path) = &args.json {
        write_json(path, &outcome)?;
    }
    print(shown(&outcome))?;
    judged(&outcome)
}

/// Short enough to be typed again.
fn any_seed() -> u64 {
    RandomState::new().hash_one(()) % 1_000_000
}

fn shown(outcome: &Outcome) -> String {
    let mut columns = Columns::new(&[
        "neighbour",
        ">flows checked",
        ">ended with their link",
        ">ended without cause",
        ">new flows",
        ">failed within the bound",
        ">failed beyond it",
    ]);
    for row in &outcome.verdict.rows {
        columns.row(cells(row));
    }
    let mut text = columns.to_string();
    for row in &outcome.verdict.rows {
        let losses = outcome.verdict.losses.iter();
        let losses: Vec<_> = losses.filter(|it| it.neighbour == row.neighbour).collect();
        losses
            .iter()
            .take(SHOWN)
            .for_each(|loss| text += &told(loss));
        if losses.len() > SHOWN {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "\n{}: {} more", row.neighbour, losses.len() - SHOWN);
        }
    }
    text
}

fn cells(row: &Row) -> [String; 7] {
    let marked = |count: usize| match count {
        0 => "0".to_owned(),
        _ => table::bad(&count.to_string()).to_string(),
    };
    [
        row.neighbour.to_owned(),
        row.flows.to_string(),
        row.ended_excused.to_string(),
        marked(row.ended_unexcused),
        row.attempts.to_string(),
        row.failed_excused.to_string(),
        marked(row.failed_unexcused),
    ]
}

fn told(loss: &Loss) -> String {
    let (at, neighbour, what) = (seconds(loss.at_ms), loss.neighbour, &loss.what);
    let mut text = format!("\n{at}: {neighbour}: {what}\n");
    for event in &loss.before {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "    after {event}");
    }
    text
}

fn judged(outcome: &Outcome) -> anyhow::Result<()> {
    match outcome.verdict.losses.len() {
        0 => Ok(()),
        count => bail!(
            "{count} flows were lost without cause; --seed {} gives the same order of events",
            outcome.seed
        ),
    }
}
