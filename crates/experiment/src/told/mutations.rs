use crate::mutation::{EVEN, RANDOM, under};
use crate::{Mutation, mutations};

pub(super) const ALL: &[Mutation] = mutations! {
    RANDOM, EVEN;
    "always-probing": "PCM under every policy" => run: |run| under(run, "PCM");
};
