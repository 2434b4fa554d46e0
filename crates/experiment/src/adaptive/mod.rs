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
use crate::{Experiment, figures};

pub static EXPERIMENT: Experiment = Experiment {
    name: "adaptive",
    title: "adaptive against every policy of outbound links, and without each of its ingredients",
    figures: figures! {
        "near": "congestion of the last mile of BL2, at five workloads (Peng 2005, figure 8)" => congested::near;
        "far": "congestion behind the last mile of BL2, at five workloads (Peng 2005, figure 11)" => congested::far;
        "cut": "one of three links is cut under downloads without end (Peng 2005, figure 17)" => varying::cut;
        "unequal": "three links as near as each other, of 40, 8 and 2 Mbit/s"
            => |context| varying::varying(context, "unequal");
        "cellular": "a cable and two cellular links" => |context| varying::varying(context, "cellular");
        "bloat": "a cable and a buffer of three seconds" => |context| varying::varying(context, "bloat");
        "shared": "two links that meet behind them, one of which is cut"
            => |context| varying::varying(context, "shared");
        "brown-out": "a link has a tenth of its rate for a while" => |context| varying::varying(context, "brown-out");
        "return": "a link is cut and comes back" => |context| varying::varying(context, "return");
        "ranking": "where each policy stands in all cells" => ranking::run;
        "ablation": "adaptive without each of its ingredients" => ablation::run;
        "cost": "packets that adaptive sends to measure" => cost::run;
    },
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
