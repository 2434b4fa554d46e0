//! Every policy of outbound links on the papers' cells and on links that vary, are cut, brown out and return; and `adaptive` without
//! each of its ingredients in turn. No paper claims anything here: the bars are ours, and were set before.

mod ablation;
mod cells;
mod congested;
mod cost;
mod merit;
mod mutations;
mod ranking;
mod varying;

use crate::files::built_in;
use crate::{Experiment, Figure, World};

pub static EXPERIMENT: Experiment = Experiment {
    name: "adaptive",
    title: "adaptive against every policy of outbound links, and without each of its ingredients",
    figures: &[
        Figure {
            id: "near",
            title: "congestion of the last mile of BL2, at five workloads (Peng 2005, figure 8)",
            worlds: &[World::Sim],
            run: congested::near,
        },
        Figure {
            id: "far",
            title: "congestion behind the last mile of BL2, at five workloads (Peng 2005, figure 11)",
            worlds: &[World::Sim],
            run: congested::far,
        },
        Figure {
            id: "cut",
            title: "one of three links is cut under downloads without end (Peng 2005, figure 17)",
            worlds: &[World::Sim],
            run: varying::cut,
        },
        Figure {
            id: "unequal",
            title: "three links as near as each other, of 40, 8 and 2 Mbit/s",
            worlds: &[World::Sim],
            run: |context| varying::varying(context, "unequal"),
        },
        Figure {
            id: "cellular",
            title: "a cable and two cellular links",
            worlds: &[World::Sim],
            run: |context| varying::varying(context, "cellular"),
        },
        Figure {
            id: "bloat",
            title: "a cable and a buffer of three seconds",
            worlds: &[World::Sim],
            run: |context| varying::varying(context, "bloat"),
        },
        Figure {
            id: "shared",
            title: "two links that meet behind them, one of which is cut",
            worlds: &[World::Sim],
            run: |context| varying::varying(context, "shared"),
        },
        Figure {
            id: "brown-out",
            title: "a link has a tenth of its rate for a while",
            worlds: &[World::Sim],
            run: |context| varying::varying(context, "brown-out"),
        },
        Figure {
            id: "return",
            title: "a link is cut and comes back",
            worlds: &[World::Sim],
            run: |context| varying::varying(context, "return"),
        },
        Figure {
            id: "ranking",
            title: "where each policy stands in all cells",
            worlds: &[World::Sim],
            run: ranking::run,
        },
        Figure {
            id: "ablation",
            title: "adaptive without each of its ingredients",
            worlds: &[World::Sim],
            run: ablation::run,
        },
        Figure {
            id: "cost",
            title: "packets that adaptive sends to measure",
            worlds: &[World::Sim],
            run: cost::run,
        },
    ],
    mutations: mutations::ALL,
    files: built_in!(
        "adaptive",
        [
            "README.md",
            "expected.toml",
            "last-mile.toml",
            "remote.toml",
            "cut.toml",
            "unequal.toml",
            "cellular.toml",
            "bloat.toml",
            "shared.toml",
            "brown-out.toml",
            "return.toml",
        ]
    ),
};

#[cfg(test)]
mod tests;
