//! Figure 3: sessions that begin between two measurements all go to the best link, or are weighted.

use anabranch_report::chart::Bars;
use anabranch_scenario::{Record, Run};

use super::testbed::runs;
use crate::{Context, ExperimentError, Findings, Sample, simulate};

/// Those that begin between two measurements, behind the file that keeps BL1 busy.
const SESSIONS: f64 = 3.0;

pub(super) fn run(context: &Context) -> Result<Findings, ExperimentError> {
    let file = context.files.scenario("self-congestion.toml")?;
    let seeds = context.seeds();
    let mut findings = Findings::default();
    let mut bars = Bars::new("Figure 3", "of three sessions", ["BL1", "BL2"]);
    for scheme in ["best", "weighted"] {
        let on_bl2 = simulate(context, &runs(file.first(), scheme, &seeds)?, on_bl2)?;
        let on_bl2: Sample = seeds.iter().copied().zip(on_bl2).collect();
        let on_bl1 = on_bl2.map(|count| SESSIONS - count);
        bars = bars.series(scheme, [on_bl1.plotted(), on_bl2.plotted()]);
        findings.observe(format!("{scheme}_on_bl2"), on_bl2.mean());
    }
    findings.plot("fig3", bars);
    Ok(findings)
}

fn on_bl2(_: &Run, record: &Record) -> f64 {
    let sessions = record.transfers.iter().skip(1);
    let on_bl2 = sessions.filter(|session| session.link.as_deref() == Some("bl2"));
    on_bl2.count() as f64
}
