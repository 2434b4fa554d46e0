//! Figure 17 and table 6: one of three links is cut under downloads without end. Of the two schemes compared, WSDM.

use anabranch_report::chart::Chart;
use anabranch_scenario::{Record, Run};

use super::testbed::runs;
use crate::{Context, ExperimentError, Findings, Sample, simulate};

/// When the file cuts BL2.
pub(super) const CUT_S: f64 = 120.0;
/// Flows after the cut that the paper looks at.
const LOOKED_AT: usize = 30;

/// One run.
#[derive(Clone, Debug, PartialEq)]
struct Cut {
    failed_ratio: f64,
    /// Failed of those that began after the cut.
    failed_after: f64,
    /// Of the next flows after the cut, those that sent their SYN again.
    again: f64,
    /// Start and throughput of every download.
    drawn: Vec<(f64, f64)>,
}

pub(super) fn run(context: &Context) -> Result<Findings, ExperimentError> {
    let file = context.files.scenario("cut.toml")?;
    let seeds = context.seeds();
    let cuts = |algorithm| simulate(context, &runs(file.first(), algorithm, &seeds)?, cut);
    let wsdm = cuts("WSDM")?;
    let wmorbf = cuts("WMORBF")?;
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
    let chart = Chart::new(
        "Figure 17 (b)",
        "begin of a download, s",
        "throughput, kbit/s",
    );
    findings.plot("fig17b", chart.points("WSDM", wsdm[0].drawn.clone()));
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
    Cut {
        failed_ratio: share_failed(0.0),
        failed_after: share_failed(CUT_S),
        again: next.filter(|each| each.syn_retransmits > 0).count() as f64,
        drawn: transfers.iter().map(|t| (t.start_s, kbps(t))).collect(),
    }
}
