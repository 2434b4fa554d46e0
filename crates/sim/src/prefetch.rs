//! A hint to the processor: what will be touched soon.

/// Asks for all of `thing` to be brought into the cache. Changes nothing but speed.
#[inline(always)]
pub fn prefetch<T>(thing: &T) {
    #[cfg(target_arch = "x86_64")]
    for byte in (0..size_of::<T>()).step_by(LINE_BYTES) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let line = (&raw const *thing).cast::<i8>().wrapping_add(byte);
        // SAFETY: a prefetch faults on no address and reads nothing that the program sees.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = thing;
}

#[cfg(target_arch = "x86_64")]
const LINE_BYTES: usize = 64;
