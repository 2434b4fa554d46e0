//! One daemon per instance, and one instance per device and per block of numbers.
//!
//! For each of these there is a [`file`] with a lock, which the kernel releases when the process ends: the instance itself
//! ([`Lock`]), its devices ([`Claims`]) and its block of tables, rules and marks ([`Numbers`]).

mod claims;
mod file;
mod instance;
mod numbers;

use anabranch_api::Paths;

use crate::error::{BadInput, Error};
use file::{LockFile, Taken};
use instance::known;

pub use claims::Claims;
pub use numbers::Numbers;

/// Held while the daemon runs. The kernel releases it when the process ends, in whatever way.
#[derive(Debug)]
pub struct Lock(LockFile);

impl Lock {
    /// Fails if another instance of this name runs, and names it.
    pub fn take(paths: &Paths) -> Result<Self, Error> {
        let path = paths.lock();
        match LockFile::take(&path, &std::process::id().to_string(), |_| true)? {
            Taken::Ours(file) => Ok(Self(file)),
            Taken::Held(pid) | Taken::Left(pid) => Err(BadInput::new(format!(
                "{}: instance {:?} runs already as process {}; stop it first, or choose another --instance",
                path.display(),
                paths.instance(),
                known(&pid)
            ))
            .into()),
        }
    }

    /// Logs if there was no room for the file.
    pub fn tell(&self) {
        if let Err(error) = &self.0.written {
            tracing::warn!("{error:#}; the instance starts all the same, and only once");
        }
    }
}

#[cfg(test)]
mod tests;
