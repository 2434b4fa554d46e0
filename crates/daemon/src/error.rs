//! Two kinds of failure: what the user can mend (exit code 2) and everything else.

pub use anabranch_config::BadInput;

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
