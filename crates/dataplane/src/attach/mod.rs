//! Attachments to devices, which outlive this process.
//!
//! Where the kernel has TCX (Linux 6.6) an attachment is a link, pinned; elsewhere it is a [`filter`] of the device's
//! `clsact` qdisc, which holds its program by itself, and a folder among the pins that says so. What stands is replaced
//! in place, without a packet that meets no program.

mod filter;
mod tc;

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::LazyLock,
    thread,
    time::{Duration, Instant},
};

use anabranch_policy::abi;
use aya::programs::{
    LinkOrder, ProgramError, SchedClassifier, TcAttachType,
    links::{FdLink, PinnedLink},
    tc::{SchedClassifierLink, TcAttachOptions},
};
use nix::{errno::Errno, net::if_::if_indextoname};

use crate::{Error, pins::Pinned};
pub use filter::has_room;

const PREFIX: &str = "attach-";
const BESIDE: &str = "beside-";
/// The kernel takes a link away some time after its pin: so long is waited for that.
const GOING: Duration = Duration::from_secs(1);
/// Set to `clsact`: filters even where there is TCX, so that `tc` shows them.
const MECHANISM: &str = "ANABRANCH_ATTACH";

/// Where several roles of an instance stand at one end of a device, who meets a packet first: what a service takes never was the
/// gateway's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rank {
    First,
    Second,
}

impl Rank {
    /// Of the programs that the folder `pins` tells of.
    fn of(pins: &Path) -> Self {
        match Pinned::of(pins) {
            Some(Pinned::Services) => Self::First,
            _ => Self::Second,
        }
    }

    fn order(self) -> LinkOrder {
        match self {
            Self::First => LinkOrder::first(),
            Self::Second => LinkOrder::last(),
        }
    }
}

/// What stands among the pins for an attachment.
pub enum Attachment {
    /// A link to a device.
    Link {
        /// The device's index.
        ifindex: u32,
        /// Where the program stands there.
        end: TcAttachType,
    },
    /// An empty folder.
    Mark,
}

impl Attachment {
    /// What is called `name`, of an instance whose programs stand at `end`.
    pub fn named(name: &str, end: TcAttachType) -> Option<Self> {
        let link = |prefix, end| {
            let ifindex = number_behind(prefix, name)?;
            Some(Attachment::Link { ifindex, end })
        };
        link(PREFIX, end)
            .or_else(|| link(BESIDE, TcAttachType::Egress))
            .or_else(|| filter::is_mark(name).then_some(Attachment::Mark))
    }
}

fn pin_path(pins: &Path, ifindex: u32) -> PathBuf {
    pins.join(format!("{PREFIX}{ifindex}"))
}

/// Of the second attachment to a device.
fn beside_path(pins: &Path, ifindex: u32) -> PathBuf {
    pins.join(format!("{BESIDE}{ifindex}"))
}

/// Puts `program` at one end of a device's queue: in the place of what the folder `pins` tells of, or fresh.
///
/// # Errors
/// No such device, or the kernel refuses.
pub fn attach(
    program: &mut SchedClassifier,
    pins: &Path,
    ifindex: u32,
    end: TcAttachType,
) -> Result<(), Error> {
    let path = pin_path(pins, ifindex);
    if path.exists() {
        if replace(program, &path).is_ok() {
            return Ok(());
        }
        unpin(&path)?;
    }
    if filter::stands(pins, ifindex) || !has_tcx() {
        return filter::attach(program, pins, ifindex, end);
    }
    attach_fresh(program, &path, ifindex, end, || Rank::of(pins).order())
}

fn device_name(ifindex: u32) -> Result<String, Error> {
    let name = if_indextoname(ifindex).map_err(|_| Error::NoDevice { ifindex })?;
    // The library takes the null pointer of a device that is not there for no error.
    if name.is_empty() {
        return Err(Error::NoDevice { ifindex });
    }
    Ok(name.to_string_lossy().into_owned())
}

/// Kernels without it do not know what they are asked about, be it the loopback device. Asked once.
fn has_tcx() -> bool {
    static HAS_TCX: LazyLock<bool> = LazyLock::new(|| {
        if std::env::var_os(MECHANISM).is_some_and(|mechanism| mechanism == "clsact") {
            return false;
        }
        match SchedClassifier::query_tcx("lo", TcAttachType::Ingress) {
            Err(ProgramError::SyscallError(error)) => {
                error.io_error.raw_os_error() != Some(Errno::EINVAL as i32)
            }
            _ => true,
        }
    });
    *HAS_TCX
}

/// Fails if the pinned link lost its device.
fn replace(program: &mut SchedClassifier, path: &Path) -> Result<(), ProgramError> {
    let id = program.attach_to_link(pinned_link(path)?)?;
    program.take_link(id).map(drop)
}

fn pinned_link(path: &Path) -> Result<SchedClassifierLink, ProgramError> {
    let pinned = PinnedLink::from_pin(path)
        .map_err(|error| ProgramError::IOError(std::io::Error::other(error)))?;
    SchedClassifierLink::try_from(FdLink::from(pinned))
        .map_err(|error| ProgramError::IOError(std::io::Error::other(error)))
}

/// Puts `program` before the one of another version that the pins `former` tell of, by the same mechanism. Our
/// own, of a process that was killed on the way, is replaced.
pub fn attach_before(
    program: &mut SchedClassifier,
    former: &Path,
    pins: &Path,
    ifindex: u32,
    end: TcAttachType,
) -> Result<(), Error> {
    if filter::stands(former, ifindex) {
        return filter::attach_before(program, former, pins, ifindex, end);
    }
    let path = pin_path(pins, ifindex);
    if path.exists() && replace(program, &path).is_ok() {
        return Ok(());
    }
    unpin(&path)?;
    // The kernel is told by its descriptor which it is, so it is held meanwhile.
    let stands = pinned_link(&pin_path(former, ifindex)).map_err(failed(ifindex))?;
    let order = || LinkOrder::before_link(&stands).unwrap_or_else(|_| LinkOrder::first());
    attach_fresh(program, &path, ifindex, end, order)
}

fn failed(ifindex: u32) -> impl Fn(ProgramError) -> Error {
    move |source| Error::Attach {
        ifindex,
        source: Box::new(source),
    }
}

/// Whether the very program stands there, by a link of ours whose pin was removed.
fn stands_still(error: &ProgramError) -> bool {
    let ProgramError::SyscallError(error) = error else {
        return false;
    };
    error.io_error.raw_os_error() == Some(Errno::EEXIST as i32)
}

fn attach_fresh(
    program: &mut SchedClassifier,
    path: &Path,
    ifindex: u32,
    end: TcAttachType,
    order: impl Fn() -> LinkOrder,
) -> Result<(), Error> {
    let device = device_name(ifindex)?;
    let deadline = Instant::now() + GOING;
    let id = loop {
        let options = TcAttachOptions::TcxOrder(order());
        match program.attach_with_options(&device, end, options) {
            Err(error) if stands_still(&error) && Instant::now() < deadline => {
                thread::sleep(Duration::from_millis(1));
            }
            attached => break attached.map_err(failed(ifindex))?,
        }
    };
    let link = program.take_link(id).map_err(failed(ifindex))?;
    let link = FdLink::try_from(link).map_err(Error::link(ifindex))?;
    link.pin(path).map_err(Error::pin(ifindex)).map(drop)
}

/// Puts `program` at the egress of a device that has another at its ingress, by the same mechanism.
///
/// # Errors
/// As [`attach`].
pub fn attach_beside(
    program: &mut SchedClassifier,
    pins: &Path,
    ifindex: u32,
) -> Result<(), Error> {
    if filter::stands(pins, ifindex) {
        return filter::attach(program, pins, ifindex, TcAttachType::Egress);
    }
    let path = beside_path(pins, ifindex);
    if path.exists() && replace(program, &path).is_ok() {
        return Ok(());
    }
    unpin(&path)?;
    let end = TcAttachType::Egress;
    attach_fresh(program, &path, ifindex, end, LinkOrder::default)
}

/// Takes that away, if it is there, and leaves the other.
pub fn detach_beside(pins: &Path, ifindex: u32) -> Result<(), Error> {
    unpin(&beside_path(pins, ifindex))?;
    filter::clear_egress(pins, ifindex)
}

/// Removes the attachments to a device, if there are any.
pub fn detach(pins: &Path, ifindex: u32) -> Result<(), Error> {
    unpin(&beside_path(pins, ifindex))?;
    unpin(&pin_path(pins, ifindex))?;
    filter::detach(pins, ifindex)
}

fn unpin(path: &Path) -> Result<(), Error> {
    match std::fs::remove_file(path) {
        Err(source) if source.kind() != std::io::ErrorKind::NotFound => Err(Error::Pins {
            path: path.to_owned(),
            source,
        }),
        _ => Ok(()),
    }
}

/// Removes all attachments that `pins` tells of.
pub fn detach_all(pins: &Path) -> Result<(), Error> {
    attached(pins)?
        .into_iter()
        .try_for_each(|ifindex| detach(pins, ifindex))
}

/// The devices with an attachment.
pub fn attached(pins: &Path) -> Result<Vec<u32>, Error> {
    let mut devices = numbered(pins, PREFIX)?;
    devices.append(&mut filter::attached(pins)?);
    Ok(devices.into_iter().collect())
}

/// The numbers of the entries of `pins` that are called `prefix` and a number.
fn numbered(pins: &Path, prefix: &str) -> Result<BTreeSet<u32>, Error> {
    let failed = |source| Error::Pins {
        path: pins.to_owned(),
        source,
    };
    let names = std::fs::read_dir(pins).map_err(failed)?;
    Ok(names
        .filter_map(|entry| number_behind(prefix, entry.ok()?.file_name().to_str()?))
        .collect())
}

fn number_behind(prefix: &str, name: &str) -> Option<u32> {
    name.strip_prefix(prefix)?.parse().ok()
}

/// Whether an attachment still has its device.
pub fn is_alive(pins: &Path, ifindex: u32) -> bool {
    let stands = pin_path(pins, ifindex).exists() || filter::stands(pins, ifindex);
    stands && device_name(ifindex).is_ok()
}

/// Kernel ids of the programs at one end of a device's queue, whoever put them there and how.
///
/// # Errors
/// No such device, or the kernel refuses.
pub fn programs_at(ifindex: u32, end: TcAttachType) -> Result<Vec<u32>, Error> {
    let mut ids = filter::programs_at(ifindex, end)?;
    if let Ok((_, programs)) = SchedClassifier::query_tcx(&device_name(ifindex)?, end) {
        ids.extend(programs.iter().map(|program| program.id()));
    }
    Ok(ids)
}

/// The program of a device.
pub fn program_for(device: &abi::Device) -> &'static str {
    let is_lan = device.role == abi::Role::Lan.into();
    match (is_lan, device.layer3) {
        (true, 0) => "lan",
        (true, _) => "lan_layer3",
        (false, _) => "wan",
    }
}
