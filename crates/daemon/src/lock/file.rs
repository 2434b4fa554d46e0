//! A lock file that one process holds. It works even if the file system is full.

use std::ffi::OsStr;
use std::fs::{File, Metadata, OpenOptions, Permissions};
use std::io::{self, Read, Seek, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anabranch_api::Paths;
use anyhow::{Context, bail};
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;
use nix::unistd::geteuid;
use socket2::{Domain, SockAddr, Socket, Type};

use super::instance::{has_ended, is_of_ended, known};
use crate::aside::make_way;
use crate::error::is_full;

/// Only the owner may open a lock file, because whoever can open it can lock it.
const OWNERS_ALONE: u32 = 0o600;

/// Longer than the kernel takes from the start of a process to the start of its program.
pub(super) const STARTING: Duration = Duration::from_secs(1);
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// A file that one process holds, or in its place an abstract address derived from its name. It is removed when it is released in
/// an orderly way, unless it has to stay.
#[derive(Debug)]
pub(super) struct LockFile {
    pub(super) path: PathBuf,
    pub(super) holder: String,
    pub(super) stays: bool,
    pub(super) held: Held,
    /// Whether `holder` was written to the file.
    pub(super) written: anyhow::Result<()>,
}

/// What the kernel releases with the process.
#[derive(Debug)]
pub(super) enum Held {
    File(Flock<File>),
    /// If there is no room for a file: an abstract address, which only one socket of the network namespace can have (unix(7)). None
    /// if another user has it. Any user can take it, so that must not prevent a start.
    Address(#[expect(dead_code, reason = "held, not read")] Option<UnixListener>),
}

pub(super) enum Taken {
    Ours(LockFile),
    /// What its holder wrote; empty if there was no room.
    Held(String),
    /// What a holder wrote that ended without releasing it, and whose place may not be taken.
    Left(String),
}

/// The file that was opened and locked, or the reason why not.
pub(super) enum Opened {
    Locked(Flock<File>),
    Held(String),
    NoRoom(io::Error),
}

impl LockFile {
    /// Takes `path` for an instance.
    pub(super) fn take_of(instance: &Paths, path: &Path) -> anyhow::Result<Taken> {
        let holder = format!("{} {}", std::process::id(), instance.instance());
        Self::take(path, &holder, |left| !is_of_ended(instance, left))
    }

    /// Takes `path` and writes `holder` to it, unless a holder that ended without releasing it must not be replaced. Without room
    /// it is taken without being written. A process that was just being started when its parent was killed has the parent's locks
    /// until its own program begins; this is waited for.
    pub(super) fn take(
        path: &Path,
        holder: &str,
        may_follow: impl Fn(&str) -> bool,
    ) -> anyhow::Result<Taken> {
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

    /// Writes the file if there was no room for it before.
    pub(super) fn keep(&mut self) -> anyhow::Result<()> {
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

pub(super) fn bind(path: &Path) -> io::Result<UnixListener> {
    let address = SocketAddr::from_abstract_name(path.as_os_str().as_bytes())?;
    UnixListener::bind_addr(&address)
}

/// The process of this user that has bound `path` as an abstract address. If its queue is full, it is not waited for.
fn bound_by_us(path: &Path) -> Option<String> {
    let name = [b"\0", path.as_os_str().as_bytes()].concat();
    let address = SockAddr::unix(OsStr::from_bytes(&name)).ok()?;
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None).ok()?;
    socket.set_nonblocking(true).ok()?;
    socket.connect(&address).ok()?;
    let peer = getsockopt(&socket, PeerCredentials).ok()?;
    (peer.uid() == geteuid().as_raw()).then(|| peer.pid().to_string())
}

pub(super) fn open(path: &Path) -> anyhow::Result<Opened> {
    let shown = path.display();
    // A symbolic link to a folder is allowed.
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
        // An earlier version let everybody read it, and a file that can be read can be locked.
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

/// Overwrites the file in place, so that it keeps its room on the disk.
pub(super) fn write(path: &Path, file: &mut File, holder: &str) -> anyhow::Result<()> {
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

/// Whether `file` is still at `path`: the last holder may have removed it between our opening and our locking it.
fn is_at(path: &Path, file: &File) -> bool {
    let named = std::fs::metadata(path).map(|found| found.ino());
    let opened = file.metadata().map(|found| found.ino());
    matches!((named, opened), (Ok(named), Ok(opened)) if named == opened)
}

impl Drop for LockFile {
    fn drop(&mut self) {
        if !self.stays {
            // If that fails, the next holder takes the file over.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}
