//! Figure 17 and table 6: one of three links is cut under downloads without end.

use anabranch_report::chart::Chart;
use anabranch_scenario::stats::mean;
use anabranch_scenario::{Record, Run};

use super::testbed::runs;
use crate::{Context, ExperimentError, Findings, Sample, simulate};

/// When the file cuts BL2.
pub(super) const CUT_S: f64 = 120.0;
/// Flows after the cut that the paper looks at.
const LOOKED_AT: usize = 30;

/// One of a run's.
type Number = fn(&Cut) -> f64;

/// One run.
#[derive(Clone, Debug, PartialEq)]
struct Cut {
    failed_ratio: f64,
    /// Failed of those that began after the cut.
    failed_after: f64,
    /// Of the next flows after the cut, those that sent their SYN again.
    again: f64,
    /// Of the downloads that arrived.
    rate: Spread,
    duration: Spread,
    /// Start and throughput of every download.
    drawn: Vec<(f64, f64)>,
}

/// Of the values of one run.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Spread {
    mean: f64,
    variance: f64,
}

impl Spread {
    fn of(values: &[f64]) -> Spread {
        let mean = mean(values);
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        Spread {
            mean,
            variance: squares / values.len() as f64,
        }
    }
}

pub(super) fn run(context: &Context) -> Result<Findings, ExperimentError> {
    let file = context.files.scenario("cut.toml")?;
    let seeds = context.seeds();
    let cuts = |algorithm| simulate(context, &runs(file.first(), algorithm, &seeds)?, cut);
    let wsdm = cuts("WSDM")?;
    let wmorbf = cuts("WMORBF")?;
    let pcm = cuts("PCM")?;
    let sample = |cuts: &[Cut], of: fn(&Cut) -> f64| -> Sample {
        seeds.iter().copied().zip(cuts.iter().map(of)).collect()
    };
    let failed = sample(&wsdm, |cut| cut.failed_ratio);
    let mut findings = Findings::default();
    findings.observe("failed_ratio", failed.mean());
    let elsewhere = sample(&wmorbf, |cut| cut.failed_ratio);
    findings.observe("failed_against_wmorbf", failed.minus(&elsewhere).mean());
    findings.observe(
        "failed_after",
        sample(&wsdm, |cut| cut.failed_after).greatest(),
    );
    findings.observe("again", sample(&wsdm, |cut| cut.again).mean());
    let of_pcm = sample(&pcm, |cut| cut.failed_ratio);
    findings.observe("pcm_failed_ratio", of_pcm.mean());
    findings.observe("failed_against_pcm", failed.minus(&of_pcm).mean());
    let spreads: [(&str, Number); 4] = [
        ("rate", |cut| cut.rate.mean),
        ("rate_variance", |cut| cut.rate.variance),
        ("duration", |cut| cut.duration.mean),
        ("duration_variance", |cut| cut.duration.variance),
    ];
    for (key, of) in spreads {
        let over = sample(&wsdm, of).over(&sample(&pcm, of));
        findings.observe(format!("{key}_over_pcm"), over);
    }
    for (part, name, cuts) in [("a", "PCM", &pcm), ("b", "WSDM", &wsdm)] {
        let title = format!("Figure 17 ({part})");
        let chart = Chart::new(title, "begin of a download, s", "throughput, kbit/s");
        let drawn = chart.points(name, cuts[0].drawn.clone());
        findings.plot(format!("fig17{part}"), drawn);
    }
    Ok(findings)
}

fn cut(_: &Run, record: &Record) -> Cut {
    let transfers = &record.transfers;
    let share_failed = |from_s: f64| {
        let asked = || transfers.iter().filter(|each| each.start_s >= from_s);
        let failed = asked().filter(|each| each.outcome.is_failure()).count();
        let ended = failed + asked().filter(|each| each.outcome.is_ok()).count();
        anabranch_scenario::stats::ratio(failed as f64, ended as f64)
    };
    let mut after: Vec<_> = transfers.iter().filter(|t| t.start_s >= CUT_S).collect();
    after.sort_by(|a, b| a.start_s.total_cmp(&b.start_s));
    let next = after.iter().take(LOOKED_AT);
    let kbps = |t: &anabranch_workload::Transfer| match t.outcome.is_ok() {
        true => t.throughput_bps() / 1e3,
        false => 0.0,
    };
    let arrived = || transfers.iter().filter(|each| each.outcome.is_ok());
    let rates: Vec<f64> = arrived().map(kbps).collect();
    let durations: Vec<f64> = arrived().map(|each| each.duration_s).collect();
    Cut {
        rate: Spread::of(&rates),
        duration: Spread::of(&durations),
        failed_ratio: share_failed(0.0),
        failed_after: share_failed(CUT_S),
        again: next.filter(|each| each.syn_retransmits > 0).count() as f64,
        drawn: transfers.iter().map(|t| (t.start_s, kbps(t))).collect(),
    }
}
