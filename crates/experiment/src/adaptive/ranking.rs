//! Where each policy stands: its place among all, in the mean of all groups of cells.

use anabranch_scenario::stats::Estimate;

use super::cells::{Group, OURS};
use super::merit::{MERITS, Merit, column, head, in_order, mean, with_half_width};
use crate::findings::Table;
use crate::peng::mean_of;
use crate::{Context, ExperimentError, Findings, Sample};

pub(super) fn run(context: &Context) -> Result<Findings, ExperimentError> {
    let groups = Group::all(context)?;
    let names = groups[0].ranked();
    let mut columns = Vec::new();
    for merit in MERITS {
        columns.push(places(context, &groups, &names, merit)?);
    }
    let all: Vec<Sample> = (0..names.len())
        .map(|index| mean_of(columns.iter().map(|column| &column[index])))
        .collect();
    let mut findings = Findings::default();
    let of = |name: &str| {
        &all[names
            .iter()
            .position(|known| *known == name)
            .expect("is ranked")]
    };
    findings.observe("before_wsdm", of(OURS).minus(of("WSDM")).mean());
    let ours = of(OURS);
    let ahead = all
        .iter()
        .zip(&names)
        .filter(|(other, name)| **name != OURS && mean(other) < mean(ours))
        .count();
    findings.note(format!(
        "{ahead} of {} policies stand before adaptive in the mean",
        names.len()
    ));
    let order = in_order(names.len(), |index| mean(&all[index]));
    let row = |index: usize| {
        let places =
            std::iter::once(&all[index]).chain(columns.iter().map(|column| &column[index]));
        let places = places.map(|places| {
            Estimate::of(places.values()).map_or("–".to_owned(), |it| with_half_width(&it, 1))
        });
        std::iter::once(names[index].to_owned())
            .chain(places)
            .collect()
    };
    let titles = MERITS.map(|merit| merit.title.split(',').next().unwrap_or_default());
    findings.table(Table {
        title: format!(
            "Places of {} policies, 1 being the best, in the mean of {} groups of cells.",
            names.len(),
            groups.len()
        ),
        head: head("all", &titles),
        rows: order.into_iter().map(row).collect(),
    });
    Ok(findings)
}

/// By policy, the mean over the groups that have such a merit.
fn places(
    context: &Context,
    groups: &[Group],
    names: &[&str],
    merit: &Merit,
) -> Result<Vec<Sample>, ExperimentError> {
    let mut of_groups = Vec::new();
    for group in groups {
        of_groups.extend(merit.ranks(&column(context, group, names, merit)?));
    }
    Ok((0..names.len())
        .map(|index| mean_of(of_groups.iter().map(|ranks| &ranks[index])))
        .collect())
}
