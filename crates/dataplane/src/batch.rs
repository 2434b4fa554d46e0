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

/// Every entry of a hash map. Entries that come or go meanwhile may be missing or met twice.
pub fn read_all<K: Pod + Default, V: Pod + Default>(map: impl AsFd) -> io::Result<Vec<(K, V)>> {
    let mut reader = Reader::new();
    let mut all = Vec::new();
    while reader.next_into(map.as_fd().as_raw_fd(), &mut all)? {}
    Ok(all)
}

struct Reader<K, V> {
    keys: Vec<K>,
    values: Vec<V>,
    /// Where the kernel goes on: opaque, at most a bucket number.
    cursor: Option<u64>,
}

impl<K: Pod + Default, V: Pod + Default> Reader<K, V> {
    fn new() -> Self {
        Reader {
            keys: vec![K::default(); ENTRIES_PER_CALL],
            values: vec![V::default(); ENTRIES_PER_CALL],
            cursor: None,
        }
    }

    /// One call. Whether there is more; a bucket that does not fit doubles the room.
    fn next_into(&mut self, map_fd: i32, all: &mut Vec<(K, V)>) -> io::Result<bool> {
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
            map_fd: map_fd as u32,
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
                return Ok(true);
            }
            Some(code) if code != libc::ENOENT => return Err(io::Error::from_raw_os_error(code)),
            _ => {}
        }
        let count = attr.count as usize;
        all.extend(
            self.keys[..count]
                .iter()
                .copied()
                .zip(self.values[..count].iter().copied()),
        );
        self.cursor = Some(next);
        Ok(error.is_none())
    }
}
