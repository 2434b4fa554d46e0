//! Reading a whole hash map with few system calls (`BPF_MAP_LOOKUP_BATCH`, Linux 5.6), which the loader library has
//! no call for.

use std::{
    io,
    os::fd::{AsFd, AsRawFd},
};

use aya::Pod;

const BPF_MAP_LOOKUP_BATCH: libc::c_long = 24;
const ENTRIES_PER_CALL: usize = 4096;

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

/// Reads a hash map some thousand entries at a time: about a millisecond of the kernel's. Entries that come or go
/// meanwhile may be missing or met twice.
pub struct Reader<K, V> {
    keys: Vec<K>,
    values: Vec<V>,
    /// Entries that the last call has read.
    count: usize,
    /// Where the kernel goes on: opaque, at most a bucket number.
    cursor: Option<u64>,
    is_over: bool,
}

impl<K: Pod + Default, V: Pod + Default> Reader<K, V> {
    pub fn new() -> Self {
        Reader {
            keys: vec![K::default(); ENTRIES_PER_CALL],
            values: vec![V::default(); ENTRIES_PER_CALL],
            count: 0,
            cursor: None,
            is_over: false,
        }
    }

    /// What the last call has read.
    pub fn entries(&self) -> impl Iterator<Item = (K, V)> + '_ {
        let entries = self.keys.iter().copied().zip(self.values.iter().copied());
        entries.take(self.count)
    }

    /// Reads on. False if nothing is left. A bucket that does not fit doubles the room.
    pub fn read_on(&mut self, map: impl AsFd) -> io::Result<bool> {
        if self.is_over {
            return Ok(false);
        }
        let mut next = 0u64;
        let mut attr = BatchAttr {
            in_batch: self
                .cursor
                .as_ref()
                .map_or(0, |cursor| std::ptr::from_ref(cursor) as u64),
            out_batch: std::ptr::from_mut(&mut next) as u64,
            keys: self.keys.as_mut_ptr() as u64,
            values: self.values.as_mut_ptr() as u64,
            count: self.keys.len() as u32,
            map_fd: map.as_fd().as_raw_fd() as u32,
            ..BatchAttr::default()
        };
        // SAFETY: `attr` has the layout of the kernel's `batch` attributes, and its pointers lead to buffers of
        // `count` keys and values and to 8 bytes for the cursor, all alive until the call returns.
        let result = unsafe {
            libc::syscall(
                libc::SYS_bpf,
                BPF_MAP_LOOKUP_BATCH,
                std::ptr::from_mut(&mut attr),
                size_of::<BatchAttr>(),
            )
        };
        let error = (result < 0).then(io::Error::last_os_error);
        match error.as_ref().and_then(io::Error::raw_os_error) {
            Some(libc::ENOSPC) => {
                self.keys.resize(self.keys.len() * 2, K::default());
                self.values.resize(self.values.len() * 2, V::default());
                self.count = 0;
                return Ok(true);
            }
            Some(code) if code != libc::ENOENT => return Err(io::Error::from_raw_os_error(code)),
            last => self.is_over = last.is_some(),
        }
        self.count = attr.count as usize;
        self.cursor = Some(next);
        Ok(true)
    }
}
