//! Guo, Chen, Li, Chiueh 2004: experiences in building a multihoming load balancing system.
//!
//! Two recorded traces of a company's access link, four hours each, are replayed in one hour over one, two and three
//! links of the same rate. The recordings are not public: [`trace`] builds traces with their totals.

mod fig10;
mod fig5;
mod fig6;
mod fig8;
mod fig9;
mod mutations;
mod prefixes;
mod table3;
mod table4;
mod trace;

use crate::files::built_in;
use crate::{Experiment, Figure, World};

pub use prefixes::Prefixes;

pub static EXPERIMENT: Experiment = Experiment {
    name: "2004-guo-multihoming",
    title: "one, two and three ISPs under replayed traces, by packet, by hash and by load",
    figures: &[
        Figure {
            id: "table3",
            title: "sum of the durations of all connections",
            worlds: &[World::Sim],
            run: table3::run,
        },
        Figure {
            id: "fig5",
            title: "share of the connections that go to the most visited prefixes",
            worlds: &[World::Sim],
            run: fig5::run,
        },
        Figure {
            id: "fig6",
            title: "latency by either of two ISPs over that by the faster",
            worlds: &[World::Sim],
            run: fig6::run,
        },
        Figure {
            id: "fig8",
            title: "durations of the 100 longest connections",
            worlds: &[World::Sim],
            run: fig8::run,
        },
        Figure {
            id: "fig9",
            title: "four equal flows on one link and on two",
            worlds: &[World::Sim],
            run: fig9::run,
        },
        Figure {
            id: "fig10",
            title: "difference of the loads of two links against their sum",
            worlds: &[World::Sim],
            run: fig10::run,
        },
        Figure {
            id: "table4",
            title: "links chosen by the load of the own direction and by that of both",
            worlds: &[World::Sim],
            run: table4::run,
        },
    ],
    mutations: mutations::ALL,
    files: built_in!(
        "2004-guo-multihoming",
        ["README.md", "expected.toml", "trace1.toml", "trace2.toml"]
    ),
};

#[cfg(test)]
mod tests;
