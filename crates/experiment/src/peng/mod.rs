//! Peng 2005: multihoming load balancing algorithms, over one line of a T1's rate and over three or six that add up to it.
//!
//! The paper's figures have lost their numbers; what its text says of them is claimed. A [`testbed`] is a scenario file at
//! one workload L_n(users, files), and a cell of a figure what an algorithm comes to there, seed by seed.

mod congestion;
mod cost;
mod fig10;
mod fig16;
mod fig17;
mod fig3;
mod fig5;
mod fig6;
mod fig7;
mod laboratory;
mod mutations;
mod table2;
mod testbed;
mod waiting;

use crate::files::built_in;
use crate::{Experiment, figures};

pub(crate) use testbed::{Testbed, Workload, mean_of, runs};

pub static EXPERIMENT: Experiment = Experiment {
    name: "2005-peng-algorithms",
    title: "link load balancing: granularity, dispatch, measure, congestion near and far, cuts",
    figures: figures! {
        "fig3": "three sessions between two measurements" => fig3::run;
        "fig5": "one choice per connection against one per pair of hosts" => fig5::run;
        "fig6": "best link against weighted links, measured every 0.1 s and every second" => fig6::run;
        "fig7": "counting sessions, subtracting traffic, measuring response times" => fig7::run;
        "fig8": "congestion of the last mile of BL2" => congestion::fig8;
        "fig9": "sessions on BL2 and how much users differ, last mile" => congestion::fig9;
        "fig10": "when sessions end, congestion of the last mile" => fig10::run;
        "fig11": "congestion behind the last mile of BL2" => congestion::fig11;
        "fig12": "sessions on BL2, behind the last mile" => congestion::fig12;
        "fig16": "WSDM against probing at each arrival (PCM), congestion near and far" => fig16::run;
        "fig17": "one link cut under continuous downloads; table 6" => fig17::run;
        "table2": "several lines against one T1: what a cut leaves, and fees" => table2::run;
        "table5": "packets that are sent to measure" => cost::run;
        "waiting": "what waits for measurements, and how many a list takes" => waiting::run;
        "laboratory" [Lab]: "the declared cells of figures 5 to 12 in both worlds" => laboratory::run;
    },
    mutations: mutations::ALL,
    files: built_in!(
        "2005-peng-algorithms",
        [
            "README.md",
            "expected.toml",
            "aggregate.toml",
            "last-mile.toml",
            "remote.toml",
            "self-congestion.toml",
            "cut.toml",
            "waiting.toml",
            "laboratory.toml",
        ]
    ),
};

#[cfg(test)]
mod tests;
