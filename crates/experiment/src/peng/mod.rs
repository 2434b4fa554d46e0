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
use crate::{Experiment, Figure, World};

pub(crate) use testbed::{Testbed, Workload, mean_of, runs};

pub static EXPERIMENT: Experiment = Experiment {
    name: "2005-peng-algorithms",
    title: "link load balancing: granularity, dispatch, measure, congestion near and far, cuts",
    figures: &[
        Figure {
            id: "fig3",
            title: "three sessions between two measurements",
            worlds: &[World::Sim],
            run: fig3::run,
        },
        Figure {
            id: "fig5",
            title: "one choice per connection against one per pair of hosts",
            worlds: &[World::Sim],
            run: fig5::run,
        },
        Figure {
            id: "fig6",
            title: "best link against weighted links, measured every 0.1 s and every second",
            worlds: &[World::Sim],
            run: fig6::run,
        },
        Figure {
            id: "fig7",
            title: "counting sessions, subtracting traffic, measuring response times",
            worlds: &[World::Sim],
            run: fig7::run,
        },
        Figure {
            id: "fig8",
            title: "congestion of the last mile of BL2",
            worlds: &[World::Sim],
            run: congestion::fig8,
        },
        Figure {
            id: "fig9",
            title: "sessions on BL2 and how much users differ, last mile",
            worlds: &[World::Sim],
            run: congestion::fig9,
        },
        Figure {
            id: "fig10",
            title: "when sessions end, congestion of the last mile",
            worlds: &[World::Sim],
            run: fig10::run,
        },
        Figure {
            id: "fig11",
            title: "congestion behind the last mile of BL2",
            worlds: &[World::Sim],
            run: congestion::fig11,
        },
        Figure {
            id: "fig12",
            title: "sessions on BL2, behind the last mile",
            worlds: &[World::Sim],
            run: congestion::fig12,
        },
        Figure {
            id: "fig16",
            title: "WSDM against probing at each arrival (PCM), congestion near and far",
            worlds: &[World::Sim],
            run: fig16::run,
        },
        Figure {
            id: "fig17",
            title: "one link cut under continuous downloads; table 6",
            worlds: &[World::Sim],
            run: fig17::run,
        },
        Figure {
            id: "table2",
            title: "several lines against one T1: what a cut leaves, and fees",
            worlds: &[World::Sim],
            run: table2::run,
        },
        Figure {
            id: "table5",
            title: "packets that are sent to measure",
            worlds: &[World::Sim],
            run: cost::run,
        },
        Figure {
            id: "waiting",
            title: "what waits for measurements, and how many a list takes",
            worlds: &[World::Sim],
            run: waiting::run,
        },
        Figure {
            id: "laboratory",
            title: "the declared cells of figures 5 to 12 in both worlds",
            worlds: &[World::Lab],
            run: laboratory::run,
        },
    ],
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
