use crate::Mutation;
use crate::mutation::{EVEN, RANDOM, under};

pub(super) const ALL: &[Mutation] = &[
    RANDOM,
    Mutation {
        name: "always-probing",
        what: "PCM under every policy",
        run: |run| under(run, "PCM"),
        ..Mutation::NONE
    },
    EVEN,
];
