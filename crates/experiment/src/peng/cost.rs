//! Table 5: what is sent to measure, at (3,1) with a congested last mile.

use anabranch_report::chart::Bars;
use anabranch_scenario::stats::mean;

use super::congestion::ALGORITHMS;
use super::testbed::{Cell, Testbed, Workload};
use crate::{Context, ExperimentError, Findings, Sample};

/// They measure response times, and so need packets of their own.
const MRT: [&str; 5] = ["FRRTFNF", "WFRRTFNF", "FRRTDF", "PCM", "active"];
/// They learn from the traffic that there is.
const SILENT: [&str; 2] = ["WSDM", "passive"];

pub(super) fn run(context: &Context) -> Result<Findings, ExperimentError> {
    let testbed = Testbed::of(context.files, "last-mile.toml", Workload::LIGHT)?;
    let mut findings = Findings::default();
    let mut per_s = Vec::new();
    for name in ALGORITHMS {
        let cell = testbed.cell(context, name)?;
        let packets = a_second(&cell, |cell| cell.of(|seen| seen.measuring.packets as f64));
        let bytes = a_second(&cell, |cell| cell.of(|seen| seen.measuring.bytes as f64));
        let watching = a_second(&cell, |cell| cell.of(|seen| seen.watching_packets));
        findings.note(format!(
            "{name}: {:.2} packets and {:.0} bytes a second to measure; {:.2} packets to know whether links work",
            mean(&packets.values()),
            mean(&bytes.values()),
            mean(&watching.values())
        ));
        if MRT.contains(&name) {
            let key = format!("{}_bytes_per_s", name.to_lowercase());
            findings.observe(key, bytes.mean());
        }
        if SILENT.contains(&name) {
            let all = cell.of(|seen| seen.measuring.packets as f64);
            findings.observe(format!("{}_packets", name.to_lowercase()), all.greatest());
        }
        per_s.push(packets);
    }
    let bars = Bars::new("Table 5", "packets a second to measure", ALGORITHMS);
    let drawn = per_s.iter().map(Sample::plotted);
    findings.plot("table5", bars.series("(3,1)", drawn));
    Ok(findings)
}

fn a_second(cell: &Cell, of: impl Fn(&Cell) -> Sample) -> Sample {
    of(cell).per(&cell.of(|seen| seen.completion_s))
}
