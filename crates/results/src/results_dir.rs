use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

/// A directory of results that no other process writes to, as long as this is there. Two at once would take each other's
/// unfinished runs away.
#[derive(Debug)]
pub struct ResultsDir {
    path: PathBuf,
    /// None where the file system has no such locks. The kernel lets go of it when the process ends, however it ends.
    _lock: Option<Flock<File>>,
}

/// Why a directory cannot take results.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum ResultsDirError {
    #[error(
        "{}: another anabranch is writing its results there; wait until it has ended, or name another directory",
        path.display()
    )]
    InUse { path: PathBuf },
    #[error("{}: {error}; name a directory that can be written", path.display())]
    Io { path: PathBuf, error: io::Error },
}

impl ResultsDir {
    /// Makes the directory if it is missing, tries whether it can be written, which is better told before hours of runs
    /// than after them, and holds it against other processes, without leaving a file there.
    pub fn open(path: &Path) -> Result<ResultsDir, ResultsDirError> {
        let io_error = |error| ResultsDirError::Io {
            path: path.into(),
            error,
        };
        fs::create_dir_all(path).map_err(io_error)?;
        let directory = File::open(path).map_err(io_error)?;
        let lock = match Flock::lock(directory, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => Some(lock),
            Err((_, Errno::EWOULDBLOCK)) => {
                return Err(ResultsDirError::InUse { path: path.into() });
            }
            // NFS locks nothing that is not open for writing, as no directory is.
            Err(_) => None,
        };
        let trial = path.join(".writable");
        fs::write(&trial, "")
            .and_then(|()| fs::remove_file(&trial))
            .map_err(io_error)?;
        Ok(ResultsDir {
            path: path.to_owned(),
            _lock: lock,
        })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_held_by_one_until_it_is_let_go_and_nothing_is_left_there() {
        let out = tempfile::tempdir().unwrap();
        let path = out.path().join("new/results");
        let held = ResultsDir::open(&path).unwrap();
        let refused = ResultsDir::open(&path).unwrap_err().to_string();
        assert_eq!(
            refused,
            format!(
                "{}: another anabranch is writing its results there; wait until it has ended, or name another directory",
                path.display()
            )
        );
        ResultsDir::open(&out.path().join("other")).unwrap();
        assert_eq!(fs::read_dir(held.path()).unwrap().count(), 0);
        drop(held);
        ResultsDir::open(&path).unwrap();
    }

    #[test]
    fn a_directory_that_cannot_be_made_is_told_with_its_path() {
        let out = tempfile::tempdir().unwrap();
        let file = out.path().join("file");
        fs::write(&file, "mine").unwrap();
        let refused = ResultsDir::open(&file).unwrap_err().to_string();
        assert!(refused.starts_with(&format!("{}: ", file.display())));
        assert!(refused.ends_with("; name a directory that can be written"));
    }
}
