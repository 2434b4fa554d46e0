//! Attachments as filters of `clsact`, for kernels without TCX (before Linux 6.6).
//!
//! Ours is the filter of a fixed priority and handle that bears the name of the instance. It needs no process: who
//! comes later finds it there, replaces its program or deletes it. Empty folders among the pins say what a later
//! process cannot see: `filter-N`, that we have a filter on device N; `before-N`, that we have one before the filter of
//! another version; `qdisc-N`, that we made its `clsact`. Each is made before what it tells of, and removed after it.

use std::{
    collections::BTreeSet,
    fs,
    io::{self, ErrorKind},
    os::fd::{AsFd, AsRawFd},
    path::{Path, PathBuf},
};

use aya::programs::{SchedClassifier, TcAttachType};

use super::{
    Rank, device_name, numbered,
    tc::{End, Filter, Place, Tc},
};
use crate::Error;

const FILTER: &str = "filter-";
const BEFORE: &str = "before-";
const QDISC: &str = "qdisc-";
const CLSACT: &str = "clsact";
const INGRESS: &str = "ingress";

/// What our filter is called on every device: the instance's name tells ours from those of others.
fn name_of(pins: &Path) -> String {
    let instance = pins.parent().and_then(Path::file_name).unwrap_or_default();
    format!("anabranch/{}", instance.to_string_lossy())
}

/// Where the instance's programs stand that `pins` tell of.
fn own(pins: &Path) -> Place {
    Place {
        rank: Rank::of(pins),
        is_before: false,
    }
}

fn before(pins: &Path) -> Place {
    Place {
        is_before: true,
        ..own(pins)
    }
}

fn filter_mark(pins: &Path, ifindex: u32, place: Place) -> PathBuf {
    let prefix = match place.is_before {
        false => FILTER,
        true => BEFORE,
    };
    pins.join(format!("{prefix}{ifindex}"))
}

fn qdisc_mark(pins: &Path, ifindex: u32) -> PathBuf {
    pins.join(format!("{QDISC}{ifindex}"))
}

/// Whether a folder among the pins that is called so says something of a device.
pub fn is_mark(name: &str) -> bool {
    let mut prefixes = [FILTER, BEFORE, QDISC].into_iter();
    prefixes.any(|prefix| super::number_behind(prefix, name).is_some())
}

pub fn stands(pins: &Path, ifindex: u32) -> bool {
    let mut places = [own(pins), before(pins)].into_iter();
    places.any(|place| filter_mark(pins, ifindex, place).exists())
}

/// The devices with a filter or a qdisc of ours: who is killed between the two leaves the qdisc alone.
pub fn attached(pins: &Path) -> Result<BTreeSet<u32>, Error> {
    let mut devices = BTreeSet::new();
    for prefix in [FILTER, BEFORE, QDISC] {
        devices.append(&mut numbered(pins, prefix)?);
    }
    Ok(devices)
}

/// Puts `program` in the place of our filter, or makes one. What stands before it goes.
pub fn attach(
    program: &SchedClassifier,
    pins: &Path,
    ifindex: u32,
    end: TcAttachType,
) -> Result<(), Error> {
    let hook = Hook::of(pins, ifindex)?;
    hook.set(program, end.into(), own(pins))?;
    hook.clear(before(pins))
}

/// Puts `program` before our filter of another version, whose pins are `former`. The qdisc is ours from here on.
pub fn attach_before(
    program: &SchedClassifier,
    former: &Path,
    pins: &Path,
    ifindex: u32,
    end: TcAttachType,
) -> Result<(), Error> {
    let hook = Hook::of(pins, ifindex)?;
    if qdisc_mark(former, ifindex).exists() {
        mark(&qdisc_mark(pins, ifindex)).map_err(hook.failed())?;
    }
    hook.set(program, end.into(), before(pins))
}

/// Removes our filters from a device, and the qdisc if we made it and nobody else uses it.
pub fn detach(pins: &Path, ifindex: u32) -> Result<(), Error> {
    if !stands(pins, ifindex) && !qdisc_mark(pins, ifindex).exists() {
        return Ok(());
    }
    if device_name(ifindex).is_err() {
        return remove_marks(pins, ifindex);
    }
    let hook = Hook::of(pins, ifindex)?;
    hook.clear(own(pins))?;
    hook.clear(before(pins))?;
    hook.clear_qdisc()
}

/// Removes our filter from the egress of a device that keeps the one at its ingress.
pub fn clear_egress(pins: &Path, ifindex: u32) -> Result<(), Error> {
    if !stands(pins, ifindex) || device_name(ifindex).is_err() {
        return Ok(());
    }
    let hook = Hook::of(pins, ifindex)?;
    hook.delete_at(End::Egress, own(pins))
        .map_err(hook.failed())
}

/// Those of a device that is gone.
fn remove_marks(pins: &Path, ifindex: u32) -> Result<(), Error> {
    let marks = [
        filter_mark(pins, ifindex, own(pins)),
        filter_mark(pins, ifindex, before(pins)),
        qdisc_mark(pins, ifindex),
    ];
    marks.iter().try_for_each(|mark| {
        unmark(mark).map_err(|source| Error::Pins {
            path: mark.clone(),
            source,
        })
    })
}

/// The queue of a device, as far as the filters of an instance go.
struct Hook<'a> {
    tc: Tc,
    pins: &'a Path,
    ifindex: u32,
    device: String,
    /// Of our filters.
    name: String,
}

impl<'a> Hook<'a> {
    fn of(pins: &'a Path, ifindex: u32) -> Result<Self, Error> {
        let device = device_name(ifindex)?;
        Ok(Hook {
            tc: Tc::connect().map_err(Error::filter(&device))?,
            pins,
            ifindex,
            device,
            name: name_of(pins),
        })
    }

    fn failed(&self) -> impl Fn(io::Error) -> Error {
        Error::filter(&self.device)
    }

    fn filter_at(&self, end: End, place: Place) -> io::Result<Option<Filter>> {
        let filters = self.tc.filters(self.ifindex, end)?;
        Ok(filters.into_iter().find(|filter| filter.is_at(place)))
    }

    fn is_ours(&self, filter: &Filter) -> bool {
        filter.name.as_ref() == Some(&self.name)
    }

    fn set(&self, program: &SchedClassifier, end: End, place: Place) -> Result<(), Error> {
        has_room_for(&self.tc, self.ifindex, &self.device)?;
        make_qdisc(&self.tc, self.pins, self.ifindex).map_err(self.failed())?;
        let found = self.filter_at(end, place).map_err(self.failed())?;
        if let Some(other) = found.filter(|filter| !self.is_ours(filter)) {
            return Err(Error::FilterTaken {
                device: self.device.clone(),
                name: other.name.unwrap_or_default(),
            });
        }
        let program = program.fd().map_err(Error::program("tc"))?.as_fd();
        let (at, fd) = ((end, place), program.as_raw_fd());
        mark(&filter_mark(self.pins, self.ifindex, place))
            .and_then(|()| self.tc.set_filter(self.ifindex, at, &self.name, fd))
            .map_err(self.failed())
    }

    /// Removes our filter from a place, if there is one.
    fn clear(&self, place: Place) -> Result<(), Error> {
        let mark = filter_mark(self.pins, self.ifindex, place);
        if !mark.exists() {
            return Ok(());
        }
        self.delete(place)
            .and_then(|()| unmark(&mark))
            .map_err(self.failed())
    }

    fn delete(&self, place: Place) -> io::Result<()> {
        let mut ends = [End::Ingress, End::Egress].into_iter();
        ends.try_for_each(|end| self.delete_at(end, place))
    }

    fn delete_at(&self, end: End, place: Place) -> io::Result<()> {
        let found = self.filter_at(end, place)?;
        if found.is_some_and(|filter| self.is_ours(&filter)) {
            self.tc.delete_filter(self.ifindex, (end, place))?;
        }
        Ok(())
    }

    fn clear_qdisc(&self) -> Result<(), Error> {
        let mark = qdisc_mark(self.pins, self.ifindex);
        if !mark.exists() {
            return Ok(());
        }
        self.leave_qdisc()
            .and_then(|()| self.delete_unused_qdisc())
            .and_then(|()| unmark(&mark))
            .map_err(self.failed())
    }

    /// To another role of the instance, if one stands there: who goes last takes it away.
    fn leave_qdisc(&self) -> io::Result<()> {
        let Some(instance) = self.pins.parent() else {
            return Ok(());
        };
        for other in fs::read_dir(instance)? {
            let other = other?.path();
            if other != self.pins && stands(&other, self.ifindex) {
                return mark(&qdisc_mark(&other, self.ifindex));
            }
        }
        Ok(())
    }

    fn delete_unused_qdisc(&self) -> io::Result<()> {
        let is_used = !self.tc.filters(self.ifindex, End::Ingress)?.is_empty()
            || !self.tc.filters(self.ifindex, End::Egress)?.is_empty();
        if !is_used && self.tc.qdisc(self.ifindex)?.as_deref() == Some(CLSACT) {
            self.tc.delete_clsact(self.ifindex)?;
        }
        Ok(())
    }
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
