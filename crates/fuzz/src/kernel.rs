//! Maps of any shape by their pins, read and emptied as bytes: the state of a gateway whatever maps it is made of.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;

use anyhow::{Context, Result};
use aya::maps::{MapData, MapType};
use aya::util::nr_cpus;

const BPF_MAP_UPDATE_ELEM: libc::c_long = 2;
const BPF_MAP_DELETE_ELEM: libc::c_long = 3;
const BPF_MAP_LOOKUP_BATCH: libc::c_long = 24;
const ENTRIES_PER_CALL: usize = 8192;

/// `batch` of `union bpf_attr`.
#[repr(C)]
#[derive(Default)]
struct BatchAttr {
    in_batch: u64,
    out_batch: u64,
    keys: u64,
    values: u64,
    count: u32,
    map_fd: u32,
    elem_flags: u64,
    flags: u64,
}

/// That of a single element.
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
    pub fn for_each(&mut self, mut meet: impl FnMut(&[u8], &[u8])) -> Result<()> {
        let room = ENTRIES_PER_CALL.min(self.entries as usize);
        self.keys.resize(room * self.key, 0);
        self.values.resize(room * self.value, 0);
        let mut cursor: Option<u64> = None;
        loop {
            let mut next = 0u64;
            let mut attr = BatchAttr {
                in_batch: cursor
                    .as_ref()
                    .map_or(0, |cursor| std::ptr::from_ref(cursor) as u64),
                out_batch: std::ptr::from_mut(&mut next) as u64,
                keys: self.keys.as_mut_ptr() as u64,
                values: self.values.as_mut_ptr() as u64,
                count: room as u32,
                map_fd: self.fd(),
                ..BatchAttr::default()
            };
            let result = bpf(BPF_MAP_LOOKUP_BATCH, &mut attr);
            let keys = self.keys.chunks_exact(self.key);
            let entries = keys.zip(self.values.chunks_exact(self.value));
            entries
                .take(attr.count as usize)
                .for_each(|(key, value)| meet(key, value));
            match result {
                Ok(()) => cursor = Some(next),
                Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(()),
                Err(error) => return Err(error).context("reading a map"),
            }
        }
    }

    /// Forgets every entry; an array's become zero.
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
