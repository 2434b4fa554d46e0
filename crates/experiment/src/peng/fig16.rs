//! Figure 16: WSDM against PCM, which probes the destination over every link while a connection waits.

use super::testbed::{Cell, Testbed, Workload, bars, mean_of};
use crate::{Context, ExperimentError, Findings, Sample};

const PLACES: [(&str, &str); 2] = [("near", "last-mile.toml"), ("far", "remote.toml")];
/// Those of the figure.
const LOADS: [Workload; 3] = Workload::AGGREGATED;

pub(super) fn run(context: &Context) -> Result<Findings, ExperimentError> {
    let mut findings = Findings::default();
    for ((place, file), part) in PLACES.into_iter().zip(["a", "b"]) {
        let [wsdm, pcm] = [cells(context, file, "WSDM")?, cells(context, file, "PCM")?];
        let both = || wsdm.iter().zip(&pcm);
        for (load, (wsdm, pcm)) in LOADS.into_iter().zip(both()) {
            let over = wsdm.throughput().over(&pcm.throughput());
            findings.observe(format!("{place}_{}_wsdm_over_pcm", load.key()), over);
        }
        let gains: Vec<Sample> = both()
            .map(|(wsdm, pcm)| wsdm.throughput().per(&pcm.throughput()))
            .collect();
        let more = mean_of(&gains[1..]).minus(&gains[0]);
        findings.observe(format!("{place}_more_when_heavy"), more.mean());
        let throughputs = |cells: &[Cell]| cells.iter().map(Cell::throughput).collect();
        let drawn = [("WSDM", throughputs(&wsdm)), ("PCM", throughputs(&pcm))];
        let title = format!("Figure 16 ({part})");
        let plot = bars(&title, "mean throughput, bit/s", &LOADS, drawn);
        findings.plot(format!("fig16{part}"), plot);
    }
    Ok(findings)
}

fn cells(context: &Context, file: &str, algorithm: &str) -> Result<Vec<Cell>, ExperimentError> {
    let cell = |load| Testbed::of(context.files, file, load)?.cell(context, algorithm);
    LOADS.into_iter().map(cell).collect()
}
