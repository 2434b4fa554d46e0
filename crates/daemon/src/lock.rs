//! One daemon per instance, and one instance per device.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, Write};
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

/// The devices of this instance. Those of another network namespace may have the same names. They stay this instance's
/// for as long as its programs are pinned, whether a process of it runs or not: the programs go on forwarding.
#[derive(Debug)]
pub struct Claims {
    paths: Paths,
    namespace: u64,
    held: BTreeMap<String, LockFile>,
}

impl Claims {
    /// Refuses devices of another instance, naming that. Takes over what an earlier process of this instance claimed,
    /// configured or not, since its programs may be there.
    pub fn take(paths: &Paths, devices: &[&str]) -> Result<Self, Error> {
        let namespace =
            std::fs::metadata("/proc/thread-self/ns/net").context("network namespace")?;
        let mut claims = Self {
            paths: paths.clone(),
            namespace: namespace.ino(),
            held: BTreeMap::new(),
        };
        for device in claims.left()? {
            // Somebody else may have followed meanwhile.
            if let Ok(file) = claims.claim(&device) {
                claims.held.insert(device, file);
            }
        }
        claims.add(devices)?;
        Ok(claims)
    }

    /// More devices: all of them are had, or nothing has changed.
    pub fn add(&mut self, devices: &[&str]) -> Result<(), Error> {
        let mut fresh = BTreeMap::new();
        for device in devices {
            if !self.held.contains_key(*device) {
                fresh.insert((*device).to_owned(), self.claim(device)?);
            }
        }
        self.held.extend(fresh);
        Ok(())
    }

    /// Lets go of all but `devices`. To be called when no others have programs.
    pub fn keep_only(&mut self, devices: &[&str]) {
        self.held
            .retain(|device, _| devices.contains(&device.as_str()));
    }

    /// The devices that earlier processes of this instance claimed and did not let go of.
    fn left(&self) -> anyhow::Result<Vec<String>> {
        let folder = self.paths.runtime_dir();
        let entries = match std::fs::read_dir(folder) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.with_context(|| format!("read {}", folder.display()))?,
        };
        let is_ours = |path: &Path| {
            let written = std::fs::read_to_string(path).unwrap_or_default();
            owner(written.trim()).1 == self.paths.instance()
        };
        let left = entries.filter_map(|entry| {
            let path = entry.ok()?.path();
            let device = Paths::claimed(self.namespace, &path)?;
            is_ours(&path).then(|| device.to_owned())
        });
        Ok(left.collect())
    }

    fn claim(&self, device: &str) -> Result<LockFile, Error> {
        let path = self.paths.claim(self.namespace, device);
        let holder = format!("{} {}", std::process::id(), self.paths.instance());
        match LockFile::take(&path, &holder, |left| !self.is_of_ended(left))? {
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
                    "device {device:?}: instance {instance:?} ended without a clean stop, and its programs go on; start it again and stop it"
                );
                Err(BadInput::new(message).into())
            }
        }
    }

    /// Whether another instance left this claim and its programs.
    fn is_of_ended(&self, left: &str) -> bool {
        let (_, instance) = owner(left);
        let there = self
            .paths
            .of(instance)
            .is_ok_and(|paths| has_programs(&paths));
        instance != self.paths.instance() && there
    }
}

impl Drop for Claims {
    fn drop(&mut self) {
        if has_programs(&self.paths) {
            self.held.values_mut().for_each(|file| file.stays = true);
        }
    }
}

fn has_programs(instance: &Paths) -> bool {
    instance.pins().exists()
}

/// Process and instance of a claim.
fn owner(written: &str) -> (&str, &str) {
    written.split_once(' ').unwrap_or((written, "?"))
}

/// A file that one process has. It is removed when that lets go of it in good order, unless it is to stay.
#[derive(Debug)]
struct LockFile {
    path: PathBuf,
    stays: bool,
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
                stays: false,
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
        if !self.stays {
            // Who comes next takes it over if it stays.
            let _ = std::fs::remove_file(&self.path);
        }
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

    /// Where [`instances`] have their files, and how many those are.
    fn files(dir: &tempfile::TempDir) -> usize {
        std::fs::read_dir(dir.path().join("run")).unwrap().count()
    }

    fn instances(dir: &tempfile::TempDir) -> [Paths; 2] {
        let (run, pins) = (dir.path().join("run"), dir.path().join("pins"));
        ["a", "b"].map(|name| Paths::under(&run, &pins, name).unwrap())
    }

    /// Lets go as a process that is killed does.
    fn kill(mut claims: Claims) {
        claims.held.values_mut().for_each(|file| file.stays = true);
    }

    #[test]
    fn a_device_is_one_instances_and_free_when_that_has_done_with_it() {
        let dir = tempfile::tempdir().unwrap();
        let [a, b] = instances(&dir);
        let mut first = Claims::take(&a, &["eth0", "eth1"]).unwrap();
        let said = refused(Claims::take(&b, &["eth2", "eth1"]));
        let wanted = "device \"eth1\": instance \"a\" has it already (process ";
        assert!(said.starts_with(wanted), "{said}");
        let mut second = Claims::take(&b, &["eth2"]).unwrap();
        refused(first.add(&["eth0", "eth3", "eth2"]));
        assert_eq!(files(&dir), 3, "what was refused has changed nothing");
        refused(second.add(&["eth1"]));
        first.keep_only(&["eth0"]);
        second.add(&["eth1"]).unwrap();
        drop((first, second));
        assert_eq!(files(&dir), 0);
    }

    #[test]
    fn a_device_of_a_killed_instance_is_free_when_its_programs_are_gone() {
        let dir = tempfile::tempdir().unwrap();
        let [a, b] = instances(&dir);
        kill(Claims::take(&a, &["eth1"]).unwrap());
        std::fs::create_dir_all(a.pins()).unwrap();
        let said = refused(Claims::take(&b, &["eth1"]));
        let wanted = "device \"eth1\": instance \"a\" ended without a clean stop";
        assert!(said.starts_with(wanted), "{said}");
        Claims::take(&a, &["eth1"]).unwrap();
        std::fs::remove_dir(a.pins()).unwrap();
        Claims::take(&b, &["eth1"]).unwrap();
    }

    #[test]
    fn a_device_stays_an_instances_whose_programs_stay_however_its_process_ends() {
        let dir = tempfile::tempdir().unwrap();
        let [a, b] = instances(&dir);
        std::fs::create_dir_all(a.pins()).unwrap();
        drop(Claims::take(&a, &["eth1"]).unwrap());
        refused(Claims::take(&b, &["eth1"]));
        let other = Claims::take(&b, &["eth2"]).unwrap();
        refused(Claims::take(&a, &["eth1", "eth2"]));
        refused(Claims::take(&b, &["eth1"]));
        drop(other);
        let again = Claims::take(&a, &["eth1"]).unwrap();
        std::fs::remove_dir(a.pins()).unwrap();
        drop(again);
        assert_eq!(files(&dir), 0);
    }

    #[test]
    fn a_device_that_a_killed_instance_had_is_free_when_it_runs_again_without_it() {
        let dir = tempfile::tempdir().unwrap();
        let [a, b] = instances(&dir);
        std::fs::create_dir_all(a.pins()).unwrap();
        kill(Claims::take(&a, &["eth1", "eth3"]).unwrap());
        let mut again = Claims::take(&a, &["eth1"]).unwrap();
        refused(Claims::take(&b, &["eth3"]));
        again.keep_only(&["eth1"]);
        Claims::take(&b, &["eth3"]).unwrap();
        refused(Claims::take(&b, &["eth1"]));
    }
}
