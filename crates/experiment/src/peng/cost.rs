//! Table 5: what the gateway sends to learn of its links, at (3,1) with a congested last mile.

use anabranch_report::chart::Bars;

use super::congestion::ALGORITHMS;
use super::testbed::{Testbed, Workload};
use crate::{Context, ExperimentError, Findings, Sample};

pub(super) fn run(context: &Context) -> Result<Findings, ExperimentError> {
    let testbed = Testbed::of(context.files, "last-mile.toml", Workload::LIGHT)?;
    let mut findings = Findings::default();
    let mut per_s = Vec::new();
    for name in ALGORITHMS {
        let cell = testbed.cell(context, name)?;
        let seconds = cell.of(|seen| seen.completion_s);
        let packets = cell.of(|seen| seen.probes).per(&seconds);
        let bytes = cell.of(|seen| seen.probe_bytes).per(&seconds);
        let mean = |sample: &Sample| anabranch_scenario::stats::mean(&sample.values());
        let text = format!(
            "{name}: {:.2} packets and {:.0} bytes a second, those of suspected links included",
            mean(&packets),
            mean(&bytes)
        );
        findings.note(text);
        per_s.push((name, packets));
    }
    let of = |asked: &str| {
        let found = per_s.iter().find(|(name, _)| *name == asked);
        &found.expect("one of the list").1
    };
    findings.observe("frrtfnf_over_wsdm", of("FRRTFNF").over(of("WSDM")));
    findings.observe("wfrrtfnf_over_wsdm", of("WFRRTFNF").over(of("WSDM")));
    let bars = Bars::new("Table 5", "probes a second", ALGORITHMS);
    let drawn = per_s.iter().map(|(_, packets)| packets.plotted());
    findings.plot("table5", bars.series("(3,1)", drawn));
    Ok(findings)
}
