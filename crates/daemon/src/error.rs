//! Two kinds of failure: what the user can mend (exit code 2) and everything else.

use std::fmt;

/// What was asked for cannot be done as it was asked: a wrong configuration, a host that lacks something, a second
/// instance. One line that names the file, key and value and says what is allowed. Nothing was changed on the host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadInput(String);

impl BadInput {
    /// Newlines in `message` (a quoted multi-line value) are folded, so that the error stays one line.
    pub fn new(message: impl fmt::Display) -> Self {
        let message = message.to_string();
        Self(message.split_whitespace().collect::<Vec<_>>().join(" "))
    }
}

/// Why the daemon did not start, or ended.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    BadInput(#[from] BadInput),
    #[error("{0:#}")]
    Failed(#[from] anyhow::Error),
}

impl Error {
    /// Exit code of the command: 2 for bad input, 1 for the rest.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::BadInput(_) => 2,
            Self::Failed(_) => 1,
        }
    }
}
