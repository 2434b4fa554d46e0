//! Attachments as filters of `clsact`, for kernels without TCX (before Linux 6.6).
//!
//! Ours is the filter of a fixed priority and handle that bears the name of the instance. It needs no process: who
//! comes later finds it there, replaces its program or deletes it. Two empty folders among the pins say what a later
//! process cannot see: `filter-N`, that we have a filter on device N and at which end; `qdisc-N`, that we made its
//! `clsact`. Each is made before what it tells of, and removed after it.

use std::{
    collections::BTreeSet,
    fs,
    io::{self, ErrorKind},
    os::fd::{AsFd, AsRawFd},
    path::{Path, PathBuf},
};

use aya::programs::{SchedClassifier, TcAttachType};
use nix::net::if_::if_indextoname;

use super::{
    device_name, numbered,
    tc::{End, Filter, Tc},
};
use crate::Error;

const FILTER: &str = "filter-";
const QDISC: &str = "qdisc-";
const CLSACT: &str = "clsact";
const INGRESS: &str = "ingress";

/// What our filter is called on every device: the instance's name tells ours from those of others.
fn name_of(pins: &Path) -> String {
    let instance = pins.parent().and_then(Path::file_name).unwrap_or_default();
    format!("anabranch/{}", instance.to_string_lossy())
}

fn filter_mark(pins: &Path, ifindex: u32) -> PathBuf {
    pins.join(format!("{FILTER}{ifindex}"))
}

fn qdisc_mark(pins: &Path, ifindex: u32) -> PathBuf {
    pins.join(format!("{QDISC}{ifindex}"))
}

pub fn stands(pins: &Path, ifindex: u32) -> bool {
    filter_mark(pins, ifindex).exists()
}

/// The devices with a filter or a qdisc of ours: who is killed between the two leaves the qdisc alone.
pub fn attached(pins: &Path) -> Result<BTreeSet<u32>, Error> {
    let mut devices = numbered(pins, FILTER)?;
    devices.append(&mut numbered(pins, QDISC)?);
    Ok(devices)
}

/// Puts `program` in the place of our filter, or makes one.
pub fn attach(
    program: &SchedClassifier,
    pins: &Path,
    ifindex: u32,
    end: TcAttachType,
) -> Result<(), Error> {
    let device = device_name(ifindex)?;
    let failed = Error::filter(&device);
    let tc = Tc::connect().map_err(&failed)?;
    has_room_for(&tc, ifindex, &device)?;
    make_qdisc(&tc, pins, ifindex).map_err(&failed)?;
    let name = name_of(pins);
    let end = End::from(end);
    if let Some(other) = tc
        .filters(ifindex, end)
        .map_err(&failed)?
        .into_iter()
        .find(|filter| filter.is_at_our_place() && filter.name.as_ref() != Some(&name))
    {
        return Err(Error::FilterTaken {
            device: device.clone(),
            name: other.name.unwrap_or_default(),
        });
    }
    let program = program.fd().map_err(Error::program("tc"))?.as_fd();
    mark(&filter_mark(pins, ifindex))
        .and_then(|()| tc.set_filter(ifindex, end, &name, program.as_raw_fd()))
        .map_err(&failed)
}

/// Removes our filter from a device, and the qdisc if we made it and nobody else uses it.
pub fn detach(pins: &Path, ifindex: u32) -> Result<(), Error> {
    let marks = [filter_mark(pins, ifindex), qdisc_mark(pins, ifindex)];
    if !marks.iter().any(|mark| mark.exists()) {
        return Ok(());
    }
    if let Ok(device) = if_indextoname(ifindex) {
        let made_qdisc = marks[1].exists();
        delete(&name_of(pins), ifindex, made_qdisc)
            .map_err(Error::filter(&device.to_string_lossy()))?;
    }
    marks.iter().try_for_each(|mark| {
        unmark(mark).map_err(|source| Error::Pins {
            path: mark.clone(),
            source,
        })
    })
}

fn delete(name: &str, ifindex: u32, made_qdisc: bool) -> io::Result<()> {
    let tc = Tc::connect()?;
    for end in [End::Ingress, End::Egress] {
        let is_ours =
            |filter: &Filter| filter.is_at_our_place() && filter.name.as_deref() == Some(name);
        if tc.filters(ifindex, end)?.iter().any(is_ours) {
            tc.delete_filter(ifindex, end)?;
        }
    }
    let is_used = !tc.filters(ifindex, End::Ingress)?.is_empty()
        || !tc.filters(ifindex, End::Egress)?.is_empty();
    if made_qdisc && !is_used && tc.qdisc(ifindex)?.as_deref() == Some(CLSACT) {
        tc.delete_clsact(ifindex)?;
    }
    Ok(())
}

/// Whether the device's hook is free for `clsact`, or has it: an `ingress` qdisc stands in the same place.
///
/// # Errors
/// It is not, there is no such device, or the kernel refuses.
pub fn has_room(ifindex: u32) -> Result<(), Error> {
    let device = device_name(ifindex)?;
    if super::has_tcx() {
        return Ok(());
    }
    let tc = Tc::connect().map_err(Error::filter(&device))?;
    has_room_for(&tc, ifindex, &device)
}

fn has_room_for(tc: &Tc, ifindex: u32, device: &str) -> Result<(), Error> {
    match tc.qdisc(ifindex).map_err(Error::filter(device))?.as_deref() {
        Some(INGRESS) => Err(Error::IngressQdisc {
            device: device.to_owned(),
        }),
        _ => Ok(()),
    }
}

fn make_qdisc(tc: &Tc, pins: &Path, ifindex: u32) -> io::Result<()> {
    if tc.qdisc(ifindex)?.is_some() {
        return Ok(());
    }
    mark(&qdisc_mark(pins, ifindex))?;
    tc.add_clsact(ifindex)
}

pub fn programs_at(ifindex: u32, end: TcAttachType) -> Result<Vec<u32>, Error> {
    let device = device_name(ifindex)?;
    let failed = Error::filter(&device);
    let tc = Tc::connect().map_err(&failed)?;
    let filters = tc.filters(ifindex, End::from(end)).map_err(&failed)?;
    Ok(filters.iter().filter_map(|filter| filter.program).collect())
}

fn mark(path: &Path) -> io::Result<()> {
    match fs::create_dir(path) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

fn unmark(path: &Path) -> io::Result<()> {
    match fs::remove_dir(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
