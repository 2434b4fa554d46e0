//! Attachments to devices, pinned so that they outlive this process.

use std::path::{Path, PathBuf};

use aya::programs::{
    LinkOrder, ProgramError, SchedClassifier, TcAttachType,
    links::{FdLink, PinnedLink},
    tc::{SchedClassifierLink, TcAttachOptions},
};
use nix::net::if_::if_indextoname;

use crate::Error;

const PREFIX: &str = "attach-";

fn pin_path(pins: &Path, ifindex: u32) -> PathBuf {
    pins.join(format!("{PREFIX}{ifindex}"))
}

/// Puts `program` at one end of a device's queue: in the place of what is pinned there, or fresh.
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
        detach(pins, ifindex)?;
    }
    attach_fresh(program, &path, ifindex, end)
}

/// Fails if the pinned link lost its device.
fn replace(program: &mut SchedClassifier, path: &Path) -> Result<(), ProgramError> {
    let pinned = PinnedLink::from_pin(path)
        .map_err(|error| ProgramError::IOError(std::io::Error::other(error)))?;
    let link = SchedClassifierLink::try_from(FdLink::from(pinned))
        .map_err(|error| ProgramError::IOError(std::io::Error::other(error)))?;
    let id = program.attach_to_link(link)?;
    program.take_link(id).map(drop)
}

fn attach_fresh(
    program: &mut SchedClassifier,
    path: &Path,
    ifindex: u32,
    end: TcAttachType,
) -> Result<(), Error> {
    let name = if_indextoname(ifindex).map_err(|_| Error::NoDevice { ifindex })?;
    let options = TcAttachOptions::TcxOrder(LinkOrder::default());
    let failed = |source| Error::Attach {
        ifindex,
        source: Box::new(source),
    };
    let id = program
        .attach_with_options(&name.to_string_lossy(), end, options)
        .map_err(failed)?;
    let link = program.take_link(id).map_err(failed)?;
    let link = FdLink::try_from(link).map_err(Error::link(ifindex))?;
    link.pin(path).map_err(Error::pin(ifindex)).map(drop)
}

/// Removes the attachment to a device, if there is one.
pub fn detach(pins: &Path, ifindex: u32) -> Result<(), Error> {
    let path = pin_path(pins, ifindex);
    match std::fs::remove_file(&path) {
        Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::Pins { path, source })
        }
        _ => Ok(()),
    }
}

/// The devices with a pinned attachment.
pub fn attached(pins: &Path) -> Result<Vec<u32>, Error> {
    let failed = |source| Error::Pins {
        path: pins.to_owned(),
        source,
    };
    let names = std::fs::read_dir(pins).map_err(failed)?;
    Ok(names
        .filter_map(|entry| {
            entry
                .ok()?
                .file_name()
                .to_str()?
                .strip_prefix(PREFIX)?
                .parse()
                .ok()
        })
        .collect())
}

/// Whether a pinned attachment still has its device.
pub fn is_alive(pins: &Path, ifindex: u32) -> bool {
    pin_path(pins, ifindex).exists() && if_indextoname(ifindex).is_ok()
}
