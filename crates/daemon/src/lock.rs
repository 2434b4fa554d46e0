//! One daemon per instance.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, Write};

use anyhow::Context;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

use crate::error::{BadInput, Error};
use crate::paths::Paths;

/// Held while the daemon runs. The kernel lets go of it when the process ends, however it ends.
pub struct Lock(#[expect(dead_code, reason = "held, not read")] Flock<File>);

impl Lock {
    /// Refuses a second instance, naming the first.
    pub fn take(paths: &Paths) -> Result<Self, Error> {
        let path = paths.lock();
        let shown = path.display();
        std::fs::create_dir_all(paths.runtime_dir())
            .with_context(|| format!("create {}", paths.runtime_dir().display()))?;
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path);
        let file = file.with_context(|| format!("open {shown}"))?;
        let mut lock = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => lock,
            Err((mut file, Errno::EWOULDBLOCK)) => {
                let mut pid = String::new();
                file.read_to_string(&mut pid)
                    .with_context(|| format!("read {shown}"))?;
                let (instance, pid) = (paths.instance(), pid.trim());
                let message = format!(
                    "{shown}: instance {instance:?} runs already as process {pid}; stop it first, or choose another --instance"
                );
                return Err(BadInput::new(message).into());
            }
            Err((_, errno)) => {
                return Err(anyhow::Error::new(errno)
                    .context(format!("lock {shown}"))
                    .into());
            }
        };
        lock.set_len(0)
            .and_then(|()| lock.rewind())
            .and_then(|()| writeln!(lock, "{}", std::process::id()))
            .with_context(|| format!("write {shown}"))?;
        Ok(Self(lock))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_instance_is_refused_with_the_first_ones_process() {
        let dir = tempfile::tempdir().unwrap();
        let paths = Paths::under(&dir.path().join("run"), dir.path(), "a").unwrap();
        let first = Lock::take(&paths).unwrap();
        let Err(Error::BadInput(refused)) = Lock::take(&paths) else {
            panic!("taken twice")
        };
        let wanted = format!(
            "instance \"a\" runs already as process {};",
            std::process::id()
        );
        assert!(refused.to_string().contains(&wanted), "{refused}");
        let other = Paths::under(&dir.path().join("run"), dir.path(), "b").unwrap();
        Lock::take(&other).unwrap();
        drop(first);
        Lock::take(&paths).unwrap();
    }
}
