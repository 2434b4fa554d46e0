//! Published claims, held against runs of our own.
//!
//! An [`Experiment`] is a paper, or a body of theory, with its **figures**. A [`Figure`] runs scenarios in a world, the
//! simulator or the laboratory, and reports what it observed as [`Findings`]: for each **claim** an [`Observation`], which
//! is what every seed gave and the statistic that is claimed, and plots. What would make a claim true stands apart from
//! the code, in the experiment's `expected.toml`: the published value, the region that counts as reproduced, and the
//! verdict that the experiment stands by ([`Claim`]). Both together are a [`Check`].
//!
//! An experiment is worth what it takes to fail it:
//!
//! - A claim holds if its whole 95 % interval lies in its region. The ends of an open region are no pass.
//! - Parameters were fitted on some seeds, and claims are judged on others ([`SeedPlan`]). Seeds of the fit reproduce
//!   nothing.
//! - A verdict is stated in advance: [`Check::pass`] says whether today's run agrees with it, also with
//!   "not reproduced".
//! - Cut into windows of seeds, each of which is judged by itself, a run tells how often a claim would have held.
//! - In a deliberately broken world ([`Mutation`]) the claims about what is broken must fail; what nothing fails is
//!   called sanity.
//!
//! The folder `experiments/<year>-<author>` has what a reader wants: a README with topology, parameters and deviations,
//! the scenario files, and `expected.toml`. All of it is built into the program, so that experiments run anywhere; a
//! folder may be named in its place ([`Files`]).
//!
//! No claim goes unobserved: a figure that leaves one of its claims out, or reports one nobody expects, is an error. No
//! figure is taken from a simulator that says otherwise the second time: the first seed of everything that is simulated is
//! simulated twice ([`Context::trial`]).

#![deny(missing_docs)]

mod adaptive;
mod context;
mod error;
mod expected;
mod files;
mod findings;
mod guide;
mod guo;
mod jo;
mod judge;
mod judged;
mod laboratory;
mod lin;
mod matrix;
mod measured;
mod mutation;
mod options;
mod page;
mod peng;
mod readme;
mod run;
mod sample;
mod seeds;
mod simulate;
mod summary;
mod told;
mod validation;

pub use anabranch_scenario::World;
pub use context::{Context, Known};
pub use error::{ExperimentError, SelectError};
pub use expected::{Claim, Expected, Position, Region, SeedPlan, Verdict};
pub use files::{File, Files};
pub use findings::Findings;
pub use guide::write_guide;
pub use guo::Prefixes;
pub use judge::Check;
pub use laboratory::{carry_out, carry_out_side_by_side};
pub use matrix::{Matrix, Row, mutate};
pub use mutation::Mutation;
pub(crate) use mutation::mutations;
pub use options::{Options, Progress};
pub use readme::{ReadmeError, write_readme};
pub use run::run;
pub use sample::{Certainty, Estimate, Observation, Sample};
pub use seeds::{Seeds, SeedsError};
pub use simulate::simulate;
pub use summary::Summary;

use anabranch_config::BadInput;

/// What one paper says, figure by figure.
#[derive(Debug)]
pub struct Experiment {
    /// `year-author-subject`, as its folder under `experiments/`.
    pub name: &'static str,
    /// One line for the list.
    pub title: &'static str,
    /// What of it is reproduced.
    pub figures: &'static [Figure],
    /// Broken worlds, in which its claims must fail.
    pub mutations: &'static [Mutation],
    /// Its folder: README, scenarios, `expected.toml`.
    pub files: &'static [File],
}

impl Experiment {
    /// What its file says.
    ///
    /// # Errors
    /// If that is wrong, with line and key.
    pub(crate) fn expected(&self, files: &Files) -> Result<Expected, BadInput> {
        let figures: Vec<_> = self.figures.iter().map(|figure| figure.id).collect();
        let mutations: Vec<_> = self.mutations.iter().map(|each| each.name).collect();
        let text = files.text(files::EXPECTED);
        Expected::parse(&files.path(files::EXPECTED), text, &figures, &mutations)
    }
}

/// One figure or table.
#[derive(Debug)]
pub struct Figure {
    /// As the paper numbers it: `fig9`, `table3`.
    pub id: &'static str,
    /// What it shows, in one line.
    pub title: &'static str,
    /// Where it can be run; the first is the default.
    pub worlds: &'static [World],
    /// Carries out its runs and says what they show.
    pub run: fn(&Context) -> Result<Findings, ExperimentError>,
}

/// A table of figures, `ID: TITLE => RUN;` each, or `ID [WORLD]: …` of one that does not run in the simulator.
macro_rules! figures {
    (@worlds) => { &[$crate::World::Sim] };
    (@worlds $($world:ident)+) => { &[$($crate::World::$world),+] };
    ($($id:literal $([$($world:ident),+])?: $title:literal => $run:expr;)+) => {
        &[$($crate::Figure {
            id: $id,
            title: $title,
            worlds: $crate::figures!(@worlds $($($world)+)?),
            run: $run,
        }),+]
    };
}
pub(crate) use figures;

/// All experiments, in the order of their years; last those of no paper.
pub fn all() -> &'static [&'static Experiment] {
    static ALL: [&Experiment; 7] = [
        &jo::EXPERIMENT,
        &guo::EXPERIMENT,
        &told::EXPERIMENT,
        &peng::EXPERIMENT,
        &lin::EXPERIMENT,
        &adaptive::EXPERIMENT,
        &validation::EXPERIMENT,
    ];
    &ALL
}

/// Figures of one experiment that are to be run.
#[derive(Debug)]
pub struct Selection {
    /// Whose they are.
    pub experiment: &'static Experiment,
    /// In the order of the experiment.
    pub figures: Vec<&'static Figure>,
}

impl Selection {
    /// Reads `NAME` or `NAME/FIGURE`; a whole experiment means the figures that `world` can run.
    ///
    /// # Errors
    /// If there is no such experiment or figure, or the figure cannot be run in this world.
    pub fn parse(text: &str, world: World) -> Result<Selection, SelectError> {
        let (name, figure) = match text.split_once('/') {
            Some((name, "")) => (name, None),
            Some((name, figure)) => (name, Some(figure)),
            None => (text, None),
        };
        let experiment = *all()
            .iter()
            .find(|experiment| experiment.name == name)
            .ok_or_else(|| SelectError::experiment(name))?;
        let asked = |candidate: &&Figure| figure.is_none_or(|id| id == candidate.id);
        let named: Vec<_> = experiment.figures.iter().filter(asked).collect();
        if named.is_empty() {
            return Err(SelectError::figure(experiment, figure.unwrap_or_default()));
        }
        let figures: Vec<_> = named
            .into_iter()
            .filter(|figure| figure.worlds.contains(&world))
            .collect();
        if figures.is_empty() {
            return Err(SelectError::world(text, world));
        }
        Ok(Selection {
            experiment,
            figures,
        })
    }
}
