//! Real kernels to try things on: network namespaces, and links between them with a chosen rate, delay, loss and fate.
//!
//! - [`netns`]: network namespaces, the devices between them and the processes inside them. Whatever it creates goes
//!   away with the value that stands for it; what a killed process left behind is removed by the next one.
//! - [`pins`]: folders for pinned maps and programs, which go away likewise.
//! - [`cpus`]: on which processors threads run.
//! - [`wait`]: waiting until something holds.
//! - [`emulator`]: a link between two devices, carried by this process. It is a pure queue on a virtual clock
//!   ([`emulator::pipe`]), driven by a thread that owns the sockets.
//!   [`calibrate`] compares what it does on this machine with what it should do.
//!
//! Nothing here touches the host's own namespace, its addresses or its sysctls. Everything needs root (CAP_NET_ADMIN
//! and CAP_SYS_ADMIN) and says so in one line when it is missing.

#![deny(missing_docs)]

pub mod calibrate;
pub mod cpus;
pub mod emulator;
pub mod netns;
pub mod pins;
pub mod wait;

/// Tests of either family, each a function that takes one: `in_both_families!(Family: this_holds, that_holds)` makes
/// `v4::this_holds` and `v6::this_holds` of it.
#[macro_export]
macro_rules! in_both_families {
    ($families:ident: $($name:ident),* $(,)?) => {
        mod v4 {
            $(#[test] fn $name() { super::$name(super::$families::V4); })*
        }
        mod v6 {
            $(#[test] fn $name() { super::$name(super::$families::V6); })*
        }
    };
}
