//! Two kinds of failure: what the user can mend (exit code 2) and everything else.

use std::io::{self, ErrorKind};

pub use anabranch_config::{BadInput, with_causes};

/// Why the daemon did not start, or ended.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
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

/// No room is left where it would be written.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded
    )
}
