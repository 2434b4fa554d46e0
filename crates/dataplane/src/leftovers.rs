//! What stands in an instance's folder under one of its names and cannot be used: a folder where a map should be, a map of another
//! shape, somebody else's link. It is set aside, and the log names it, before anything is adopted.
//!
//! The kernel opens whatever is pinned, and what a map is only shows when a program that uses it is refused. So each pin is opened first,
//! and compared with what the object declares. What is set aside keeps its pin, under another name of the same folder, and goes with
//! the folder when the instance stops.

use std::{
    collections::BTreeMap,
    ffi::CString,
    fmt::{self, Display, Formatter},
    fs,
    io::{self, ErrorKind},
    os::{
        fd::{AsRawFd, FromRawFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
};

use aya::{EbpfError, programs::TcAttachType};
use aya_obj::{Object, generated::bpf_map_type, maps::PinningType};

use crate::{
    Error,
    attach::{self, Attachment},
    batch::bpf,
};

/// What an instance pins, beside what its object declares.
pub struct Layout {
    /// Maps whose sizes are configured: those of an earlier run go on as they are.
    pub sized: &'static [&'static str],
    /// Maps that count one another's entries: they are adopted together, or not at all.
    pub together: &'static [&'static str],
    /// Programs that are pinned for a moment.
    pub sweepers: &'static [&'static str],
    /// Where the program of a device is attached.
    pub end: TcAttachType,
}

const BPF_OBJ_GET: libc::c_long = 7;
/// `BPF_PROG_TYPE_RAW_TRACEPOINT`, of sweepers.
const RAW_TRACEPOINT: u32 = 17;
/// `BPF_TCX_INGRESS` and `BPF_TCX_EGRESS`.
const TCX_INGRESS: u32 = 46;
const TCX_EGRESS: u32 = 47;

/// What is set aside is called so. A BPF file system allows no dots in names.
const ASIDE: &str = "-set-aside";
/// So many of one name are kept.
const ASIDE_MAX: usize = 8;

/// Sets aside whatever in `folder` is not what `object` and `layout` want under its name, and says so.
///
/// # Errors
/// The folder cannot be read, or something cannot be moved.
pub fn set_aside(folder: &Path, object: &[u8], layout: &Layout) -> Result<(), Error> {
    let names = names_in(folder)?;
    if names.is_empty() {
        return Ok(());
    }
    let is_pinned = |map: &aya_obj::Map| map.pinning() == PinningType::ByName;
    let shapes = declared(object, layout.sized, is_pinned)?;
    let mut lost: Vec<&str> = Vec::new();
    for name in &names {
        let wanted = Wanted::of(name, &shapes, layout);
        let Some((wanted, misfit)) = wanted.and_then(|wanted| {
            let misfit = wanted.misfit(&folder.join(name))?;
            Some((wanted, misfit))
        }) else {
            continue;
        };
        move_aside(&folder.join(name), &misfit, &wanted.to_string())?;
        lost.extend(layout.together.iter().find(|map| *map == name));
    }
    // Programs that stand have had all maps: one that is missing was removed, and is not of a start that was cut short.
    if !attach::attached(folder)?.is_empty() {
        let missing = shapes.keys().filter(|name| !folder.join(name).exists());
        for name in missing.filter(|name| !names.contains(*name)) {
            let path = folder.join(name);
            tracing::warn!("{} is missing: the map is made anew", path.display());
            lost.extend(layout.together.iter().find(|map| *map == name));
        }
    }
    forget_together(folder, layout, &lost)
}

/// Maps that count what is no more, or the other way round, are made anew with those that are lost.
fn forget_together(folder: &Path, layout: &Layout, lost: &[&str]) -> Result<(), Error> {
    if lost.is_empty() {
        return Ok(());
    }
    for name in layout.together {
        let path = folder.join(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(at(&path)(error)),
            _ => {}
        }
    }
    tracing::warn!(
        "{}: without `{}` of the earlier run its flows cannot be taken over; they are forgotten",
        folder.display(),
        lost.join("`, `")
    );
    Ok(())
}

/// The pinned maps of `object` that go on as a former version left them in `folder`: all but those that have `changed`. None if what
/// is there cannot be taken over, as the log says: one of these maps, or one that `object` reads as `former_NAME`, is not what it
/// should be.
///
/// # Errors
/// The object cannot be read.
pub fn unchanged(
    folder: &Path,
    object: &[u8],
    layout: &Layout,
    changed: &[&str],
) -> Result<Option<Vec<String>>, Error> {
    let is_pinned = |map: &aya_obj::Map| map.pinning() == PinningType::ByName;
    let mut same = declared(object, layout.sized, is_pinned)?;
    same.retain(|name, _| !changed.contains(&name.as_str()));
    let others = declared(object, &[], |map| !is_pinned(map))?;
    let read = others.into_iter().filter_map(|(name, shape)| {
        let any_size = Shape {
            entries: None,
            ..shape
        };
        Some((name.strip_prefix("former_")?.to_owned(), any_size))
    });
    let is_needed = |name: &str| changed.contains(&name) || layout.together.contains(&name);
    let wanted = same.clone().into_iter().chain(read);
    for (name, shape) in wanted {
        let path = folder.join(&name);
        let misfit = match path.exists() {
            true => Wanted::Map(shape).misfit(&path),
            false => is_needed(&name).then(|| "missing".to_owned()),
        };
        if let Some(misfit) = misfit {
            tracing::warn!(
                "{} is {misfit}: what the former version left cannot be taken over; it is forgotten",
                path.display()
            );
            return Ok(None);
        }
    }
    Ok(Some(same.into_keys().collect()))
}

/// Removes what stands under the names of attachments and is none: for a folder that is about to go.
pub fn clear_attachments(folder: &Path) -> Result<(), Error> {
    for name in names_in(folder)? {
        let attachment = Attachment::named(&name, TcAttachType::Ingress);
        let path = folder.join(&name);
        let is_usable = match attachment {
            None => true,
            Some(Attachment::Mark) => Wanted::Mark.misfit(&path).is_none(),
            Some(Attachment::Link { .. }) => !is_folder(&path),
        };
        if !is_usable {
            remove(&path)?;
        }
    }
    Ok(())
}

/// Moves `path`, which is `misfit` where `wanted` is to be, to a name beside it, and says so.
///
/// # Errors
/// It cannot be moved.
pub fn move_aside(path: &Path, misfit: &str, wanted: &str) -> Result<(), Error> {
    let shown = path.display();
    let free = (0..ASIDE_MAX)
        .map(|number| aside(path, number))
        .find(|aside| fs::symlink_metadata(aside).is_err());
    let Some(aside) = free else {
        remove(path)?;
        tracing::warn!(
            "{shown} was {misfit}, in the place of {wanted}: removed, as {ASIDE_MAX} such were set aside before"
        );
        return Ok(());
    };
    fs::rename(path, &aside).map_err(at(path))?;
    tracing::warn!(
        "{shown} was {misfit}, in the place of {wanted}: set aside as {}",
        aside.display()
    );
    Ok(())
}

fn aside(path: &Path, number: usize) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ASIDE);
    if number > 0 {
        name.push(format!("-{number}"));
    }
    name.into()
}

fn remove(path: &Path) -> Result<(), Error> {
    let removed = match is_folder(path) {
        true => fs::remove_dir_all(path),
        false => fs::remove_file(path),
    };
    removed.map_err(at(path))
}

fn is_folder(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.is_dir())
}

fn names_in(folder: &Path) -> Result<Vec<String>, Error> {
    let entries = fs::read_dir(folder).map_err(at(folder))?;
    let names = entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    names.collect::<io::Result<_>>().map_err(at(folder))
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::Pins { path, source }
}

/// What a map is, as the kernel tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Shape {
    kind: u32,
    key_bytes: u32,
    value_bytes: u32,
    flags: u32,
    /// None: as many as there are.
    entries: Option<u32>,
}

impl Shape {
    /// None of what is no map.
    fn of(pin: &Pin, counts_entries: bool) -> Option<Self> {
        Some(Shape {
            kind: pin.number("map_type")?,
            key_bytes: pin.number("key_size")?,
            value_bytes: pin.number("value_size")?,
            flags: pin.number("map_flags")?,
            entries: match counts_entries {
                true => Some(pin.number("max_entries")?),
                false => None,
            },
        })
    }
}

impl Display for Shape {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let kind = bpf_map_type::try_from(self.kind).map(|kind| format!("{kind:?}"));
        let kind = kind.unwrap_or_default().to_lowercase().replace('_', " ");
        let kind = kind.strip_prefix("bpf map type ").unwrap_or("unknown");
        let (key, value) = (self.key_bytes, self.value_bytes);
        write!(f, "map ({kind}, {key}-byte keys, {value}-byte values, ")?;
        if let Some(entries) = self.entries {
            write!(f, "{entries} entries, ")?;
        }
        write!(f, "flags {:#x})", self.flags)
    }
}

/// The maps of `object`, those in `sized` without their sizes.
fn declared(
    object: &[u8],
    sized: &[&str],
    is_meant: impl Fn(&aya_obj::Map) -> bool,
) -> Result<BTreeMap<String, Shape>, EbpfError> {
    let object = Object::parse(object)?;
    let maps = object.maps.iter().filter(|(_, map)| is_meant(map));
    let shapes = maps.map(|(name, map)| {
        let is_sized = sized.contains(&name.as_str());
        let shape = Shape {
            kind: map.map_type(),
            key_bytes: map.key_size(),
            value_bytes: map.value_size(),
            flags: map.map_flags(),
            entries: (!is_sized).then(|| map.max_entries()),
        };
        (name.clone(), shape)
    });
    Ok(shapes.collect())
}

/// What should stand under a name.
enum Wanted {
    Map(Shape),
    Sweeper,
    /// A link to this device, whose end is that of a `bpf_attach_type`.
    Link {
        ifindex: u32,
        end: u32,
    },
    /// An empty folder.
    Mark,
}

impl Wanted {
    /// None: nothing of ours.
    fn of(name: &str, shapes: &BTreeMap<String, Shape>, layout: &Layout) -> Option<Self> {
        if let Some(shape) = shapes.get(name) {
            return Some(Wanted::Map(shape.clone()));
        }
        if layout.sweepers.contains(&name) {
            return Some(Wanted::Sweeper);
        }
        Some(match Attachment::named(name, layout.end)? {
            Attachment::Mark => Wanted::Mark,
            Attachment::Link { ifindex, end } => Wanted::Link {
                ifindex,
                end: match end {
                    TcAttachType::Egress => TCX_EGRESS,
                    _ => TCX_INGRESS,
                },
            },
        })
    }

    /// What is at `path` instead, in words. None if it is what is wanted, or if nobody can tell: whoever uses it says why.
    fn misfit(&self, path: &Path) -> Option<String> {
        let found = fs::symlink_metadata(path).ok()?;
        if found.is_symlink() {
            return Some("a symbolic link".to_owned());
        }
        if found.is_dir() {
            return match self {
                Wanted::Mark if is_empty(path) => None,
                Wanted::Mark => Some("a folder that is not empty".to_owned()),
                _ => Some("a folder".to_owned()),
            };
        }
        let pin = Pin::open(path).ok()?;
        (!self.is(&pin)).then(|| match (self, pin.frozen()) {
            (Wanted::Map(_), true) => format!("{pin}, frozen"),
            _ => pin.to_string(),
        })
    }

    fn is(&self, pin: &Pin) -> bool {
        match self {
            Wanted::Map(shape) => {
                let found = Shape::of(pin, shape.entries.is_some());
                found.as_ref() == Some(shape) && !pin.frozen()
            }
            Wanted::Sweeper => pin.number("prog_type") == Some(RAW_TRACEPOINT),
            // The kernel forgets the device of a link that has lost it.
            Wanted::Link { ifindex, end } => {
                pin.is_tcx()
                    && [Some(0), Some(*ifindex)].contains(&pin.number("ifindex"))
                    && pin.number("attach_type") == Some(*end)
            }
            Wanted::Mark => false,
        }
    }
}

fn is_empty(folder: &Path) -> bool {
    fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_none())
}

impl Display for Wanted {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Wanted::Map(shape) => write!(f, "a {shape}"),
            Wanted::Sweeper => write!(f, "a program that walks over flows"),
            Wanted::Link { ifindex, .. } => write!(f, "the attachment to device {ifindex}"),
            Wanted::Mark => write!(f, "an empty folder that stands for an attachment"),
        }
    }
}

/// What the kernel tells of a pinned object: the fields of its proc_pid_fdinfo(5).
struct Pin(BTreeMap<String, String>);

impl Pin {
    fn open(path: &Path) -> io::Result<Self> {
        let object = get_object(path)?;
        let text = fs::read_to_string(format!("/proc/self/fdinfo/{}", object.as_raw_fd()))?;
        let fields = text.lines().filter_map(|line| line.split_once(":\t"));
        Ok(Pin(fields
            .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
            .collect()))
    }

    /// The first word of a field.
    fn number(&self, field: &str) -> Option<u32> {
        let word = self.0.get(field)?.split_whitespace().next()?;
        match word.strip_prefix("0x") {
            Some(digits) => u32::from_str_radix(digits, 16).ok(),
            None => word.parse().ok(),
        }
    }

    fn frozen(&self) -> bool {
        self.number("frozen") == Some(1)
    }

    fn is_tcx(&self) -> bool {
        self.0.get("link_type").is_some_and(|kind| kind == "tcx")
    }
}

impl Display for Pin {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if let Some(shape) = Shape::of(self, true) {
            return write!(f, "a {shape}");
        }
        if let Some(kind) = self.0.get("link_type") {
            return write!(f, "a {kind} link to something else");
        }
        match self.number("prog_type") {
            Some(kind) => write!(f, "a program of type {kind}"),
            None => write!(f, "something else"),
        }
    }
}

/// The first fields of `union bpf_attr` for objects.
#[repr(C)]
struct ObjectAttr {
    path: u64,
    fd: u32,
    flags: u32,
}

fn get_object(path: &Path) -> io::Result<OwnedFd> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let mut attr = ObjectAttr {
        path: path.as_ptr() as u64,
        fd: 0,
        flags: 0,
    };
    // SAFETY: `attr` has the layout of the kernel's attributes for objects, and its path is alive until the call returns.
    let fd = unsafe { bpf(BPF_OBJ_GET, &mut attr) }?;
    // SAFETY: the kernel has just made it for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
