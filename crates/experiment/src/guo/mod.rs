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
use crate::{Experiment, figures};

pub use prefixes::Prefixes;

pub static EXPERIMENT: Experiment = Experiment {
    name: "2004-guo-multihoming",
    title: "one, two and three ISPs under replayed traces, by packet, by hash and by load",
    figures: figures! {
        "table3": "sum of the durations of all connections" => table3::run;
        "fig5": "share of the connections that go to the most visited prefixes" => fig5::run;
        "fig6": "latency by either of two ISPs over that by the faster" => fig6::run;
        "fig8": "durations of the 100 longest connections" => fig8::run;
        "fig9": "four equal flows on one link and on two" => fig9::run;
        "fig10": "difference of the loads of two links against their sum" => fig10::run;
        "table4": "links chosen by the load of the own direction and by that of both" => table4::run;
    },
    mutations: mutations::ALL,
    files: built_in!(
        "2004-guo-multihoming",
        ["README.md", "expected.toml", "trace1.toml", "trace2.toml"]
    ),
};

#[cfg(test)]
mod tests;
