use anabranch_config::{BadInput, did_you_mean};
use anabranch_results::{OutputError, ResultsDirError};

use crate::{Experiment, SeedsError, World, all};

/// Why what was asked for cannot be run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum SelectError {
    #[error("there is no experiment {name}; there are: {known}{meant}")]
    Experiment {
        name: String,
        known: String,
        /// The nearest, as the end of the message.
        meant: String,
    },
    #[error("experiment {experiment} has no figure {figure}; it has: {known}{meant}")]
    Figure {
        experiment: &'static str,
        figure: String,
        known: String,
        meant: String,
    },
    #[error("`{name}` cannot be run in the world `{world}`: leave --world out")]
    World { name: String, world: &'static str },
}

impl SelectError {
    pub(crate) fn experiment(name: &str) -> Self {
        let names = || all().iter().map(|experiment| experiment.name);
        SelectError::Experiment {
            name: name.into(),
            known: list(names()),
            meant: did_you_mean(name, names()),
        }
    }

    pub(crate) fn figure(experiment: &'static Experiment, figure: &str) -> Self {
        let ids = || experiment.figures.iter().map(|figure| figure.id);
        SelectError::Figure {
            experiment: experiment.name,
            figure: figure.into(),
            known: list(ids()),
            meant: did_you_mean(figure, ids()),
        }
    }

    pub(crate) fn world(name: &str, world: World) -> Self {
        SelectError::World {
            name: name.into(),
            world: world.name(),
        }
    }
}

fn list<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.collect::<Vec<_>>().join(", ")
}

/// Why an experiment came to no result.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum ExperimentError {
    /// A file of the experiment is not as it has to be.
    #[error(transparent)]
    File(#[from] BadInput),
    #[error("--windows: {0}")]
    Windows(#[from] SeedsError),
    #[error("{figure} observed `{claim}`, which expected.toml does not know: add it there")]
    Unexpected { figure: String, claim: String },
    #[error("{figure} did not observe `{claim}`, which expected.toml asks for")]
    Unobserved { figure: String, claim: String },
    #[error("{figure} observed `{claim}` twice")]
    Twice { figure: String, claim: String },
    #[error("{what}: {reason}")]
    Run { what: String, reason: String },
    /// A run is not to be trusted, and with it whatever would be derived.
    #[error("{run}: the run is invalid: {problem}")]
    Invalid { run: String, problem: String },
    /// Somebody ordered it to stop. What was complete is in the directory of the results.
    #[error("interrupted")]
    Interrupted,
    #[error(transparent)]
    Directory(#[from] ResultsDirError),
    #[error(transparent)]
    Output(#[from] OutputError),
}

impl ExperimentError {
    /// What became of a run among others; an interrupt is nobody's fault, and what is invalid says which it is.
    pub(crate) fn of_run(run: String, error: ExperimentError) -> Self {
        match error {
            ExperimentError::Interrupted | ExperimentError::Invalid { .. } => error,
            other => ExperimentError::run(run, other),
        }
    }

    /// A run that failed, with what it was.
    pub fn run(what: impl Into<String>, reason: impl ToString) -> Self {
        ExperimentError::Run {
            what: what.into(),
            reason: reason.to_string(),
        }
    }
}
