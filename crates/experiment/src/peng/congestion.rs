//! Figures 8 and 9, 11 and 12: BL2 is congested on its last mile, or behind it.

use super::testbed::{Cell, Seen, Testbed, Workload, bars, mean_of, most};
use crate::{Context, ExperimentError, Findings, Sample};

/// All that there are; the published ones come first.
pub(super) const ALGORITHMS: [&str; 14] = [
    "RR", "LCF", "MORBF", "WMORBF", "FRRTFNF", "WFRRTFNF", "FRRTDF", "LTF", "MIRBF", "WMIRBF",
    "WSDM", "passive", "PCM", "active",
];
/// Throughputs are told of the mean of these, as in the paper.
const PUBLISHED: usize = 7;
const NEAR: &str = "last-mile.toml";
const FAR: &str = "remote.toml";

/// All algorithms at one workload.
struct Column {
    load: Workload,
    cells: Vec<Cell>,
}

impl Column {
    fn new(context: &Context, file: &str, load: Workload) -> Result<Column, ExperimentError> {
        let testbed = Testbed::of(context.files, file, load)?;
        let cells = ALGORITHMS.iter().map(|name| testbed.cell(context, name));
        Ok(Column {
            load,
            cells: cells.collect::<Result<_, _>>()?,
        })
    }

    fn all(context: &Context, file: &str) -> Result<Vec<Column>, ExperimentError> {
        let loads = Workload::CONGESTED.into_iter();
        loads.map(|load| Column::new(context, file, load)).collect()
    }

    fn cell(&self, name: &str) -> &Cell {
        let index = ALGORITHMS.iter().position(|known| *known == name);
        &self.cells[index.expect("one of the list")]
    }

    fn throughput(&self, name: &str) -> Sample {
        self.cell(name).throughput()
    }

    fn number(&self, name: &str, number: fn(&Seen) -> f64) -> Sample {
        self.cell(name).of(number)
    }

    /// Throughput of the mean of the published algorithms.
    fn normalised(&self) -> Vec<Sample> {
        let all: Vec<Sample> = self.cells.iter().map(Cell::throughput).collect();
        let mean = mean_of(&all[..PUBLISHED]);
        all.iter().map(|each| each.per(&mean)).collect()
    }

    /// `winners` against each rival: the better weighted or best algorithm, and those that count sessions.
    fn observe_winners(&self, findings: &mut Findings, winners: &[&str], rivals: [&str; 2]) {
        let rival = most(&rivals.map(|name| self.throughput(name)));
        let rivals = [
            (
                if rivals[0].starts_with('W') {
                    "weighted"
                } else {
                    "best"
                },
                rival,
            ),
            ("rr", self.throughput("RR")),
            ("lcf", self.throughput("LCF")),
        ];
        for winner in winners {
            for (name, rival) in &rivals {
                let key = format!("{}_{}_over_{name}", self.load.key(), winner.to_lowercase());
                findings.observe(key, self.throughput(winner).over(rival));
            }
        }
    }

    /// What is claimed of (10,3), whose order is told in full.
    fn observe_heavy(&self, findings: &mut Findings, winners: &[&str]) {
        let best = most(&["MORBF", "FRRTFNF"].map(|name| self.throughput(name)));
        for winner in winners {
            let key = format!("{}_{}_over_best", self.load.key(), winner.to_lowercase());
            findings.observe(key, self.throughput(winner).over(&best));
        }
    }

    fn observe_ebu(&self, findings: &mut Findings, pairs: &[(&str, &str)]) {
        for (weighted, best) in pairs {
            let key = format!("{}_ebu_{}", self.load.key(), weighted.to_lowercase());
            let ebu = self.cell(weighted).ebu().over(&self.cell(best).ebu());
            findings.observe(key, ebu);
        }
    }
}

pub(super) fn fig8(context: &Context) -> Result<Findings, ExperimentError> {
    let columns = Column::all(context, NEAR)?;
    let mut findings = Findings::default();
    for column in &columns {
        match column.load {
            Workload(1, 1) => {
                let winners = ["FRRTDF", "FRRTFNF", "MORBF"];
                column.observe_winners(&mut findings, &winners, ["WMORBF", "WFRRTFNF"]);
            }
            Workload(3, 1) => {
                let winners = ["WMORBF", "WFRRTFNF"];
                column.observe_winners(&mut findings, &winners, ["MORBF", "FRRTFNF"]);
            }
            Workload(10, 3) => {
                column.observe_heavy(&mut findings, &["WMORBF", "RR", "LCF", "WFRRTFNF"]);
                let close = column.throughput("WFRRTFNF");
                let close = close.over(&column.throughput("WMORBF"));
                findings.observe("10_3_wfrrtfnf_over_wmorbf", close);
            }
            _ => {}
        }
        let pairs = [("WMORBF", "MORBF"), ("WFRRTFNF", "FRRTFNF")];
        column.observe_ebu(&mut findings, &pairs);
    }
    plot(&mut findings, "8", &columns);
    Ok(findings)
}

pub(super) fn fig11(context: &Context) -> Result<Findings, ExperimentError> {
    let columns = Column::all(context, FAR)?;
    let mut findings = Findings::default();
    for column in &columns {
        let key = column.load.key();
        if matches!(column.load, Workload(_, 1)) {
            for st in ["MORBF", "WMORBF"] {
                for csn in ["RR", "LCF"] {
                    let behind = column.throughput(st).over(&column.throughput(csn));
                    let (st, csn) = (st.to_lowercase(), csn.to_lowercase());
                    findings.observe(format!("{key}_{st}_over_{csn}"), behind);
                }
            }
        }
        match column.load {
            Workload(1, 1) => {
                for best in ["FRRTFNF", "FRRTDF"] {
                    let over = column.throughput(best);
                    let over = over.over(&column.throughput("WFRRTFNF"));
                    let key = format!("1_1_{}_over_weighted", best.to_lowercase());
                    findings.observe(key, over);
                }
            }
            Workload(3, 1) => {
                let over = column.throughput("WFRRTFNF");
                let over = over.over(&column.throughput("FRRTFNF"));
                findings.observe("3_1_wfrrtfnf_over_best", over);
            }
            Workload(10, 3) => column.observe_heavy(&mut findings, &["RR", "LCF", "WFRRTFNF"]),
            _ => {}
        }
        column.observe_ebu(&mut findings, &[("WFRRTFNF", "FRRTFNF")]);
        let ebus: Vec<Sample> = column.cells[..PUBLISHED].iter().map(Cell::ebu).collect();
        let of_mean = column.cell("MORBF").ebu().over(&mean_of(&ebus));
        findings.observe(format!("{key}_ebu_morbf_of_mean"), of_mean);
        let throughputs: Vec<Sample> = column.cells[..PUBLISHED]
            .iter()
            .map(Cell::throughput)
            .collect();
        let of_mean = column.throughput("WFRRTFNF").over(&mean_of(&throughputs));
        findings.observe(format!("{key}_wfrrtfnf_of_mean"), of_mean);
    }
    plot(&mut findings, "11", &columns);
    Ok(findings)
}

pub(super) fn fig9(context: &Context) -> Result<Findings, ExperimentError> {
    let column = Column::new(context, NEAR, Workload(3, 1))?;
    let mut findings = Findings::default();
    for mrt in ["FRRTFNF", "FRRTDF"] {
        for rival in ["RR", "LCF", "WMORBF"] {
            let less = column.number(mrt, |seen| seen.on_bl2);
            let less = less.minus(&column.number(rival, |seen| seen.on_bl2));
            let key = format!("{}_avoids_{}", mrt.to_lowercase(), rival.to_lowercase());
            findings.observe(key, less.mean());
        }
    }
    findings.observe("deviation_follows", correlation(context, &column).mean());
    plot_shares(&mut findings, "9", &column);
    Ok(findings)
}

pub(super) fn fig12(context: &Context) -> Result<Findings, ExperimentError> {
    let column = Column::new(context, FAR, Workload(3, 1))?;
    let mut findings = Findings::default();
    for st in ["MORBF", "WMORBF"] {
        for csn in ["RR", "LCF"] {
            let more = column.number(st, |seen| seen.on_bl2);
            let more = more.minus(&column.number(csn, |seen| seen.on_bl2));
            let key = format!("{}_more_than_{}", st.to_lowercase(), csn.to_lowercase());
            findings.observe(key, more.mean());
        }
    }
    plot_shares(&mut findings, "12", &column);
    Ok(findings)
}

/// Pearson's, over the published algorithms, of the share of sessions on BL2 and the deviation of users.
fn correlation(context: &Context, column: &Column) -> Sample {
    let published = &column.cells[..PUBLISHED];
    let of = |number: fn(&Seen) -> f64| -> Vec<Vec<f64>> {
        published
            .iter()
            .map(|cell| cell.of(number).values())
            .collect()
    };
    let (shares, deviations) = (of(|seen| seen.on_bl2), of(|seen| seen.deviation_bps));
    let at = |rows: &[Vec<f64>], index: usize| rows.iter().map(|row| row[index]).collect();
    let seeds = context.seeds().into_iter().enumerate();
    seeds
        .map(|(index, seed)| (seed, pearson(at(&shares, index), at(&deviations, index))))
        .collect()
}

/// 0 where one of both is the same for all.
fn pearson(a: Vec<f64>, b: Vec<f64>) -> f64 {
    let centred = |values: Vec<f64>| -> Vec<f64> {
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        values.iter().map(|value| value - mean).collect()
    };
    let (a, b) = (centred(a), centred(b));
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    anabranch_scenario::stats::ratio(dot(&a, &b), (dot(&a, &a) * dot(&b, &b)).sqrt())
}

fn plot(findings: &mut Findings, figure: &str, columns: &[Column]) {
    let loads = Workload::CONGESTED;
    let rows = |of: &dyn Fn(&Column) -> Vec<Sample>| {
        let columns: Vec<Vec<Sample>> = columns.iter().map(of).collect();
        let row = |(index, name): (usize, &&'static str)| {
            let samples = columns.iter().map(|column| column[index].clone());
            (*name, samples.collect::<Vec<_>>())
        };
        ALGORITHMS.iter().enumerate().map(row).collect::<Vec<_>>()
    };
    let throughput = bars(
        &format!("Figure {figure} (a)"),
        "mean throughput, of the mean of the published algorithms",
        &loads,
        rows(&Column::normalised),
    );
    findings.plot(format!("fig{figure}a"), throughput);
    let ebus = rows(&|column| column.cells.iter().map(Cell::ebu).collect());
    let ebu = bars(&format!("Figure {figure} (b)"), "EBU", &loads, ebus);
    findings.plot(format!("fig{figure}b"), ebu);
}

fn plot_shares(findings: &mut Findings, figure: &str, column: &Column) {
    let drawn = |number: fn(&Seen) -> f64| {
        column
            .cells
            .iter()
            .map(move |cell| cell.of(number).plotted())
    };
    let title = format!("Figure {figure} (a)");
    let shares = anabranch_report::chart::Bars::new(title, "share of sessions on BL2", ALGORITHMS);
    let shares = shares.series("(3,1)", drawn(|seen| seen.on_bl2));
    findings.plot(format!("fig{figure}a"), shares);
    let title = format!("Figure {figure} (b)");
    let y = "mean absolute deviation of users, bit/s";
    let deviations = anabranch_report::chart::Bars::new(title, y, ALGORITHMS);
    let deviations = deviations.series("(3,1)", drawn(|seen| seen.deviation_bps));
    findings.plot(format!("fig{figure}b"), deviations);
}

#[cfg(test)]
mod tests {
    use super::pearson;

    #[test]
    fn what_rises_together_correlates_and_what_stands_still_does_not() {
        assert!((pearson(vec![1.0, 2.0, 3.0], vec![2.0, 4.0, 6.0]) - 1.0).abs() < 1e-12);
        assert!((pearson(vec![1.0, 2.0, 3.0], vec![6.0, 4.0, 2.0]) + 1.0).abs() < 1e-12);
        assert_eq!(pearson(vec![1.0, 1.0], vec![2.0, 4.0]), 0.0);
    }
}
