//! Figure 6: the best link against weighted links, measured every 0.1 s and every second.

use super::testbed::{Cell, Testbed, Workload, bars, most};
use crate::{Context, ExperimentError, Findings, Sample};

/// Best every 0.1 s and every second, weighted likewise.
const ALGORITHMS: [(&str, &str); 4] = [
    ("MORBF", "best, 0.1 s"),
    ("MORBF-1s", "best, 1 s"),
    ("WMORBF", "weighted, 0.1 s"),
    ("WMORBF-1s", "weighted, 1 s"),
];

pub(super) fn run(context: &Context) -> Result<Findings, ExperimentError> {
    let mut findings = Findings::default();
    for links in [3, 6] {
        let mut columns = Vec::new();
        for load in Workload::AGGREGATED {
            let testbed = Testbed::aggregate(context.files, links, load)?;
            let cells = ALGORITHMS.map(|(name, _)| testbed.cell(context, name));
            let [best, best_1s, weighted, weighted_1s] = cells;
            let cells = [best?, best_1s?, weighted?, weighted_1s?];
            observe(
                &mut findings,
                &format!("l{links}_{}", load.key()),
                load,
                &cells,
            );
            columns.push(cells);
        }
        plot(&mut findings, links, &columns);
    }
    for load in Workload::HEAVY {
        let over = |links| -> Result<Sample, ExperimentError> {
            let testbed = Testbed::aggregate(context.files, links, load)?;
            Ok(testbed.cell(context, "WMORBF")?.throughput())
        };
        let key = format!("{}_approaches_t1", load.key());
        findings.observe(key, over(3)?.over(&over(1)?));
    }
    Ok(findings)
}

fn observe(findings: &mut Findings, key: &str, load: Workload, cells: &[Cell; 4]) {
    let [best, best_1s, weighted, weighted_1s] = cells.each_ref().map(Cell::throughput);
    if load == Workload::LIGHT {
        let others = most([&best_1s, &weighted, &weighted_1s]);
        findings.observe(format!("{key}_best_wins"), best.over(&others));
    } else {
        findings.observe(format!("{key}_weighted_wins"), weighted.over(&best));
    }
    findings.observe(format!("{key}_best_sooner"), best.over(&best_1s));
    findings.observe(
        format!("{key}_weighted_sooner"),
        weighted.over(&weighted_1s),
    );
}

fn plot(findings: &mut Findings, links: usize, columns: &[[Cell; 4]]) {
    let series = |of: fn(&Cell) -> Sample| {
        let row = |(index, (_, label)): (usize, &(&'static str, &'static str))| {
            let cells = columns.iter().map(|cells| of(&cells[index]));
            (*label, cells.collect::<Vec<_>>())
        };
        ALGORITHMS.iter().enumerate().map(row).collect::<Vec<_>>()
    };
    let loads = &Workload::AGGREGATED;
    let kbps = series(|cell| cell.throughput().map(|bps| bps / 1e3));
    let title = format!("Figure 6 (a), {links} links");
    let throughput = bars(&title, "mean throughput, kbit/s", loads, kbps);
    findings.plot(format!("fig6a-l{links}"), throughput);
    let title = format!("Figure 6 (b), {links} links");
    let ebu = bars(&title, "EBU", loads, series(Cell::ebu));
    findings.plot(format!("fig6b-l{links}"), ebu);
}
