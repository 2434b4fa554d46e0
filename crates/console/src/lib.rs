//! What the commands of this workspace share: `anabranch`, which runs on a router, and `anabranch-lab`, which runs
//! scenarios and experiments.
//!
//! A command writes its answer to standard output, as a [`table`] or as JSON ([`output`]). What went wrong is one line on
//! standard error ([`tell`]), and the exit code tells whose turn it is ([`Failures`]): 2 if the input has to change before
//! the same command can work, 1 for everything else, or what the command itself says of its own errors. Names that
//! completions offer and the completions themselves are made in [`args`]. The command [`policies`] is the same in both, of more
//! policies in `anabranch-lab`.

#![deny(missing_docs)]

pub mod args;
mod failure;
pub mod output;
pub mod policies;
pub mod table;
pub mod tell;

pub use failure::Failures;
