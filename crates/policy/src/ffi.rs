//! What `native.c` exports: the only foreign functions and unsafe reads of the workspace's pure crates.

use std::ffi::{CStr, c_char};

use crate::abi;

#[cfg(test)]
#[repr(C)]
struct RawRow {
    structure: *const c_char,
    field: *const c_char,
    offset: u32,
    size: u32,
}

#[cfg(test)]
#[repr(C)]
struct RawConstant {
    name: *const c_char,
    value: u64,
}

#[repr(C)]
struct RawReason {
    name: *const c_char,
    words: *const c_char,
    fate: u32,
}

unsafe extern "C" {
    fn ab_native_pick(c: *const abi::Candidates, q: *const abi::Request, d: *mut abi::Decision);
    fn ab_native_flow_hash(
        src: *const abi::Addr,
        dst: *const abi::Addr,
        sport: u16,
        dport: u16,
    ) -> u32;

    // Declared with one element: the true number stands beside each.
    #[cfg(test)]
    static ab_native_layout: [RawRow; 1];
    #[cfg(test)]
    static ab_native_layout_count: usize;
    #[cfg(test)]
    static ab_native_constants: [RawConstant; 1];
    #[cfg(test)]
    static ab_native_constants_count: usize;
    static ab_native_reasons: [RawReason; 1];
    static ab_native_reasons_count: usize;
}

pub fn pick(candidates: &abi::Candidates, request: &abi::Request) -> abi::Decision {
    let mut decision = abi::Decision::default();
    // SAFETY: three valid, aligned references to structures whose layout the tests compare with the C headers.
    unsafe { ab_native_pick(candidates, request, &mut decision) };
    decision
}

pub fn flow_hash(src: &abi::Addr, dst: &abi::Addr, sport: abi::BePort, dport: abi::BePort) -> u32 {
    // SAFETY: two valid references to 16 bytes aligned to 4, as `union ab_addr` is.
    unsafe { ab_native_flow_hash(src, dst, sport.0, dport.0) }
}

/// `(structure, field, offset, size)` as C lays them out; the field is empty for the structure itself.
#[cfg(test)]
pub fn layout() -> Vec<(&'static str, &'static str, usize, usize)> {
    // SAFETY: native.c defines the table with this many rows, and nothing writes to it.
    let rows = unsafe {
        std::slice::from_raw_parts((&raw const ab_native_layout).cast(), ab_native_layout_count)
    };
    rows.iter()
        .map(|row: &RawRow| {
            (
                text(row.structure),
                text(row.field),
                row.offset as usize,
                row.size as usize,
            )
        })
        .collect()
}

/// Every enumerator and limit of the contract.
#[cfg(test)]
pub fn constants() -> Vec<(&'static str, u64)> {
    // SAFETY: native.c defines the table with this many rows, and nothing writes to it.
    let rows = unsafe {
        std::slice::from_raw_parts(
            (&raw const ab_native_constants).cast(),
            ab_native_constants_count,
        )
    };
    rows.iter()
        .map(|row: &RawConstant| (text(row.name), row.value))
        .collect()
}

/// `(name, words, fate)` of every reason, in the order of their numbers.
pub fn reasons() -> Vec<(&'static str, &'static str, u32)> {
    // SAFETY: native.c defines the table with this many rows, and nothing writes to it.
    let rows = unsafe {
        std::slice::from_raw_parts(
            (&raw const ab_native_reasons).cast(),
            ab_native_reasons_count,
        )
    };
    rows.iter()
        .map(|row: &RawReason| (text(row.name), text(row.words), row.fate))
        .collect()
}

fn text(chars: *const c_char) -> &'static str {
    // SAFETY: every pointer of the tables is a string literal of native.c.
    unsafe { CStr::from_ptr(chars) }
        .to_str()
        .expect("native.c is ASCII")
}
