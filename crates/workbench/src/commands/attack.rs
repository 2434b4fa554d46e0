//! `anabranch-lab attack`: floods, and what innocent hosts lose by them, in one table.

use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use anabranch_config::BadInput;
use anabranch_config::did_you_mean;
use anabranch_console::output::print;
use anabranch_console::table::{self, Columns};
use anabranch_lab::attack::{self, ATTACKS, Attack, PINGS, Row, Subject, Trial};
use anabranch_results::write_json;
use anabranch_workload::client::Stop;
use anyhow::{Context, bail};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::args::{AttackArgs, AttackSubject};
use crate::interrupt::{self, Interrupted};
use crate::preconditions;

const RTTS_MS: [u16; 3] = [0, 100, 800];
const QUICK_RTT_MS: u16 = 100;
const SECONDS: u16 = 10;
const QUICK_SECONDS: u16 = 5;
const BAR: &str = "{bar:40} {pos} of {len}  {msg}";

/// What `--json` writes.
#[derive(Serialize)]
struct Rows<'a> {
    rows: &'a [Row],
}

pub fn run(args: &AttackArgs) -> anyhow::Result<()> {
    let attacks = chosen(args)?;
    let binary = preconditions::laboratory()?;
    let trials = trials(args, &attacks, &binary, &interrupt::stop()?);
    let rows = carry_out(&trials)?;
    if let Some(path) = &args.json {
        write_json(path, &Rows { rows: &rows })?;
    }
    print(shown(&rows, args.verbose))?;
    judged(&rows)
}

fn chosen(args: &AttackArgs) -> Result<Vec<&'static Attack>, BadInput> {
    let Some(name) = &args.name else {
        return Ok(ATTACKS.iter().collect());
    };
    let unknown = || {
        let names: Vec<_> = ATTACKS.iter().map(|attack| attack.name).collect();
        let (allowed, hint) = (names.join(", "), did_you_mean(name, names));
        BadInput::new(format!("unknown attack `{name}`, allowed: {allowed}{hint}"))
    };
    Attack::named(name)
        .map(|attack| vec![attack])
        .ok_or_else(unknown)
}

/// The same attack on all gateways, one after the other.
fn trials(
    args: &AttackArgs,
    attacks: &[&'static Attack],
    binary: &Path,
    stop: &Stop,
) -> Vec<Trial> {
    let rtts_ms = match (&args.rtts_ms[..], args.quick) {
        ([], true) => vec![QUICK_RTT_MS],
        ([], false) => RTTS_MS.to_vec(),
        (given, _) => given.to_vec(),
    };
    let usual = if args.quick { QUICK_SECONDS } else { SECONDS };
    let subjects = match args.subject {
        AttackSubject::Anabranch => vec![Subject::Anabranch],
        AttackSubject::Nftables => vec![Subject::Nftables],
        AttackSubject::Haproxy => vec![Subject::Haproxy],
        AttackSubject::All => vec![Subject::Anabranch, Subject::Nftables, Subject::Haproxy],
    };
    let mut trials = Vec::new();
    for &attack in attacks {
        let families = args.family.list().iter();
        let settings = families.flat_map(|&family| rtts_ms.iter().map(move |&rtt| (family, rtt)));
        for (family, rtt_ms) in settings {
            let concerned = subjects
                .iter()
                .filter(|subject| attack.concerns(**subject, family));
            trials.extend(concerned.map(|&subject| Trial {
                attack,
                subject,
                family,
                round_trip: Duration::from_millis(rtt_ms.into()),
                rate_pps: args.rate,
                length: Duration::from_secs(args.seconds.unwrap_or(usual).into()),
                binary: binary.to_owned(),
                stop: stop.clone(),
            }));
        }
    }
    trials
}

fn carry_out(trials: &[Trial]) -> anyhow::Result<Vec<Row>> {
    let bar = ProgressBar::new(trials.len() as u64);
    let style = ProgressStyle::with_template(BAR).unwrap_or_else(|_| ProgressStyle::default_bar());
    bar.set_style(style.progress_chars("█▉▊▋▌▍▎▏ "));
    let mut rows = Vec::new();
    for trial in trials {
        let name = name(trial);
        let row = attack::run(trial, &mut |step| {
            bar.set_message(format!("{name}: {step}"))
        });
        if trial.stop.is_ordered() {
            let kept = "nothing is kept".to_owned();
            return Err(Interrupted { kept }.into());
        }
        rows.push(row.with_context(|| name.clone())?);
        bar.inc(1);
        if bar.is_hidden() {
            eprintln!("{} of {}: {name}", rows.len(), trials.len());
        }
    }
    bar.finish_and_clear();
    Ok(rows)
}

fn name(trial: &Trial) -> String {
    let (attack, rtt_ms) = (trial.attack.name, trial.round_trip.as_millis());
    let (subject, family) = (word(trial.subject), trial.family);
    format!("{attack} on {subject}, {family}, {rtt_ms} ms")
}

fn word(subject: Subject) -> &'static str {
    match subject {
        Subject::Anabranch => "anabranch",
        Subject::Nftables => "nftables",
        Subject::Haproxy => "haproxy",
    }
}

fn shown(rows: &[Row], verbose: bool) -> String {
    let mut columns = Columns::new(&[
        "attack",
        "gateway",
        "family",
        ">rtt",
        ">rate",
        ">live flows lost",
        ">connects",
        ">queries",
        ">own pings",
        ">newcomer",
        ">links falsely lost",
        ">broken link up",
        ">steered",
        "",
    ]);
    for row in rows {
        columns.row([
            row.attack.to_owned(),
            word(row.subject).to_owned(),
            row.family.to_owned(),
            format!("{} ms", row.rtt_ms),
            format!("{} k/s", row.rate_pps / 1000),
            format!("{} of {}", row.flows_lost, row.flows_live),
            of(row.connects_ok, row.connects_tried),
            of(row.queries_ok, row.queries_tried),
            of(row.own_pings_ok, PINGS),
            of(row.newcomer_ok, row.newcomer_tried),
            falsely_lost(row),
            or_nothing(row.verdicts.and_then(|all| all.broken_up_s).map(seconds)),
            or_nothing(row.steered.map(|count| count.to_string())),
            failures(row),
        ]);
    }
    let mut text = columns.to_string();
    if verbose {
        rows.iter().for_each(|row| text += &details(row));
    }
    text
}

fn of(good: usize, tried: usize) -> String {
    format!("{good}/{tried}")
}

fn falsely_lost(row: &Row) -> String {
    or_nothing(row.verdicts.map(|all| match all.falsely_lost {
        0 => "0".to_owned(),
        links => format!("{links}, {}", seconds(all.falsely_lost_s)),
    }))
}

fn seconds(seconds: f64) -> String {
    format!("{seconds:.1} s")
}

fn or_nothing(cell: Option<String>) -> String {
    cell.unwrap_or_else(|| "-".into())
}

fn failures(row: &Row) -> String {
    let words = row.failures().join(", ");
    match (words.is_empty(), row.invalid) {
        (true, _) => words,
        (false, true) => table::doubtful("invalid: this machine lost packets").to_string(),
        (false, false) => table::bad(words).to_string(),
    }
}

fn details(row: &Row) -> String {
    let mut text = format!(
        "\n{} on {}, {}, {} ms: {} packets passed, {} with a LAN source or a tag; dropped by this machine: {} by processors, {} by devices\n",
        row.attack,
        word(row.subject),
        row.family,
        row.rtt_ms,
        row.passed,
        row.leaked,
        row.softnet_drops,
        row.device_drops
    );
    for reason in &row.reasons {
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{:>12}  {:<8} {}",
            reason.packets, reason.fate, reason.words
        );
    }
    text
}

/// Whether Anabranch stood all of it.
fn judged(rows: &[Row]) -> anyhow::Result<()> {
    let ours = rows.iter().filter(|row| row.subject == Subject::Anabranch);
    let failed: Vec<_> = ours
        .filter(|row| !row.invalid && !row.failures().is_empty())
        .map(|row| {
            let failures = row.failures().join(", ");
            format!(
                "{} of {} at {} ms ({failures})",
                row.attack, row.family, row.rtt_ms
            )
        })
        .collect();
    if failed.is_empty() {
        return Ok(());
    }
    bail!("anabranch failed under {}", failed.join(", "))
}
