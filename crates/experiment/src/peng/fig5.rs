//! Figure 5 and table 3: one choice per connection against one per pair of hosts, over one, three and six links.

use super::testbed::{Cell, Testbed, Workload, bars};
use crate::{Context, ExperimentError, Findings, Sample};

const PER_CONNECTION: &str = "WMORBF";
const PER_PAIR: &str = "WMORBF-pair";

pub(super) fn run(context: &Context) -> Result<Findings, ExperimentError> {
    let loads = Workload::AGGREGATED;
    let cells = |links, algorithm| -> Result<Vec<Cell>, ExperimentError> {
        let cell = |&load| {
            let testbed = Testbed::aggregate(context.files, links, load)?;
            testbed.cell(context, algorithm)
        };
        loads.iter().map(cell).collect()
    };
    let one = cells(1, PER_CONNECTION)?;
    let three = [cells(3, PER_CONNECTION)?, cells(3, PER_PAIR)?];
    let six = [cells(6, PER_CONNECTION)?, cells(6, PER_PAIR)?];
    let mut findings = Findings::default();
    for (index, load) in loads.iter().enumerate() {
        let key = load.key();
        for (links, [connection, pair]) in [(3, &three), (6, &six)] {
            let (connection, pair) = (&connection[index], &pair[index]);
            let throughput = connection.throughput().over(&pair.throughput());
            findings.observe(format!("l{links}_{key}_throughput"), throughput);
            let ebu = connection.ebu().over(&pair.ebu());
            findings.observe(format!("l{links}_{key}_ebu"), ebu);
        }
        let (three, six) = (&three[0][index], &six[0][index]);
        let throughput = three.throughput().over(&six.throughput());
        findings.observe(format!("l3_over_l6_{key}_throughput"), throughput);
        findings.observe(
            format!("l3_over_l6_{key}_ebu"),
            three.ebu().over(&six.ebu()),
        );
    }
    let of_t1 = |index: usize| three[0][index].throughput().per(&one[index].throughput());
    findings.observe("l3_approaches_t1", of_t1(1).minus(&of_t1(0)).mean());
    for (index, key) in [(0, "table3_3_1_s"), (1, "table3_3_3_s")] {
        findings.observe(key, one[index].of(|seen| seen.completion_s).mean());
    }
    findings.observe("t1_ebu_falls", one[0].ebu().minus(&one[1].ebu()).mean());
    let all = [
        ("L1", &one),
        ("L3 per connection", &three[0]),
        ("L3 per pair", &three[1]),
        ("L6 per connection", &six[0]),
        ("L6 per pair", &six[1]),
    ];
    let series = |of: fn(&Cell) -> Sample| {
        all.map(|(name, cells)| (name, cells.iter().map(of).collect::<Vec<_>>()))
    };
    let kbps = |cell: &Cell| cell.throughput().map(|bps| bps / 1e3);
    let throughput = bars(
        "Figure 5 (a)",
        "mean throughput, kbit/s",
        &loads,
        series(kbps),
    );
    findings.plot("fig5a", throughput);
    findings.plot(
        "fig5b",
        bars("Figure 5 (b)", "EBU", &loads, series(Cell::ebu)),
    );
    Ok(findings)
}
