//! Links that vary, queue, are cut, brown out and return.

use anabranch_report::chart::Bars;

use super::cells::{Group, OURS};
use super::merit::{FAILED, Merit, SHORT, column, table};
use crate::{Context, ExperimentError, Findings, Sample};

pub(super) fn cut(context: &Context) -> Result<Findings, ExperimentError> {
    let group = Group::single(context, "cut")?;
    let mut findings = found(context, &group, &FAILED)?;
    let ours = group.mean(context, OURS, FAILED.of)?;
    let theirs = group.mean(context, "WSDM", FAILED.of)?;
    findings.observe("failed", theirs.at_most_over(&ours));
    let after = group.mean(context, OURS, |seen| seen.failed_after)?;
    findings.observe("failed_after", after.mean());
    Ok(findings)
}

/// Where some transfers are short.
pub(super) fn varying(context: &Context, name: &'static str) -> Result<Findings, ExperimentError> {
    let group = Group::single(context, name)?;
    let mut findings = found(context, &group, &SHORT)?;
    let ours = group.mean(context, OURS, SHORT.of)?;
    let theirs = group.mean(context, "WSDM", SHORT.of)?;
    findings.observe("short_p95", ours.over(&theirs));
    Ok(findings)
}

fn found(context: &Context, group: &Group, drawn: &Merit) -> Result<Findings, ExperimentError> {
    let mut findings = Findings::default();
    let names = group.ranked();
    let samples = column(context, group, &names, drawn)?;
    let bars = Bars::new(group.name, drawn.title, names);
    findings.plot(
        group.name,
        bars.series(drawn.title, samples.iter().map(Sample::plotted)),
    );
    findings.table(table(context, group)?);
    Ok(findings)
}
