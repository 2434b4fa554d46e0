//! Table 2 and equation 11: several lines against one T1, by what is left of them after a cut, and by their fees.

use anabranch_report::chart::Bars;
use anabranch_scenario::stats::ratio;
use anabranch_scenario::{Record, Run};

use super::fig17::CUT_S;
use super::testbed::{Testbed, runs};
use crate::{Context, ExperimentError, Findings, Observation, Sample, simulate};

/// New Taiwan dollars a month: the cheapest T1 of the table, and one ADSL line of 512 kbit/s at any of its providers.
const T1_FEE: f64 = 54_600.0;
const ADSL_FEE: f64 = 3_700.0;

pub(super) fn run(context: &Context) -> Result<Findings, ExperimentError> {
    let seeds = context.seeds();
    let left = |links| -> Result<Sample, ExperimentError> {
        let testbed = Testbed::cut(context.files, links)?;
        let left = simulate(context, &runs(testbed.scenario(), "WMORBF", &seeds)?, left)?;
        Ok(seeds.iter().copied().zip(left).collect())
    };
    let [t1, three, six] = [left(1)?, left(3)?, left(6)?];
    let mut findings = Findings::default();
    findings.observe("three_outlast_t1", three.minus(&t1).mean());
    findings.observe("six_outlast_three", six.minus(&three).mean());
    findings.observe("fees", Observation::Exact(3.0 * ADSL_FEE / T1_FEE));
    let bars = Bars::new(
        "Table 2",
        "downloads after a cut, of those before",
        ["T1", "3 lines", "6 lines"],
    );
    let drawn = [&t1, &three, &six].map(Sample::plotted);
    findings.plot("table2", bars.series("one line is cut", drawn));
    Ok(findings)
}

/// Downloads that arrived after the cut, in as much time as before it, of those before.
fn left(_: &Run, record: &Record) -> f64 {
    let arrived = record.transfers.iter().filter(|it| it.outcome.is_ok());
    let (before, after): (Vec<_>, Vec<_>) =
        arrived.partition(|it| it.start_s + it.duration_s < CUT_S);
    ratio(after.len() as f64, before.len() as f64)
}
