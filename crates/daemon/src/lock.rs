//! One daemon per instance, and one instance per device and per block of numbers.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{File, Metadata, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Read, Seek, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;
use nix::unistd::geteuid;
use socket2::{Domain, SockAddr, Socket, Type};

use crate::aside::make_way;
use crate::error::{BadInput, Error, is_full};
use crate::host::ids::{BLOCKS, Ids, preferred_block};
use anabranch_api::Paths;

/// Nobody else may open a lock's file, and hold the lock.
const OWNERS_ALONE: u32 = 0o600;

/// Longer than the kernel takes from a process's start to its program's.
const STARTING: Duration = Duration::from_secs(1);
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// Held while the daemon runs. The kernel lets go of it when the process ends, however it ends.
#[derive(Debug)]
pub struct Lock(LockFile);

impl Lock {
    /// Refuses a second instance, naming the first.
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

    /// Says so if there was no room for it.
    pub fn tell(&self) {
        if let Err(error) = &self.0.written {
            tracing::warn!("{error:#}; the instance starts all the same, and only once");
        }
    }
}

/// Whether the process that wrote this is no more.
fn has_ended(written: &str) -> bool {
    let process = written.split(' ').next().unwrap_or_default();
    let is_process = process.parse::<u32>().is_ok();
    is_process && !Path::new("/proc").join(process).exists()
}

/// What a holder wrote, if there was room for it.
fn known(written: &str) -> &str {
    match written {
        "" => "(unknown: there was no room to write its id)",
        written => written,
    }
}

/// The devices of this instance. Those of another network namespace may have the same names. They stay this instance's
/// for as long as its programs are pinned, whether a process of it runs or not: the programs go on forwarding.
#[derive(Debug)]
pub struct Claims {
    paths: Paths,
    namespace: u64,
    held: BTreeMap<String, LockFile>,
    /// What each role of the instance needs; none: devices of before as well, as its programs may be there.
    needed: BTreeMap<&'static str, Option<Vec<String>>>,
}

impl Claims {
    /// Refuses devices of another instance, naming that. Takes over what an earlier process of this instance claimed,
    /// configured or not, since its programs may be there.
    pub fn take(paths: &Paths, devices: &[(&'static str, Vec<&str>)]) -> Result<Self, Error> {
        let mut claims = Self {
            paths: paths.clone(),
            namespace: network_namespace()?,
            held: BTreeMap::new(),
            needed: BTreeMap::new(),
        };
        for device in claims.left()? {
            // Somebody else may have followed meanwhile.
            if let Ok(file) = claims.claim(&device) {
                claims.held.insert(device, file);
            }
        }
        for (role, devices) in devices {
            claims.add(role, devices)?;
        }
        Ok(claims)
    }

    /// More devices for a role: all of them are had, or nothing has changed.
    pub fn add(&mut self, role: &'static str, devices: &[&str]) -> Result<(), Error> {
        let mut fresh = BTreeMap::new();
        for device in devices {
            if !self.held.contains_key(*device) {
                fresh.insert((*device).to_owned(), self.claim(device)?);
            }
        }
        self.held.extend(fresh);
        self.needed.insert(role, None);
        Ok(())
    }

    /// Writes down what there was no room for.
    pub fn keep(&mut self) -> anyhow::Result<()> {
        self.held.values_mut().try_for_each(LockFile::keep)
    }

    /// Lets go of what no role needs, of which `role` needs `devices`. To be called when it has no programs on others.
    pub fn keep_only(&mut self, role: &'static str, devices: &[&str]) {
        let devices = devices.iter().map(|device| (*device).to_owned());
        self.needed.insert(role, Some(devices.collect()));
        let known: Option<Vec<_>> = self.needed.values().map(Option::as_ref).collect();
        if let Some(known) = known {
            let is_needed = |device: &String| known.iter().any(|devices| devices.contains(device));
            self.held.retain(|device, _| is_needed(device));
        }
    }

    /// The devices that earlier processes of this instance claimed and did not let go of.
    fn left(&self) -> anyhow::Result<Vec<String>> {
        let folder = self.paths.runtime_dir();
        let entries = match std::fs::read_dir(folder) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.with_context(|| format!("read {}", folder.display()))?,
        };
        let left = entries.filter_map(|entry| {
            let path = entry.ok()?.path();
            let device = Paths::claimed(self.namespace, &path)?;
            is_of(&self.paths, &path).then(|| device.to_owned())
        });
        Ok(left.collect())
    }

    fn claim(&self, device: &str) -> Result<LockFile, Error> {
        let path = self.paths.claim(self.namespace, device);
        match LockFile::take_of(&self.paths, &path)? {
            Taken::Ours(file) => Ok(file),
            Taken::Held(holder) => {
                let (pid, instance) = owner(&holder);
                let instance = match instance {
                    "" => "an instance".to_owned(),
                    named => format!("instance {named:?}"),
                };
                let message = format!(
                    "device {device:?}: {instance} has it already (process {}); a device is one instance's",
                    known(pid)
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
}

impl Drop for Claims {
    fn drop(&mut self) {
        if has_programs(&self.paths) {
            self.held.values_mut().for_each(|file| file.stays = true);
        }
    }
}

/// The tables, rules and marks of this instance, by their block: of instances that share a network namespace each has another. They stay
/// an instance's as its devices do.
#[derive(Debug)]
pub struct Numbers {
    paths: Paths,
    block: u32,
    file: LockFile,
}

impl Numbers {
    /// Those that an earlier process of this instance had and left; or the first that are free.
    pub fn take(paths: &Paths) -> Result<Self, Error> {
        let namespace = network_namespace()?;
        let preferred = preferred_block(paths.instance());
        let mut blocks: Vec<u32> = (0..BLOCKS).map(|n| (preferred + n) % BLOCKS).collect();
        blocks.sort_by_cached_key(|block| !is_of(paths, &paths.numbers(namespace, *block)));
        for block in blocks {
            let path = paths.numbers(namespace, block);
            if let Taken::Ours(file) = LockFile::take_of(paths, &path)? {
                let paths = paths.clone();
                return Ok(Self { paths, block, file });
            }
        }
        let message = format!(
            "{BLOCKS} instances have all routing tables and marks of this network namespace: stop one, or run in another namespace"
        );
        Err(BadInput::new(message).into())
    }

    /// What they are.
    pub fn ids(&self) -> Ids {
        Ids::of_block(self.block)
    }
}

impl Drop for Numbers {
    fn drop(&mut self) {
        self.file.stays = has_programs(&self.paths);
    }
}

fn network_namespace() -> anyhow::Result<u64> {
    let namespace = std::fs::metadata("/proc/thread-self/ns/net").context("network namespace")?;
    Ok(namespace.ino())
}

/// Whether a process of the instance wrote the claim at `path`.
fn is_of(instance: &Paths, path: &Path) -> bool {
    // Whoever opens what is no file may wait for ever.
    let is_file = std::fs::symlink_metadata(path).is_ok_and(|found| found.is_file());
    let written = is_file.then(|| std::fs::read_to_string(path).unwrap_or_default());
    owner(written.unwrap_or_default().trim()).1 == instance.instance()
}

/// Whether another instance than `paths` left a claim and its programs.
fn is_of_ended(paths: &Paths, left: &str) -> bool {
    let (_, instance) = owner(left);
    let there = paths.of(instance).is_ok_and(|paths| has_programs(&paths));
    instance != paths.instance() && there
}

/// Its pins stand in folders of their own; what others have pinned among these is none of its programs.
fn has_programs(instance: &Paths) -> bool {
    let entries = std::fs::read_dir(instance.pins());
    let mut entries = entries.into_iter().flatten().flatten();
    entries.any(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
}

/// Process and instance of a claim.
fn owner(written: &str) -> (&str, &str) {
    written.split_once(' ').unwrap_or((written, ""))
}

/// A file that one process has, or in its stead an address that has its name. It is removed when that lets go of it in good order, unless it is to stay.
#[derive(Debug)]
struct LockFile {
    path: PathBuf,
    holder: String,
    stays: bool,
    held: Held,
    /// Whether `holder` is in the file.
    written: anyhow::Result<()>,
}

/// What the kernel lets go of with the process.
#[derive(Debug)]
enum Held {
    File(Flock<File>),
    /// For want of room for a file: an abstract address, which one socket of the network namespace has (unix(7)). None if
    /// another user has it, as anybody may: that keeps nobody from starting.
    Address(#[expect(dead_code, reason = "held, not read")] Option<UnixListener>),
}

enum Taken {
    Ours(LockFile),
    /// What its holder wrote; empty if there was no room.
    Held(String),
    /// What a holder wrote that ended without letting go, and whom nobody may follow.
    Left(String),
}

/// A file that was opened, if there was room for it, and locked.
enum Opened {
    Locked(Flock<File>),
    Held(String),
    NoRoom(io::Error),
}

impl LockFile {
    /// Takes `path` for an instance.
    fn take_of(instance: &Paths, path: &Path) -> anyhow::Result<Taken> {
        let holder = format!("{} {}", std::process::id(), instance.instance());
        Self::take(path, &holder, |left| !is_of_ended(instance, left))
    }

    /// Takes `path` and writes `holder` into it, if it may follow whoever ended without letting go. Without room it is
    /// taken all the same, and not written. A program that a killed process was just starting has its locks, until it has begun.
    fn take(path: &Path, holder: &str, may_follow: impl Fn(&str) -> bool) -> anyhow::Result<Taken> {
        let began = Instant::now();
        loop {
            match Self::try_take(path, holder, &may_follow)? {
                Taken::Held(other) if has_ended(&other) && began.elapsed() < STARTING => {
                    std::thread::sleep(LOOK_AGAIN);
                }
                taken => return Ok(taken),
            }
        }
    }

    fn try_take(
        path: &Path,
        holder: &str,
        may_follow: impl Fn(&str) -> bool,
    ) -> anyhow::Result<Taken> {
        let address = bind(path).ok();
        if address.is_none()
            && let Some(process) = bound_by_us(path)
        {
            return Ok(Taken::Held(process));
        }
        let (held, written) = match open(path)? {
            Opened::Held(holder) => return Ok(Taken::Held(holder)),
            Opened::Locked(mut file) => {
                let left = read(path, &mut file)?;
                if !left.is_empty() && !may_follow(&left) {
                    return Ok(Taken::Left(left));
                }
                let written = write(path, &mut file, holder);
                (Held::File(file), written)
            }
            Opened::NoRoom(error) => (Held::Address(address), Err(no_room(path, error))),
        };
        Ok(Taken::Ours(Self {
            path: path.to_owned(),
            holder: holder.to_owned(),
            stays: false,
            held,
            written,
        }))
    }

    /// Writes down what there was no room for.
    fn keep(&mut self) -> anyhow::Result<()> {
        if self.written.is_ok() {
            return Ok(());
        }
        if let Held::Address(_) = self.held {
            match open(&self.path)? {
                Opened::Locked(file) => self.held = Held::File(file),
                Opened::Held(other) => bail!(
                    "{}: process {} has it, too",
                    self.path.display(),
                    known(&other)
                ),
                Opened::NoRoom(error) => return Err(no_room(&self.path, error)),
            }
        }
        if let Held::File(file) = &mut self.held {
            write(&self.path, file, &self.holder)?;
            self.written = Ok(());
        }
        Ok(())
    }
}

fn bind(path: &Path) -> io::Result<UnixListener> {
    let address = SocketAddr::from_abstract_name(path.as_os_str().as_bytes())?;
    UnixListener::bind_addr(&address)
}

/// The process of this user that has bound `path` as an abstract address. Whoever fills its queue is not waited for.
fn bound_by_us(path: &Path) -> Option<String> {
    let name = [b"\0", path.as_os_str().as_bytes()].concat();
    let address = SockAddr::unix(OsStr::from_bytes(&name)).ok()?;
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None).ok()?;
    socket.set_nonblocking(true).ok()?;
    socket.connect(&address).ok()?;
    let peer = getsockopt(&socket, PeerCredentials).ok()?;
    (peer.uid() == geteuid().as_raw()).then(|| peer.pid().to_string())
}

fn open(path: &Path) -> anyhow::Result<Opened> {
    let shown = path.display();
    // A link to a folder is as good as that.
    let is_folder = |_: &Metadata| path.parent().is_some_and(Path::is_dir);
    loop {
        if let Some(folder) = path.parent() {
            make_way(folder, "folder", is_folder);
        }
        make_way(path, "file", Metadata::is_file);
        let created = path.parent().map_or(Ok(()), std::fs::create_dir_all);
        let opened = created.and_then(|()| {
            OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .mode(OWNERS_ALONE)
                .open(path)
        });
        let file = match opened {
            Err(error) if is_full(&error) => return Ok(Opened::NoRoom(error)),
            opened => opened.with_context(|| format!("open {shown}"))?,
        };
        // An earlier version let everybody read it, and who may read may lock.
        let own = Permissions::from_mode(OWNERS_ALONE);
        file.set_permissions(own)
            .with_context(|| format!("set the permissions of {shown}"))?;
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(locked) if is_at(path, &locked) => return Ok(Opened::Locked(locked)),
            Ok(_) => {}
            Err((mut held, Errno::EWOULDBLOCK)) => {
                return Ok(Opened::Held(read(path, &mut held)?));
            }
            Err((_, errno)) => {
                return Err(anyhow::Error::new(errno).context(format!("lock {shown}")));
            }
        }
    }
}

/// In place: what is there keeps its room.
fn write(path: &Path, file: &mut File, holder: &str) -> anyhow::Result<()> {
    let line = format!("{holder}\n");
    file.rewind()
        .and_then(|()| file.write_all(line.as_bytes()))
        .and_then(|()| file.set_len(line.len() as u64))
        .map_err(|error| no_room(path, error))
}

fn no_room(path: &Path, error: io::Error) -> anyhow::Error {
    let folder = path.parent().unwrap_or(path).display();
    anyhow::Error::new(error).context(format!(
        "cannot write {}: make room in {folder}",
        path.display()
    ))
}

fn read(path: &Path, file: &mut File) -> anyhow::Result<String> {
    let mut written = Vec::new();
    file.read_to_end(&mut written)
        .with_context(|| format!("read {}", path.display()))?;
    Ok(String::from_utf8_lossy(&written).trim().to_owned())
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
    use std::os::unix::process::CommandExt;

    use nix::fcntl::{FcntlArg, FdFlag};
    use nix::mount::{MntFlags, MsFlags, mount, umount2};

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
    fn what_a_killed_instance_was_starting_keeps_the_next_one_waiting_for_a_moment() {
        const BEYOND_ALL_PROCESSES: &str = "4194305";
        let dir = tempfile::tempdir().unwrap();
        let paths = Paths::under(&dir.path().join("run"), dir.path(), "a").unwrap();
        let lock = || {
            let Ok(Opened::Locked(mut file)) = open(&paths.lock()) else {
                panic!("it is free")
            };
            write(&paths.lock(), &mut file, BEYOND_ALL_PROCESSES).unwrap();
            file
        };
        let held = lock();
        let began = Instant::now();
        assert!(refused(Lock::take(&paths)).contains(BEYOND_ALL_PROCESSES));
        assert!(began.elapsed() >= STARTING);
        drop(held);
        let held = lock();
        std::thread::scope(|scope| {
            let next = scope.spawn(|| Lock::take(&paths));
            drop(held);
            next.join().unwrap().unwrap();
        });
    }

    /// Where [`instances`] have their files, and how many those are.
    fn files(dir: &tempfile::TempDir) -> usize {
        std::fs::read_dir(dir.path().join("run")).unwrap().count()
    }

    fn instances(dir: &tempfile::TempDir) -> [Paths; 2] {
        let (run, pins) = (dir.path().join("run"), dir.path().join("pins"));
        ["a", "b"].map(|name| Paths::under(&run, &pins, name).unwrap())
    }

    /// A file system without room: for the text of any file, or for any file.
    struct Full(tempfile::TempDir);

    impl Full {
        fn new(limit: &str) -> Self {
            let dir = tempfile::tempdir().unwrap();
            let full = Self(dir);
            full.mount(MsFlags::empty(), limit);
            // One file fits.
            std::fs::write(full.0.path().join("large"), "x").unwrap();
            full
        }

        fn mount(&self, flags: MsFlags, limit: &str) {
            let tmpfs = Some("tmpfs");
            mount(tmpfs, self.0.path(), tmpfs, flags, Some(limit)).unwrap();
        }

        fn paths(&self) -> [Paths; 2] {
            let pins = self.0.path().join("pins");
            ["a", "b"].map(|name| Paths::under(self.0.path(), &pins, name).unwrap())
        }
    }

    impl Drop for Full {
        fn drop(&mut self) {
            let _ = umount2(self.0.path(), MntFlags::MNT_DETACH);
        }
    }

    #[test]
    fn without_room_a_start_goes_on_once_and_what_it_holds_is_written_when_there_is_room() {
        for (limit, room) in [("size=4k", "size=1m"), ("nr_inodes=2", "nr_inodes=100")] {
            let full = Full::new(limit);
            let [a, b] = full.paths();
            let lock = Lock::take(&a).unwrap();
            let process = match limit {
                "nr_inodes=2" => std::process::id().to_string(),
                _ => "(unknown: there was no room to write its id)".to_owned(),
            };
            let said = refused(Lock::take(&a));
            let wanted = format!("instance \"a\" runs already as process {process};");
            assert!(said.contains(&wanted), "{limit}: {said}");
            let mut first = Claims::take(&a, &[("gateway", vec!["eth1"])]).unwrap();
            let said = refused(Claims::take(&b, &[("gateway", vec!["eth1"])]));
            let wanted =
                format!("device \"eth1\": an instance has it already (process {process});");
            assert!(said.starts_with(&wanted), "{limit}: {said}");
            Claims::take(&b, &[("gateway", vec!["eth2"])]).unwrap();
            let said = format!("{:#}", first.keep().unwrap_err());
            let place = full.0.path().display();
            assert!(
                said.starts_with(&format!("cannot write {place}/")),
                "{said}"
            );
            assert!(
                said.contains(&format!("-eth1.device: make room in {place}: No space")),
                "{said}"
            );

            full.mount(MsFlags::MS_REMOUNT, room);
            first.keep().unwrap();
            let said = refused(Claims::take(&b, &[("gateway", vec!["eth1"])]));
            let wanted = "device \"eth1\": instance \"a\" has it already (process ";
            assert!(said.starts_with(wanted), "{limit}: {said}");
            drop((lock, first));
            Lock::take(&a).unwrap();
            Claims::take(&b, &[("gateway", vec!["eth1"])]).unwrap();
        }
    }

    /// A process of nobody's that has an address.
    fn nobody_at(path: &Path) -> std::process::Child {
        let address = SocketAddr::from_abstract_name(path.as_os_str().as_bytes()).unwrap();
        let mut command = std::process::Command::new("sleep");
        // SAFETY: plain system calls; nothing is allocated or locked between fork and exec.
        unsafe {
            command.pre_exec(move || {
                nix::unistd::setuid(nix::unistd::Uid::from_raw(65_534))?;
                let listener = UnixListener::bind_addr(&address)?;
                nix::fcntl::fcntl(&listener, FcntlArg::F_SETFD(FdFlag::empty()))?;
                std::mem::forget(listener);
                Ok(())
            });
        }
        command.arg("60").spawn().unwrap()
    }

    #[test]
    fn an_address_that_somebody_else_has_keeps_nobody_from_starting() {
        let full = Full::new("nr_inodes=2");
        let [a, _] = full.paths();
        let mut nobody = nobody_at(&a.lock());
        assert_eq!(bind(&a.lock()).unwrap_err().kind(), ErrorKind::AddrInUse);
        Lock::take(&a).unwrap();
        full.mount(MsFlags::MS_REMOUNT, "nr_inodes=100");
        Lock::take(&a).unwrap();
        nobody.kill().unwrap();
        nobody.wait().unwrap();
    }

    /// Lets go as a process that is killed does.
    fn kill(mut claims: Claims) {
        claims.held.values_mut().for_each(|file| file.stays = true);
    }

    #[test]
    fn a_device_is_one_instances_and_free_when_that_has_done_with_it() {
        let dir = tempfile::tempdir().unwrap();
        let [a, b] = instances(&dir);
        let mut first = Claims::take(&a, &[("gateway", vec!["eth0", "eth1"])]).unwrap();
        let said = refused(Claims::take(&b, &[("gateway", vec!["eth2", "eth1"])]));
        let wanted = "device \"eth1\": instance \"a\" has it already (process ";
        assert!(said.starts_with(wanted), "{said}");
        let mut second = Claims::take(&b, &[("gateway", vec!["eth2"])]).unwrap();
        refused(first.add("gateway", &["eth0", "eth3", "eth2"]));
        assert_eq!(files(&dir), 3, "what was refused has changed nothing");
        refused(second.add("gateway", &["eth1"]));
        first.keep_only("gateway", &["eth0"]);
        second.add("gateway", &["eth1"]).unwrap();
        drop((first, second));
        assert_eq!(files(&dir), 0);
    }

    /// Of the 64 blocks both prefer one.
    #[test]
    fn instances_of_one_hash_have_numbers_of_their_own_and_keep_them() {
        let dir = tempfile::tempdir().unwrap();
        let (run, pins) = (dir.path().join("run"), dir.path().join("pins"));
        let [a, b] = ["h6", "h6bb"].map(|name| Paths::under(&run, &pins, name).unwrap());
        assert_eq!(preferred_block("h6"), preferred_block("h6bb"));
        let first = Numbers::take(&a).unwrap();
        let mut second = Numbers::take(&b).unwrap();
        let ids = second.ids();
        assert_eq!(first.ids(), Ids::of("h6"));
        assert_ne!(first.ids(), ids);
        std::fs::create_dir_all(b.pins().join("v1")).unwrap();
        drop(first);
        second.file.stays = true;
        drop(second);
        assert_eq!(
            Numbers::take(&b).unwrap().ids(),
            ids,
            "its programs have them"
        );
        std::fs::remove_dir_all(b.pins()).unwrap();
        drop(Numbers::take(&b).unwrap());
        assert_eq!(files(&dir), 0);
        let all: Vec<_> = (0..BLOCKS)
            .map(|n| Numbers::take(&Paths::under(&run, &pins, &format!("i{n}")).unwrap()).unwrap())
            .collect();
        let said = refused(Numbers::take(&a));
        assert!(said.starts_with("64 instances have all"), "{said}");
        let blocks: std::collections::BTreeSet<u32> = all.iter().map(|one| one.block).collect();
        assert_eq!(blocks.len(), all.len());
    }

    #[test]
    fn a_device_of_a_killed_instance_is_free_when_its_programs_are_gone() {
        let dir = tempfile::tempdir().unwrap();
        let [a, b] = instances(&dir);
        kill(Claims::take(&a, &[("gateway", vec!["eth1"])]).unwrap());
        std::fs::create_dir_all(a.pins().join("v1")).unwrap();
        let said = refused(Claims::take(&b, &[("gateway", vec!["eth1"])]));
        let wanted = "device \"eth1\": instance \"a\" ended without a clean stop";
        assert!(said.starts_with(wanted), "{said}");
        Claims::take(&a, &[("gateway", vec!["eth1"])]).unwrap();
        std::fs::remove_dir_all(a.pins().join("v1")).unwrap();
        std::fs::write(a.pins().join("somebodys"), "").unwrap();
        Claims::take(&b, &[("gateway", vec!["eth1"])]).unwrap();
    }

    #[test]
    fn a_device_stays_an_instances_whose_programs_stay_however_its_process_ends() {
        let dir = tempfile::tempdir().unwrap();
        let [a, b] = instances(&dir);
        std::fs::create_dir_all(a.pins().join("v1")).unwrap();
        drop(Claims::take(&a, &[("gateway", vec!["eth1"])]).unwrap());
        refused(Claims::take(&b, &[("gateway", vec!["eth1"])]));
        let other = Claims::take(&b, &[("gateway", vec!["eth2"])]).unwrap();
        refused(Claims::take(&a, &[("gateway", vec!["eth1", "eth2"])]));
        refused(Claims::take(&b, &[("gateway", vec!["eth1"])]));
        drop(other);
        let again = Claims::take(&a, &[("gateway", vec!["eth1"])]).unwrap();
        std::fs::remove_dir_all(a.pins()).unwrap();
        drop(again);
        assert_eq!(files(&dir), 0);
    }

    /// Of the lock, of what says whose a device is and whose the numbers are, and of the folder of them.
    #[test]
    fn whatever_stands_in_the_place_of_a_file_keeps_nobody_from_starting() {
        let makes: [fn(&Path); 4] = [
            |place| std::fs::create_dir_all(place.join("full")).unwrap(),
            |place| nix::unistd::mkfifo(place, nix::sys::stat::Mode::S_IRWXU).unwrap(),
            |place| std::os::unix::fs::symlink("/nowhere", place).unwrap(),
            |place| std::fs::write(place, b"\xff\0garbled").unwrap(),
        ];
        for make in makes {
            let dir = tempfile::tempdir().unwrap();
            let paths = Paths::under(&dir.path().join("run"), dir.path(), "a").unwrap();
            let namespace = network_namespace().unwrap();
            std::fs::create_dir(paths.runtime_dir()).unwrap();
            make(&paths.lock());
            make(&paths.claim(namespace, "eth0"));
            (0..BLOCKS).for_each(|block| make(&paths.numbers(namespace, block)));
            let lock = Lock::take(&paths).unwrap();
            let claims = Claims::take(&paths, &[("gateway", vec!["eth0"])]).unwrap();
            let numbers = Numbers::take(&paths).unwrap();
            drop((lock, claims, numbers));
        }
    }

    #[test]
    fn a_file_in_the_place_of_the_folder_is_set_aside() {
        let dir = tempfile::tempdir().unwrap();
        let run = dir.path().join("run");
        std::fs::write(&run, "somebody's").unwrap();
        let paths = Paths::under(&run, dir.path(), "a").unwrap();
        Lock::take(&paths).unwrap();
        let aside = std::fs::read(dir.path().join("run.set-aside"));
        assert_eq!(aside.unwrap(), b"somebody's");
        std::fs::rename(&run, dir.path().join("real")).unwrap();
        std::os::unix::fs::symlink("real", &run).unwrap();
        Lock::take(&paths).unwrap();
        assert!(run.is_symlink(), "a link to a folder stays");
    }

    #[test]
    fn nobody_else_may_open_what_is_locked() {
        let dir = tempfile::tempdir().unwrap();
        let [a, _] = instances(&dir);
        std::fs::create_dir_all(a.lock().parent().unwrap()).unwrap();
        std::fs::write(a.lock(), "").unwrap();
        let _lock = Lock::take(&a).unwrap();
        let _claims = Claims::take(&a, &[("gateway", vec!["eth1"])]).unwrap();
        let _numbers = Numbers::take(&a).unwrap();
        let folder = a.lock().parent().unwrap().to_owned();
        let files = std::fs::read_dir(folder).unwrap().map(Result::unwrap);
        let files: Vec<_> = files
            .filter(|file| file.file_type().unwrap().is_file())
            .collect();
        assert!(files.len() >= 3, "{files:?}");
        for file in files {
            let mode = file.metadata().unwrap().permissions().mode() & 0o777;
            assert_eq!(mode, 0o600, "{file:?}");
        }
    }

    #[test]
    fn a_device_that_a_killed_instance_had_is_free_when_it_runs_again_without_it() {
        let dir = tempfile::tempdir().unwrap();
        let [a, b] = instances(&dir);
        std::fs::create_dir_all(a.pins().join("v1")).unwrap();
        kill(Claims::take(&a, &[("gateway", vec!["eth1", "eth3"])]).unwrap());
        let mut again = Claims::take(&a, &[("gateway", vec!["eth1"])]).unwrap();
        refused(Claims::take(&b, &[("gateway", vec!["eth3"])]));
        again.keep_only("gateway", &["eth1"]);
        Claims::take(&b, &[("gateway", vec!["eth3"])]).unwrap();
        refused(Claims::take(&b, &[("gateway", vec!["eth1"])]));
    }
}
