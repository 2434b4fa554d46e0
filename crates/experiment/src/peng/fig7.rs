//! Figure 7: the three measuring types, each the mean of its two algorithms.

use super::testbed::{Testbed, Workload, bars, mean_of};
use crate::{Context, ExperimentError, Findings, Sample};

const TYPES: [(&str, [&str; 2]); 3] = [
    ("CSN", ["RR", "LCF"]),
    ("ST", ["MORBF", "WMORBF"]),
    ("MRT", ["FRRTFNF", "WFRRTFNF"]),
];

/// Of a type at one workload.
struct Column {
    throughput: [Sample; 3],
    ebu: [Sample; 3],
}

impl Column {
    fn new(context: &Context, links: usize, load: Workload) -> Result<Column, ExperimentError> {
        let testbed = Testbed::aggregate(context.files, links, load)?;
        let mut column = Column {
            throughput: Default::default(),
            ebu: Default::default(),
        };
        for (index, (_, [first, second])) in TYPES.into_iter().enumerate() {
            let first = testbed.cell(context, first)?;
            let second = testbed.cell(context, second)?;
            column.throughput[index] = mean_of([&first.throughput(), &second.throughput()]);
            column.ebu[index] = mean_of([&first.ebu(), &second.ebu()]);
        }
        Ok(column)
    }
}

pub(super) fn run(context: &Context) -> Result<Findings, ExperimentError> {
    let mut findings = Findings::default();
    for links in [3, 6] {
        let mut columns = Vec::new();
        for load in Workload::AGGREGATED {
            let column = Column::new(context, links, load)?;
            observe(
                &mut findings,
                &format!("l{links}_{}", load.key()),
                load,
                &column,
            );
            columns.push(column);
        }
        let series = |of: fn(&Column) -> &[Sample; 3]| {
            let row = |index: usize| columns.iter().map(move |column| of(column)[index].clone());
            [0, 1, 2].map(|index| (TYPES[index].0, row(index).collect::<Vec<_>>()))
        };
        let loads = &Workload::AGGREGATED;
        let title = format!("Figure 7 (a), {links} links");
        let throughput = series(|column| &column.throughput);
        let throughput = bars(&title, "mean throughput, bit/s", loads, throughput);
        findings.plot(format!("fig7a-l{links}"), throughput);
        let title = format!("Figure 7 (b), {links} links");
        let ebu = bars(&title, "EBU", loads, series(|column| &column.ebu));
        findings.plot(format!("fig7b-l{links}"), ebu);
    }
    Ok(findings)
}

fn observe(findings: &mut Findings, key: &str, load: Workload, column: &Column) {
    let [csn, st, mrt] = &column.throughput;
    if load == Workload::LIGHT {
        findings.observe(format!("{key}_csn_over_st"), csn.over(st));
        findings.observe(format!("{key}_mrt_over_st"), mrt.over(st));
    } else {
        findings.observe(format!("{key}_st_over_csn"), st.over(csn));
        findings.observe(format!("{key}_st_over_mrt"), st.over(mrt));
    }
    let [csn, st, mrt] = &column.ebu;
    findings.observe(format!("{key}_ebu_csn_over_st"), csn.over(st));
    findings.observe(format!("{key}_ebu_csn_over_mrt"), csn.over(mrt));
}
