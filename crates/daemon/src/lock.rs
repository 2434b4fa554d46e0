//! One daemon per instance, and one instance per device.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

use crate::error::{BadInput, Error};
use crate::paths::Paths;

/// Held while the daemon runs. The kernel lets go of it when the process ends, however it ends.
#[derive(Debug)]
pub struct Lock(#[expect(dead_code, reason = "held, not read")] LockFile);

impl Lock {
    /// Refuses a second instance, naming the first.
    pub fn take(paths: &Paths) -> Result<Self, Error> {
        let path = paths.lock();
        match LockFile::take(&path, &std::process::id().to_string(), |_| true)? {
            Taken::Ours(file) => Ok(Self(file)),
            Taken::Held(pid) | Taken::Left(pid) => Err(BadInput::new(format!(
                "{}: instance {:?} runs already as process {pid}; stop it first, or choose another --instance",
                path.display(),
                paths.instance()
            ))
            .into()),
        }
    }
}

/// The devices of this instance. Those of another network namespace may have the same names. A device of an instance
/// that was killed stays that instance's as long as its programs are pinned: they go on forwarding.
#[derive(Debug)]
pub struct Claims {
    paths: Paths,
    namespace: u64,
    held: BTreeMap<String, LockFile>,
}

impl Claims {
    /// Refuses devices of another instance, naming that.
    pub fn take(paths: &Paths, devices: &[&str]) -> Result<Self, Error> {
        let namespace =
            std::fs::metadata("/proc/thread-self/ns/net").context("network namespace")?;
        let mut claims = Self {
            paths: paths.clone(),
            namespace: namespace.ino(),
            held: BTreeMap::new(),
        };
        claims.change(devices)?;
        Ok(claims)
    }

    /// Other devices: all of them are had, or nothing has changed.
    pub fn change(&mut self, devices: &[&str]) -> Result<(), Error> {
        let mut fresh = BTreeMap::new();
        for device in devices {
            if !self.held.contains_key(*device) {
                fresh.insert((*device).to_owned(), self.claim(device)?);
            }
        }
        self.held
            .retain(|device, _| devices.contains(&device.as_str()));
        self.held.extend(fresh);
        Ok(())
    }

    fn claim(&self, device: &str) -> Result<LockFile, Error> {
        let path = self.paths.claim(self.namespace, device);
        let holder = format!("{} {}", std::process::id(), self.paths.instance());
        match LockFile::take(&path, &holder, |left| !self.is_of_killed(left))? {
            Taken::Ours(file) => Ok(file),
            Taken::Held(holder) => {
                let (pid, instance) = owner(&holder);
                let message = format!(
                    "device {device:?}: instance {instance:?} has it already (process {pid}); a device is one instance's"
                );
                Err(BadInput::new(message).into())
            }
            Taken::Left(holder) => {
                let (_, instance) = owner(&holder);
                let message = format!(
                    "device {device:?}: instance {instance:?} was killed, and its programs go on there; start it again and stop it"
                );
                Err(BadInput::new(message).into())
            }
        }
    }

    /// Whether another instance left this claim and its programs.
    fn is_of_killed(&self, left: &str) -> bool {
        let (_, instance) = owner(left);
        let there = self
            .paths
            .of(instance)
            .is_ok_and(|paths| paths.pins().exists());
        instance != self.paths.instance() && there
    }
}

/// Process and instance of a claim.
fn owner(written: &str) -> (&str, &str) {
    written.split_once(' ').unwrap_or((written, "?"))
}

/// A file that one process has. It is removed when that lets go of it in good order.
#[derive(Debug)]
struct LockFile {
    path: PathBuf,
    _file: Flock<File>,
}

enum Taken {
    Ours(LockFile),
    /// What its holder wrote.
    Held(String),
    /// What a holder wrote that ended without letting go, and whom nobody may follow.
    Left(String),
}

impl LockFile {
    /// Takes `path` and writes `holder` into it, if it may follow whoever ended without letting go.
    fn take(path: &Path, holder: &str, may_follow: impl Fn(&str) -> bool) -> anyhow::Result<Taken> {
        let shown = path.display();
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)
                .with_context(|| format!("create {}", folder.display()))?;
        }
        loop {
            let file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .open(path);
            let mut file = file.with_context(|| format!("open {shown}"))?;
            let mut locked = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                Ok(locked) => locked,
                Err((held, Errno::EWOULDBLOCK)) => {
                    file = held;
                    return Ok(Taken::Held(read(path, &mut file)?));
                }
                Err((_, errno)) => {
                    return Err(anyhow::Error::new(errno).context(format!("lock {shown}")));
                }
            };
            if !is_at(path, &locked) {
                continue;
            }
            let left = read(path, &mut locked)?;
            if !left.is_empty() && !may_follow(&left) {
                return Ok(Taken::Left(left));
            }
            locked
                .set_len(0)
                .and_then(|()| locked.rewind())
                .and_then(|()| writeln!(locked, "{holder}"))
                .with_context(|| format!("write {shown}"))?;
            return Ok(Taken::Ours(Self {
                path: path.to_owned(),
                _file: locked,
            }));
        }
    }
}

fn read(path: &Path, file: &mut File) -> anyhow::Result<String> {
    let mut written = String::new();
    file.read_to_string(&mut written)
        .with_context(|| format!("read {}", path.display()))?;
    Ok(written.trim().to_owned())
}

/// Whoever held it last may have removed it between our opening and our locking it.
fn is_at(path: &Path, file: &File) -> bool {
    let named = std::fs::metadata(path).map(|found| found.ino());
    let opened = file.metadata().map(|found| found.ino());
    matches!((named, opened), (Ok(named), Ok(opened)) if named == opened)
}

impl Drop for LockFile {
    fn drop(&mut self) {
        // Who comes next takes it over if it stays.
        let _ = std::fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused<T: std::fmt::Debug>(taken: Result<T, Error>) -> String {
        match taken {
            Err(Error::BadInput(refused)) => refused.to_string(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_second_instance_is_refused_with_the_first_ones_process() {
        let dir = tempfile::tempdir().unwrap();
        let paths = Paths::under(&dir.path().join("run"), dir.path(), "a").unwrap();
        let first = Lock::take(&paths).unwrap();
        let refused = refused(Lock::take(&paths));
        let wanted = format!(
            "instance \"a\" runs already as process {};",
            std::process::id()
        );
        assert!(refused.contains(&wanted), "{refused}");
        let other = Paths::under(&dir.path().join("run"), dir.path(), "b").unwrap();
        Lock::take(&other).unwrap();
        drop(first);
        assert!(!paths.lock().exists());
        Lock::take(&paths).unwrap();
    }

    #[test]
    fn a_device_is_one_instances_and_free_when_that_has_done_with_it() {
        let dir = tempfile::tempdir().unwrap();
        let [a, b] = ["a", "b"].map(|name| Paths::under(dir.path(), dir.path(), name).unwrap());
        let mut first = Claims::take(&a, &["eth0", "eth1"]).unwrap();
        let said = refused(Claims::take(&b, &["eth2", "eth1"]));
        let wanted = "device \"eth1\": instance \"a\" has it already (process ";
        assert!(said.starts_with(wanted), "{said}");
        let mut second = Claims::take(&b, &["eth2"]).unwrap();
        refused(first.change(&["eth0", "eth2"]));
        refused(second.change(&["eth1"]));
        first.change(&["eth0"]).unwrap();
        second.change(&["eth1"]).unwrap();
        drop((first, second));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_device_of_a_killed_instance_is_free_when_its_programs_are_gone() {
        let dir = tempfile::tempdir().unwrap();
        let (run, pins) = (dir.path().join("run"), dir.path().join("pins"));
        let [a, b] = ["a", "b"].map(|name| Paths::under(&run, &pins, name).unwrap());
        let claims = Claims::take(&b, &["eth0"]).unwrap();
        let left = a.claim(claims.namespace, "eth1");
        std::fs::write(&left, "1234 a\n").unwrap();
        std::fs::create_dir_all(a.pins()).unwrap();
        let said = refused(Claims::take(&b, &["eth1"]));
        assert!(
            said.starts_with("device \"eth1\": instance \"a\" was killed"),
            "{said}"
        );
        drop(Claims::take(&a, &["eth1"]).unwrap());
        std::fs::write(&left, "1234 a\n").unwrap();
        std::fs::remove_dir(a.pins()).unwrap();
        Claims::take(&b, &["eth1"]).unwrap();
    }
}
