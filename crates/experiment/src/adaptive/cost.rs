//! What is sent to measure: of `adaptive` copies of SYNs, and the RSTs of those that lose.

use super::cells::{Group, OURS, Seen};
use crate::peng::mean_of;
use crate::{Context, ExperimentError, Findings, Sample};

pub(super) fn run(context: &Context) -> Result<Findings, ExperimentError> {
    let groups = Group::all(context)?;
    let of = |policy| -> Result<Sample, ExperimentError> {
        let packets = |seen: &Seen| seen.measuring;
        let each = groups
            .iter()
            .map(|group| group.mean(context, policy, packets));
        Ok(mean_of(&each.collect::<Result<Vec<_>, _>>()?))
    };
    let ours = of(OURS)?;
    let mut findings = Findings::default();
    findings.observe("packets", ours.greatest());
    findings.observe("over_frrtdf", ours.over(&of("FRRTDF")?));
    findings.observe("without_race", of("no-race")?.greatest());
    Ok(findings)
}
