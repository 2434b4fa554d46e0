//! A laboratory of network namespaces: real programs, real kernels, links with a chosen rate, delay, loss and fate.
//!
//! The lab is built of three layers, each useful without the ones above.
//!
//! - [`netns`]: network namespaces, the devices between them and the processes inside them. Whatever it creates goes
//!   away with the value that stands for it; what a killed process left behind is removed by the next one.
//! - [`emulator`]: a link between two devices, carried by this process. It is a pure queue on a virtual clock
//!   ([`emulator::pipe`]), driven by a thread that owns the sockets.
//!   [`calibrate`] compares what it does on this machine with what it should do.
//! - [`topology`] and [`run`]: clients, a gateway under test, one path per ISP and a web server; a load on it,
//!   lines that change on a schedule, and a report that says whether the figures can be trusted.
//!
//! [`scenario`] stands on all of them: it carries out one run of a scenario file, the same that the simulator runs, and
//! hands back the same kind of record.
//!
//! [`trunk`] does so for scenarios with a trunk, on two nodes of its own.
//!
//! [`attack`] floods a gateway on a site of its own and tells what innocent hosts lost meanwhile.
//!
//! Nothing here touches the host's own namespace, its addresses or its sysctls. Everything needs root (CAP_NET_ADMIN
//! and CAP_SYS_ADMIN) and says so in one line when it is missing.

pub mod attack;
pub mod calibrate;
pub mod emulator;
pub mod netns;
pub mod run;
pub mod scenario;
pub mod topology;
pub mod trunk;
