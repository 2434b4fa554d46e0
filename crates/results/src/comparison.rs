//! Many runs side by side: what the policies did at each point of a sweep, over all seeds.
//!
//! Runs that are not valid are counted and left out.

use std::collections::BTreeMap;

use anabranch_scenario::World;
use anabranch_scenario::stats::Estimate;
use serde::Serialize;

use crate::figures::FIGURES;
use crate::metrics::{Distribution, succeeded};
use crate::{Finished, OutputError};

/// What several runs say about the policies of a scenario.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// Its name.
    pub scenario: String,
    /// Where the runs took place.
    pub world: World,
    /// Points in the order of the sweep, in each the policies in the order of the scenario.
    pub rows: Vec<Compared>,
}

/// One policy at one point of the sweep.
#[derive(Clone, Debug, Serialize)]
pub struct Compared {
    /// What the sweep set, by dotted key.
    pub point: BTreeMap<String, String>,
    /// Its name, or its tuple.
    pub policy: String,
    /// Valid runs, one per seed.
    pub runs: u64,
    /// Runs that cannot be trusted.
    pub invalid: u64,
    /// By the key of the figure, over the valid runs.
    pub figures: BTreeMap<&'static str, Estimate>,
    /// Of the successful transfers of all valid runs.
    #[serde(skip)]
    pub durations: Distribution,
}

impl Comparison {
    /// `finished` are runs of one scenario in one world, in their order.
    pub fn of(world: World, finished: &[Finished]) -> Result<Comparison, OutputError> {
        let mut groups: Vec<Vec<&Finished>> = Vec::new();
        for run in finished {
            let same = |group: &&mut Vec<&Finished>| is_beside(group[0], run);
            match groups.iter_mut().find(same) {
                Some(group) => group.push(run),
                None => groups.push(vec![run]),
            }
        }
        let rows = groups.into_iter().map(|group| Compared::of(&group));
        let scenario = finished.first().map(|run| run.manifest.scenario.clone());
        Ok(Comparison {
            scenario: scenario.unwrap_or_default(),
            world,
            rows: rows.collect::<Result<_, _>>()?,
        })
    }

    /// The points of the sweep, in its order.
    pub fn points(&self) -> Vec<BTreeMap<String, String>> {
        let mut points = Vec::new();
        for row in &self.rows {
            if !points.contains(&row.point) {
                points.push(row.point.clone());
            }
        }
        points
    }

    /// In the order of the scenario.
    pub fn policies(&self) -> Vec<&str> {
        let mut policies = Vec::new();
        for row in &self.rows {
            if !policies.contains(&row.policy.as_str()) {
                policies.push(row.policy.as_str());
            }
        }
        policies
    }

    /// One point: a row per policy.
    pub fn at<'a>(
        &'a self,
        point: &'a BTreeMap<String, String>,
    ) -> impl Iterator<Item = &'a Compared> {
        self.rows.iter().filter(move |row| row.point == *point)
    }

    /// As a table of text, its header first.
    pub fn records(&self) -> Vec<Vec<String>> {
        let keys: Vec<&String> = self
            .rows
            .iter()
            .take(1)
            .flat_map(|row| row.point.keys())
            .collect();
        let mut header: Vec<String> = keys.iter().map(|key| (*key).clone()).collect();
        header.extend(["policy", "runs", "invalid"].map(str::to_owned));
        for figure in &FIGURES {
            let columns = ["median", "mean", "low", "high"];
            header.extend(columns.map(|column| format!("{}_{column}", figure.key)));
        }
        let mut records = vec![header];
        for row in &self.rows {
            let mut record: Vec<String> = row.point.values().cloned().collect();
            record.extend([
                row.policy.clone(),
                row.runs.to_string(),
                row.invalid.to_string(),
            ]);
            for figure in &FIGURES {
                let found = row.figures.get(figure.key);
                let values =
                    found.map(|e| [e.median, e.mean, e.low, e.high].map(|v| v.to_string()));
                record.extend(values.unwrap_or_default());
            }
            records.push(record);
        }
        records
    }
}

fn is_beside(a: &Finished, b: &Finished) -> bool {
    a.manifest.policy == b.manifest.policy && a.manifest.point == b.manifest.point
}

impl Compared {
    /// Runs of one policy at one point; at least one.
    fn of(group: &[&Finished]) -> Result<Compared, OutputError> {
        let valid: Vec<&&Finished> = group.iter().filter(|run| run.manifest.valid).collect();
        let mut durations = Distribution::default();
        for run in &valid {
            let transfers = run.transfers()?;
            succeeded(&transfers).for_each(|transfer| durations.record(transfer.duration_s));
        }
        let figures = FIGURES.iter().filter_map(|figure| {
            let values = valid.iter().filter_map(|run| (figure.value)(&run.summary));
            let estimate = Estimate::of(values)?.within(figure.quantity.range());
            Some((figure.key, estimate))
        });
        let manifest = &group[0].manifest;
        Ok(Compared {
            point: manifest.point.clone(),
            policy: manifest.policy.clone(),
            runs: valid.len() as u64,
            invalid: (group.len() - valid.len()) as u64,
            figures: figures.collect(),
            durations,
        })
    }
}
