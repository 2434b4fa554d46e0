//! An experiment whose claims are to be judged: its files, what they say, and by which seeds.

use std::collections::BTreeSet;

use anabranch_report::Reading;

use crate::context::Known;
use crate::expected::{Claims, Expected, SeedPlan};
use crate::files::Files;
use crate::judge::{Check, Trial};
use crate::{Context, Experiment, ExperimentError, Findings, Mutation, Options, Progress, World};

/// An experiment's files, what they say, and whose seeds are judged.
pub(crate) struct Judged {
    pub experiment: &'static Experiment,
    pub files: Files,
    pub readings: Vec<Reading>,
    pub claims: Claims,
    pub trial: Trial,
}

impl Judged {
    pub fn new(
        experiment: &'static Experiment,
        options: &Options,
    ) -> Result<Self, ExperimentError> {
        let files = Files::of(experiment, options.files.as_deref())?;
        let Expected {
            seeds,
            readings,
            claims,
        } = experiment.expected(&files)?;
        Ok(Judged {
            experiment,
            files,
            readings,
            claims,
            trial: trial(&seeds, options)?,
        })
    }

    pub fn context<'a>(
        &'a self,
        options: &'a Options,
        progress: &'a dyn Progress,
        known: &'a Known,
        mutation: &'static Mutation,
    ) -> Context<'a> {
        let context = Context::new(options, progress, &self.files, self.trial.seeds, known);
        context.broken(mutation)
    }

    /// Every claim beside its observation, in the order they were observed.
    pub fn judge(&self, figure: &str, findings: &Findings) -> Result<Vec<Check>, ExperimentError> {
        let trial = &self.trial;
        let none = Default::default();
        let mine = self.claims.get(figure).unwrap_or(&none);
        let mut seen = BTreeSet::new();
        let mut checks = Vec::new();
        for (key, observation) in &findings.observed {
            let claim = mine
                .get(key)
                .filter(|claim| claim.world == trial.world)
                .ok_or_else(|| ExperimentError::Unexpected {
                    figure: figure.into(),
                    claim: key.clone(),
                })?;
            if !seen.insert(key.as_str()) {
                return Err(ExperimentError::Twice {
                    figure: figure.into(),
                    claim: key.clone(),
                });
            }
            checks.push(Check::of_claim(figure, key, claim, observation, trial));
        }
        let missing = mine
            .iter()
            .find(|(key, claim)| claim.world == trial.world && !seen.contains(key.as_str()));
        if let Some((key, _)) = missing {
            return Err(ExperimentError::Unobserved {
                figure: figure.into(),
                claim: key.clone(),
            });
        }
        let theories = findings.theories.iter();
        checks.extend(theories.map(|theory| Check::of_theory(figure, theory, trial)));
        Ok(checks)
    }
}

/// Whose seeds are judged: those that were asked for, or as many of the file's as the run has time for.
fn trial(plan: &SeedPlan, options: &Options) -> Result<Trial, ExperimentError> {
    let seeds = options
        .seeds
        .unwrap_or(match (options.quick, options.world) {
            (true, World::Lab) => plan.judge.begin(1),
            (true, World::Sim) => plan.judge.begin(plan.quick),
            (false, World::Lab) => plan.judge.begin(plan.lab),
            (false, World::Sim) => plan.judge,
        });
    Ok(Trial {
        seeds,
        windows: seeds.windows(options.windows)?,
        fit: plan.fit,
        quick: options.quick,
        world: options.world,
    })
}
