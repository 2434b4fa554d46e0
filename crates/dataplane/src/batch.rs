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

/// Where the kernel goes on with a map: opaque, at most a bucket number.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cursor(Option<u64>);

/// What a call has read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Batch {
    /// So many entries; there may be more.
    More(usize),
    /// So many, the last ones.
    Last(usize),
    /// A bucket has more entries than there is room.
    NoRoom,
}

/// Reads at most `room` entries, from `cursor` on.
///
/// # Errors
/// What the kernel refuses.
///
/// # Safety
/// `keys` and `values` lead to room for so many of the map's keys and values, as user space reads them.
pub unsafe fn lookup(
    map: impl AsFd,
    cursor: &mut Cursor,
    (keys, values): (*mut u8, *mut u8),
    room: usize,
) -> io::Result<Batch> {
    let mut next = 0u64;
    let from = cursor.0.as_ref();
    let mut attr = BatchAttr {
        in_batch: from.map_or(0, |from| std::ptr::from_ref(from) as u64),
        out_batch: std::ptr::from_mut(&mut next) as u64,
        keys: keys as u64,
        values: values as u64,
        count: room as u32,
        map_fd: map.as_fd().as_raw_fd() as u32,
        ..BatchAttr::default()
    };
    // SAFETY: `attr` has the layout of the kernel's `batch` attributes; its pointers lead to what the caller vouches for
    // and to 8 bytes for each cursor, all alive until the call returns.
    let read = unsafe { bpf(BPF_MAP_LOOKUP_BATCH, &mut attr) };
    let count = attr.count as usize;
    match read {
        Err(error) => match error.raw_os_error() {
            Some(libc::ENOSPC) => Ok(Batch::NoRoom),
            Some(libc::ENOENT) => Ok(Batch::Last(count)),
            _ => Err(error),
        },
        Ok(_) => {
            cursor.0 = Some(next);
            Ok(Batch::More(count))
        }
    }
}

/// The system call (bpf(2)), for commands that the loader library has no call for.
///
/// # Errors
/// What the kernel refuses.
///
/// # Safety
/// `attr` has the layout of the command's attributes, and its pointers lead to what the command reads and writes.
pub(crate) unsafe fn bpf<A>(command: libc::c_long, attr: &mut A) -> io::Result<i32> {
    // SAFETY: as the caller vouches.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            std::ptr::from_mut(attr),
            size_of::<A>(),
        )
    };
    match result {
        0.. => Ok(result as i32),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Reads a hash map some thousand entries at a time: about a millisecond of the kernel's. Entries that come or go
/// meanwhile may be missing or met twice.
pub(crate) struct Reader<K, V> {
    keys: Vec<K>,
    values: Vec<V>,
    /// Entries that the last call has read.
    count: usize,
    cursor: Cursor,
    is_over: bool,
}

impl<K: Pod + Default, V: Pod + Default> Reader<K, V> {
    pub fn new() -> Self {
        Reader {
            keys: vec![K::default(); ENTRIES_PER_CALL],
            values: vec![V::default(); ENTRIES_PER_CALL],
            count: 0,
            cursor: Cursor::default(),
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
        let room = self.keys.len();
        let to = (
            self.keys.as_mut_ptr().cast(),
            self.values.as_mut_ptr().cast(),
        );
        // SAFETY: both have `room` entries, and their types are the map's.
        self.count = match unsafe { lookup(map, &mut self.cursor, to, room)? } {
            Batch::More(count) => count,
            Batch::Last(count) => {
                self.is_over = true;
                count
            }
            Batch::NoRoom => {
                self.keys.resize(room * 2, K::default());
                self.values.resize(room * 2, V::default());
                0
            }
        };
        Ok(true)
    }
}
