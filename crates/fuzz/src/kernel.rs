//! Maps of any shape by their pins, read and emptied as bytes: the state of a gateway whatever maps it is made of.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;

use anabranch_dataplane::batch::{self, Batch, Cursor};
use anyhow::{Context, Result, bail};
use aya::maps::{MapData, MapType};
use aya::util::nr_cpus;

const BPF_MAP_UPDATE_ELEM: libc::c_long = 2;
const BPF_MAP_DELETE_ELEM: libc::c_long = 3;
const ENTRIES_PER_CALL: usize = 8192;

/// `union bpf_attr` of a single element.
#[repr(C)]
#[derive(Default)]
struct ElementAttr {
    map_fd: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

fn bpf<T>(command: libc::c_long, attr: &mut T) -> io::Result<()> {
    // SAFETY: `attr` has the layout the kernel expects of `command`, and its pointers lead to buffers as long as the
    // map's keys and values, alive until the call returns.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            std::ptr::from_mut(attr),
            size_of::<T>(),
        )
    };
    match result {
        0.. => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A pinned map.
pub struct RawMap {
    data: MapData,
    kind: MapType,
    key: usize,
    /// As user space reads it: of all CPUs where there is one for each.
    value: usize,
    entries: u32,
    keys: Vec<u8>,
    values: Vec<u8>,
}

impl RawMap {
    /// By its pin.
    ///
    /// # Errors
    /// There is none, or the kernel tells nothing of it.
    pub fn open(pin: &Path) -> Result<Self> {
        let open = || -> Result<Self> {
            let data = MapData::from_pin(pin)?;
            let info = data.info()?;
            let kind = info.map_type()?;
            let one = info.value_size() as usize;
            let value = match kind {
                MapType::PerCpuArray | MapType::PerCpuHash | MapType::LruPerCpuHash => {
                    one.next_multiple_of(8) * nr_cpus().map_err(|(_, error)| error)?
                }
                _ => one,
            };
            Ok(RawMap {
                kind,
                key: info.key_size() as usize,
                value,
                entries: info.max_entries(),
                data,
                keys: Vec::new(),
                values: Vec::new(),
            })
        };
        open().with_context(|| format!("map {}", pin.display()))
    }

    fn fd(&self) -> u32 {
        self.data.fd().as_fd().as_raw_fd() as u32
    }

    /// Meets every entry.
    ///
    /// # Errors
    /// The kernel refuses the read.
    pub fn for_each(&mut self, mut meet: impl FnMut(&[u8], &[u8])) -> Result<()> {
        let room = ENTRIES_PER_CALL.min(self.entries as usize);
        self.keys.resize(room * self.key, 0);
        self.values.resize(room * self.value, 0);
        let mut cursor = Cursor::default();
        loop {
            let to = (self.keys.as_mut_ptr(), self.values.as_mut_ptr());
            // SAFETY: both have room for so many, by the sizes the kernel told.
            let batch = unsafe { batch::lookup(self.data.fd(), &mut cursor, to, room) };
            let batch = batch.context("reading a map")?;
            let (Batch::More(count) | Batch::Last(count)) = batch else {
                bail!("a bucket has more than {room} entries");
            };
            let keys = self.keys.chunks_exact(self.key);
            let entries = keys.zip(self.values.chunks_exact(self.value));
            entries
                .take(count)
                .for_each(|(key, value)| meet(key, value));
            if batch == Batch::Last(count) {
                return Ok(());
            }
        }
    }

    /// Forgets every entry; an array's become zero.
    ///
    /// # Errors
    /// The kernel refuses the change.
    pub fn clear(&mut self) -> Result<()> {
        match self.kind {
            MapType::Hash | MapType::LruHash | MapType::PerCpuHash | MapType::LruPerCpuHash => {
                self.delete_all()
            }
            MapType::Array | MapType::PerCpuArray => self.zero_all(),
            _ => Ok(()),
        }
    }

    fn delete_all(&mut self) -> Result<()> {
        let mut keys = Vec::new();
        self.for_each(|key, _| keys.push(key.to_vec()))?;
        for key in keys {
            let mut attr = ElementAttr {
                map_fd: self.fd(),
                key: key.as_ptr() as u64,
                ..ElementAttr::default()
            };
            match bpf(BPF_MAP_DELETE_ELEM, &mut attr) {
                Err(error) if error.raw_os_error() != Some(libc::ENOENT) => {
                    return Err(error.into());
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn zero_all(&mut self) -> Result<()> {
        let zeros = vec![0u8; self.value];
        for index in 0..self.entries {
            let mut attr = ElementAttr {
                map_fd: self.fd(),
                key: std::ptr::from_ref(&index) as u64,
                value: zeros.as_ptr() as u64,
                ..ElementAttr::default()
            };
            bpf(BPF_MAP_UPDATE_ELEM, &mut attr).context("zeroing a map")?;
        }
        Ok(())
    }
}
