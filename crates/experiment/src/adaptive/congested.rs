//! Peng's cells: one of three links is congested, on its last mile or behind it.

use anabranch_report::chart::Bars;

use super::cells::{Cell, FAR, Group, NEAR, OURS};
use super::merit::{EBU, Merit, THROUGHPUT, column, mean, table, with_ends};
use crate::findings::Table;
use crate::peng::{Workload, mean_of};
use crate::{Context, ExperimentError, Findings, Sample};

pub(super) fn near(context: &Context) -> Result<Findings, ExperimentError> {
    run(context, &Group::congested(context, "near", NEAR)?)
}

pub(super) fn far(context: &Context) -> Result<Findings, ExperimentError> {
    run(context, &Group::congested(context, "far", FAR)?)
}

/// One merit at one workload: ours, and that of whoever else has the most of it in the mean.
struct Rivals {
    best: String,
    theirs: Sample,
    ours: Sample,
}

impl Rivals {
    fn of(
        context: &Context,
        group: &Group,
        cell: &Cell,
        merit: &Merit,
    ) -> Result<Rivals, ExperimentError> {
        let others = group.ranked().into_iter().filter(|name| *name != OURS);
        let all = others.map(|name| Ok((name, cell.sample(context, name, merit.of)?)));
        let all: Vec<(&str, Sample)> = all.collect::<Result<_, ExperimentError>>()?;
        let best = all
            .into_iter()
            .max_by(|(_, a), (_, b)| mean(a).total_cmp(&mean(b)));
        let (best, theirs) = best.expect("there are others");
        Ok(Rivals {
            best: best.to_owned(),
            theirs,
            ours: cell.sample(context, OURS, merit.of)?,
        })
    }

    fn row(&self, context: &Context, merit: &Merit, load: Workload) -> Vec<String> {
        let ratio = self.ours.over(&self.theirs);
        vec![
            load.label(),
            merit.title.to_owned(),
            merit.shown(&self.theirs),
            self.best.clone(),
            merit.shown(&self.ours),
            with_ends(&ratio.estimate(context.range())),
        ]
    }
}

fn run(context: &Context, group: &Group) -> Result<Findings, ExperimentError> {
    let mut findings = Findings::default();
    let mut rows = Vec::new();
    for (key, merit) in [("ebu", &EBU), ("throughput", &THROUGHPUT)] {
        let mut all = Vec::new();
        for (cell, load) in group.cells.iter().zip(Workload::CONGESTED) {
            let rivals = Rivals::of(context, group, cell, merit)?;
            let reached = rivals.ours.at_most_over(&rivals.theirs);
            findings.observe(format!("{}_{key}", load.key()), reached);
            rows.push(rivals.row(context, merit, load));
            all.push(rivals);
        }
        let ours: Vec<Sample> = all.iter().map(|rivals| rivals.ours.clone()).collect();
        let theirs: Vec<Sample> = all.into_iter().map(|rivals| rivals.theirs).collect();
        findings.observe(
            format!("mean_{key}"),
            mean_of(&ours).over(&mean_of(&theirs)),
        );
    }
    findings.table(Table {
        title: format!("`{}`: adaptive and the best of all others.", group.name),
        head: ["workload", "of", "the best", "is", "adaptive", "ratio"]
            .map(str::to_owned)
            .to_vec(),
        rows,
    });
    findings.table(table(context, group)?);
    let names = group.ranked();
    let bars = Bars::new(
        format!("EBU, {}", group.name),
        "EBU, mean of five workloads",
        names.clone(),
    );
    let ebus = column(context, group, &names, &EBU)?;
    findings.plot(
        group.name,
        bars.series("EBU", ebus.iter().map(Sample::plotted)),
    );
    Ok(findings)
}
