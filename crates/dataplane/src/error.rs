//! What can go wrong between user space and the programs.

use std::{
    io, iter,
    net::IpAddr,
    path::{Path, PathBuf},
};

use anabranch_policy::abi::NEXT_HOPS_MAX;
use aya::{
    EbpfError,
    maps::MapError,
    pin::PinError,
    programs::{ProgramError, links::LinkError},
};

/// Every failure names the step; the source names the cause.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum Error {
    #[error(
        "cannot mount the BPF file system on {path}: {source}; is this root, with CAP_SYS_ADMIN?"
    )]
    BpfFileSystem { path: PathBuf, source: io::Error },
    #[error("{path}: {source}")]
    Pins { path: PathBuf, source: io::Error },
    #[error(
        "{path} was made by user {owner}, who could change it; remove it (rm -r {path}), then start again"
    )]
    ForeignPins { path: PathBuf, owner: u32 },
    #[error("cannot load the program: {source}; it needs Linux 6.1, CAP_BPF and CAP_NET_ADMIN")]
    Load { source: Box<EbpfError> },
    #[error(
        "out of file descriptors: raise the limit of open files (`LimitNOFILE=` of the unit, `ulimit -n` of the shell) to 1024 or more"
    )]
    Descriptors,
    #[error("program `{program}` is refused by the kernel: {source}")]
    Program {
        program: &'static str,
        source: Box<ProgramError>,
    },
    #[error("cannot attach to device {ifindex}: {source}")]
    Attach {
        ifindex: u32,
        source: Box<ProgramError>,
    },
    #[error("cannot keep the attachment to device {ifindex}: {reason}")]
    AttachPin { ifindex: u32, reason: String },
    #[error("cannot set the filter of device {device}: {source}")]
    Filter { device: String, source: io::Error },
    #[error(
        "device {device} has an `ingress` qdisc, where this kernel would need `clsact`: remove it with \
         `tc qdisc del dev {device} ingress`, or use Linux 6.6 or newer"
    )]
    IngressQdisc { device: String },
    #[error(
        "device {device} has a filter `{name}` of somebody else at a priority from 168 to 171, handle 0xab, which are Anabranch's: \
         give that one another priority"
    )]
    FilterTaken { device: String, name: String },
    #[error("map `{map}`: {source}")]
    Map {
        map: &'static str,
        source: Box<MapError>,
    },
    #[error("the loaded object has no map or program `{name}`")]
    Missing { name: &'static str },
    #[error("cannot pin a map at {path}: {source}")]
    Repin {
        path: PathBuf,
        source: Box<PinError>,
    },
    #[error("no device has index {ifindex}")]
    NoDevice { ifindex: u32 },
    #[error(
        "routes lead by more than {} next hops: there is room for no more",
        NEXT_HOPS_MAX - 1
    )]
    NextHops,
    #[error("cannot read map `{map}` in batches: {source}")]
    Batch {
        map: &'static str,
        source: io::Error,
    },
    #[error("cannot open a raw socket for RSTs towards the LAN: {0}; it needs CAP_NET_RAW")]
    RawSocket(io::Error),
    #[error("{from} and {to} are of two address families: write both in one")]
    MixedFamilies { from: IpAddr, to: IpAddr },
    #[error("explain answered with {0} bytes")]
    ShortExplanation(usize),
}

impl Error {
    pub(crate) fn map(map: &'static str) -> impl FnOnce(MapError) -> Error {
        move |source| Error::Map {
            map,
            source: Box::new(source),
        }
    }

    /// A map has no room for one more entry.
    pub fn is_full(&self) -> bool {
        let code = self.map_code();
        let is_full = code.is_some_and(|code| [libc::ENOSPC, libc::E2BIG].contains(&code));
        is_full || matches!(self, Error::NextHops)
    }

    /// Why the kernel refuses to change a map, if it does.
    pub(crate) fn map_code(&self) -> Option<i32> {
        let Error::Map { source, .. } = self else {
            return None;
        };
        match &**source {
            MapError::SyscallError(refused) => refused.io_error.raw_os_error(),
            _ => None,
        }
    }

    pub(crate) fn filter(device: &str) -> impl Fn(io::Error) -> Error {
        move |source| Error::Filter {
            device: device.to_owned(),
            source,
        }
    }

    pub(crate) fn program(program: &'static str) -> impl FnOnce(ProgramError) -> Error {
        move |source| Error::Program {
            program,
            source: Box::new(source),
        }
    }

    pub(crate) fn pin(ifindex: u32) -> impl FnOnce(PinError) -> Error {
        move |source| Error::AttachPin {
            ifindex,
            reason: source.to_string(),
        }
    }

    pub(crate) fn repin(path: &Path) -> impl FnOnce(PinError) -> Error {
        move |source| Error::Repin {
            path: path.to_owned(),
            source: Box::new(source),
        }
    }

    pub(crate) fn link(ifindex: u32) -> impl FnOnce(LinkError) -> Error {
        move |source| Error::AttachPin {
            ifindex,
            reason: source.to_string(),
        }
    }
}

impl From<EbpfError> for Error {
    fn from(source: EbpfError) -> Self {
        match has_no_descriptors(&source) {
            true => Error::Descriptors,
            false => Error::Load {
                source: Box::new(source),
            },
        }
    }
}

/// Every map and program has one.
fn has_no_descriptors(error: &(dyn std::error::Error + 'static)) -> bool {
    let full = [libc::EMFILE, libc::ENFILE].map(Some);
    let mut causes = iter::successors(Some(error), |error| error.source());
    causes.any(|cause| {
        let code = cause.downcast_ref::<io::Error>();
        full.contains(&code.and_then(io::Error::raw_os_error))
    })
}

/// The result of a removal from a map: a key that was not there is no error.
pub fn absent(removed: Result<(), MapError>) -> Result<(), MapError> {
    match removed {
        Err(MapError::KeyNotFound) => Ok(()),
        Err(MapError::SyscallError(error))
            if error.io_error.raw_os_error() == Some(libc::ENOENT) =>
        {
            Ok(())
        }
        removed => removed,
    }
}
