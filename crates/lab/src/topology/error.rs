//! Why a laboratory cannot be built or used.

use std::io;

use anabranch_scenario::Family;
use anabranch_testbed::emulator::EmulatorError;
use anabranch_testbed::netns::NetnsError;

/// Why a laboratory cannot be built or used.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum LabError {
    #[error(transparent)]
    Namespace(#[from] NetnsError),
    #[error(transparent)]
    Emulator(#[from] EmulatorError),
    #[error("{key} = {value}: {allowed}")]
    Spec {
        key: &'static str,
        value: String,
        allowed: String,
    },
    #[error("no link {name}; there are: {known}")]
    NoSuchLink { name: String, known: String },
    #[error("link {link} has no {family}: give it some in `access`")]
    NoSuchFamily { link: String, family: Family },
    #[error("link {link} has no second hop: give it one in `beyond`")]
    NoSecondHop { link: String },
    #[error("{what}: {source}")]
    Io { what: String, source: io::Error },
    #[error("{program} did not become ready in {seconds} s; its last words: {log}")]
    NotReady {
        program: String,
        seconds: u64,
        log: String,
    },
    #[error("{program} ended before it was ready ({exit:?}): {log}")]
    Ended {
        program: String,
        exit: anabranch_testbed::netns::Exit,
        log: String,
    },
    #[error("`{command}` failed: {stderr}")]
    Command { command: String, stderr: String },
    #[error("the gateway under test is not anabranch")]
    NotAnabranch,
    #[error("load: {0}")]
    Load(String),
    #[error("the gateway under test: {0}")]
    Gateway(String),
}

/// Of what is done in a laboratory.
pub type Result<T, E = LabError> = std::result::Result<T, E>;

pub(crate) fn io_error(what: impl Into<String>) -> impl FnOnce(io::Error) -> LabError {
    let what = what.into();
    move |source| LabError::Io { what, source }
}
