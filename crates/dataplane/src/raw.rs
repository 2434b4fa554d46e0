//! Maps of any shape by their pins, read and emptied as bytes: the state of a gateway whatever maps it is made of. For tests, which
//! use loaded programs more than once.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;

use aya::maps::{MapData, MapType};
use aya::util::nr_cpus;

use crate::batch::{self, Batch, Cursor, bpf};

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
    pub fn open(pin: &Path) -> io::Result<Self> {
        let open = || -> io::Result<Self> {
            let data = MapData::from_pin(pin).map_err(io::Error::other)?;
            let info = data.info().map_err(io::Error::other)?;
            let kind = info.map_type().map_err(io::Error::other)?;
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
        open().map_err(|error| io::Error::other(format!("map {}: {error}", pin.display())))
    }

    fn fd(&self) -> u32 {
        self.data.fd().as_fd().as_raw_fd() as u32
    }

    fn is_hash(&self) -> bool {
        use MapType::{Hash, LruHash, LruPerCpuHash, PerCpuHash};
        matches!(self.kind, Hash | LruHash | PerCpuHash | LruPerCpuHash)
    }

    fn is_array(&self) -> bool {
        matches!(self.kind, MapType::Array | MapType::PerCpuArray)
    }

    /// Meets every entry of an array or a hash map.
    ///
    /// # Errors
    /// The kernel refuses the read.
    pub fn for_each(&mut self, mut meet: impl FnMut(&[u8], &[u8])) -> io::Result<()> {
        if !self.is_hash() && !self.is_array() {
            return Ok(());
        }
        let room = ENTRIES_PER_CALL.min(self.entries as usize);
        self.keys.resize(room * self.key, 0);
        self.values.resize(room * self.value, 0);
        let mut cursor = Cursor::default();
        loop {
            let to = (self.keys.as_mut_ptr(), self.values.as_mut_ptr());
            // SAFETY: both have room for so many, by the sizes the kernel told.
            let batch = unsafe { batch::lookup(self.data.fd(), &mut cursor, to, room) }?;
            let (Batch::More(count) | Batch::Last(count)) = batch else {
                let full = format!("a bucket has more than {room} entries");
                return Err(io::Error::other(full));
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

    /// Forgets every entry; an array's become zero. Maps that are neither array nor hash stay as they are.
    ///
    /// # Errors
    /// The kernel refuses the change.
    pub fn clear(&mut self) -> io::Result<()> {
        if self.is_hash() {
            return self.delete_all();
        }
        if self.is_array() {
            return self.zero_all();
        }
        Ok(())
    }

    fn delete_all(&mut self) -> io::Result<()> {
        let mut keys = Vec::new();
        self.for_each(|key, _| keys.push(key.to_vec()))?;
        for key in keys {
            let mut attr = ElementAttr {
                map_fd: self.fd(),
                key: key.as_ptr() as u64,
                ..ElementAttr::default()
            };
            // SAFETY: the key is as long as the map's.
            match unsafe { bpf(BPF_MAP_DELETE_ELEM, &mut attr) } {
                Err(error) if error.raw_os_error() != Some(libc::ENOENT) => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    fn zero_all(&mut self) -> io::Result<()> {
        let zeros = vec![0u8; self.value];
        for index in 0..self.entries {
            let mut attr = ElementAttr {
                map_fd: self.fd(),
                key: std::ptr::from_ref(&index) as u64,
                value: zeros.as_ptr() as u64,
                ..ElementAttr::default()
            };
            // SAFETY: the value is as long as the map's, and an array's key is a number.
            unsafe { bpf(BPF_MAP_UPDATE_ELEM, &mut attr) }?;
        }
        Ok(())
    }
}
