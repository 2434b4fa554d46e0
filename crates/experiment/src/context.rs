//! What a figure is given.

use std::any::{Any, TypeId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard};

use anabranch_results::repeat;
use anabranch_sim::fluid::{Flow, Served, Sharing, serve};

use crate::{ExperimentError, Files, Mutation, Options, Prefixes, Progress, Seeds};

/// What was made of runs, by the maker and the run's hash.
#[derive(Default)]
pub struct Known(Mutex<BTreeMap<(TypeId, String), Box<dyn Any + Send>>>);

/// The seeds, the files, and what was simulated already.
pub struct Context<'a> {
    /// How the experiment is run.
    pub options: &'a Options,
    /// Hears of runs as they begin and end.
    pub progress: &'a dyn Progress,
    /// Scenarios.
    pub files: &'a Files,
    /// What is broken on purpose.
    pub mutation: &'static Mutation,
    seeds: Seeds,
    /// What was carried out twice.
    repeated: Mutex<BTreeSet<String>>,
    known: &'a Known,
}

impl<'a> Context<'a> {
    /// With nothing carried out yet but what is `known`.
    pub fn new(
        options: &'a Options,
        progress: &'a dyn Progress,
        files: &'a Files,
        seeds: Seeds,
        known: &'a Known,
    ) -> Self {
        Context {
            options,
            progress,
            files,
            mutation: &Mutation::NONE,
            seeds,
            repeated: Mutex::default(),
            known,
        }
    }

    /// The same in a broken world.
    pub fn broken(self, mutation: &'static Mutation) -> Self {
        Context { mutation, ..self }
    }

    /// Every seed that is to be observed, in order; at least one.
    pub fn seeds(&self) -> Vec<u64> {
        self.seeds.all()
    }

    /// The same as a range.
    pub(crate) fn range(&self) -> Seeds {
        self.seeds
    }

    /// What `once` comes to in virtual time. With the first seed it is carried out twice, but once for all figures.
    ///
    /// # Errors
    /// If `once` fails, or comes to something else the second time: `difference` tells in which part.
    pub fn trial<T>(
        &self,
        run: &str,
        seed: u64,
        mut once: impl FnMut() -> Result<T, ExperimentError>,
        difference: impl FnOnce(&T, &T) -> Option<&'static str>,
    ) -> Result<T, ExperimentError> {
        if seed != self.seeds.first() || !unpoisoned(&self.repeated).insert(run.to_owned()) {
            return once();
        }
        match repeat(once, difference)? {
            (result, None) => Ok(result),
            (_, Some(problem)) => Err(ExperimentError::Invalid {
                run: run.to_owned(),
                problem,
            }),
        }
    }

    /// A trial whose result is compared as a whole.
    ///
    /// # Errors
    /// As [`trial`](Context::trial).
    pub fn numbers<T: PartialEq>(
        &self,
        run: &str,
        seed: u64,
        once: impl FnMut() -> Result<T, ExperimentError>,
    ) -> Result<T, ExperimentError> {
        self.trial(run, seed, once, |a, b| (a != b).then_some("numbers"))
    }

    /// Flows in the fluid model, which may be broken on purpose.
    ///
    /// # Errors
    /// If there is no fluid model of the policy.
    pub fn serve(
        &self,
        rates_bps: &[u64],
        mut sharing: Sharing,
        seed: u64,
        flows: impl IntoIterator<Item = Flow>,
    ) -> Result<Vec<Served>, ExperimentError> {
        let mut rates_bps = rates_bps.to_vec();
        (self.mutation.serve)(&mut rates_bps, &mut sharing);
        serve(&rates_bps, sharing, seed, flows)
            .map_err(|error| ExperimentError::run("the fluid model", error))
    }

    /// A site's destinations, which may be broken on purpose.
    pub fn prefixes(&self) -> Prefixes {
        let mut prefixes = Prefixes::WHOLE;
        (self.mutation.prefixes)(&mut prefixes);
        prefixes
    }

    pub(crate) fn repeated(&self) -> usize {
        unpoisoned(&self.repeated).len()
    }

    /// What `maker` made of the run with this hash.
    pub(crate) fn known<T: Clone + 'static>(&self, maker: TypeId, hash: &str) -> Option<T> {
        let known = unpoisoned(&self.known.0);
        let made = known.get(&(maker, hash.to_owned()))?;
        made.downcast_ref().cloned()
    }

    pub(crate) fn keep<T: Send + 'static>(&self, maker: TypeId, hash: &str, made: T) {
        unpoisoned(&self.known.0).insert((maker, hash.to_owned()), Box::new(made));
    }
}

/// Sets and maps are whole whatever happened to who filled them.
fn unpoisoned<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
}
