//! Guo 2004's future work: response times that are asked for (active) against those that flows have met (passive), by what
//! connections wait and what is sent to measure.

mod mutations;

use anabranch_report::chart::Bars;
use anabranch_scenario::stats::{mean, ratio};
use anabranch_scenario::{Record, Run};

use crate::files::built_in;
use crate::{Context, Experiment, ExperimentError, Findings, Sample, figures, simulate};

pub static EXPERIMENT: Experiment = Experiment {
    name: "2004-guo-response-times",
    title: "response times asked for against those that flows have met: what is gained, and what it costs",
    figures: figures! {
        "popular": "connections to prefixes that are used much"
            => |context| waits(context, "popular", |seen| seen.popular_s);
        "rare": "connections to prefixes that are used little" => |context| waits(context, "rare", |seen| seen.rare_s);
        "cost": "packets that are sent to measure" => cost;
    },
    mutations: mutations::ALL,
    files: built_in!(
        "2004-guo-response-times",
        ["README.md", "expected.toml", "measuring.toml"]
    ),
};

/// Who is told of nothing comes first.
const POLICIES: [&str; 4] = ["RR", "passive", "active", "PCM"];
/// Servers of one /24.
const PREFIX: u32 = 256;
/// The first of the file's prefixes are those used much.
const POPULAR: u32 = 10;

/// One run.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Seen {
    /// Mean time until a connection is set up.
    popular_s: f64,
    rare_s: f64,
    /// Packets to measure, of a connection.
    probes: f64,
}

fn seen(_: &Run, record: &Record) -> Seen {
    let setup_s = |popular: bool| {
        let asked = record.transfers.iter();
        let asked = asked.filter(|it| (it.server.0 / PREFIX < POPULAR) == popular);
        mean(&asked.filter_map(|it| it.setup_s).collect::<Vec<_>>())
    };
    let connections = record.transfers.len() as f64;
    Seen {
        popular_s: setup_s(true),
        rare_s: setup_s(false),
        probes: ratio(record.counts.measuring.packets as f64, connections),
    }
}

/// What each policy comes to, in their order.
fn each(context: &Context, of: fn(&Seen) -> f64) -> Result<[Sample; 4], ExperimentError> {
    let file = context.files.scenario("measuring.toml")?;
    let seeds = context.seeds();
    let sample = |policy: &str| -> Result<Sample, ExperimentError> {
        let seen = simulate(
            context,
            &crate::peng::runs(file.first(), policy, &seeds)?,
            seen,
        )?;
        Ok(seeds.iter().copied().zip(seen.iter().map(of)).collect())
    };
    let [turns, passive, active, pcm] = POLICIES.map(sample);
    Ok([turns?, passive?, active?, pcm?])
}

fn waits(
    context: &Context,
    prefixes: &str,
    of: fn(&Seen) -> f64,
) -> Result<Findings, ExperimentError> {
    let all = each(context, of)?;
    let [turns, passive, active, pcm] = &all;
    let mut findings = Findings::default();
    findings.observe("passive_over_turns", passive.over(turns));
    findings.observe("active_over_turns", active.over(turns));
    findings.observe("active_over_passive", active.over(passive));
    findings.observe("pcm_over_turns", pcm.over(turns));
    let title = format!("Connections to {prefixes} prefixes");
    let bars = Bars::new(title, "mean set-up, s", POLICIES);
    findings.plot(
        prefixes,
        bars.series(prefixes, all.iter().map(Sample::plotted)),
    );
    Ok(findings)
}

fn cost(context: &Context) -> Result<Findings, ExperimentError> {
    let all = each(context, |seen| seen.probes)?;
    let [_, passive, active, pcm] = &all;
    let mut findings = Findings::default();
    findings.observe("passive_packets", passive.greatest());
    findings.observe("active_packets", active.mean());
    findings.observe("pcm_packets", pcm.mean());
    let bars = Bars::new("Cost", "packets to measure, of a connection", POLICIES);
    findings.plot("cost", bars.series("all", all.iter().map(Sample::plotted)));
    Ok(findings)
}
