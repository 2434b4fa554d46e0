//! Jo, Kim, Chao, Merat 2002: internet traffic distribution over multilink.
//!
//! A DS3 line is made of eight sublinks, and packets are spread by static hashing (SH), by bins of which a tenth moves
//! from an overloaded sublink (DH), or by bins of which the largest moves (DHFV); the undivided line is what each is
//! measured against. The paper gives the totals of its load on the undivided line: [`undivided`] holds the scenario
//! against them, and whatever the other figures say is only worth as much as that.

mod bins;
mod discussion;
mod interval;
mod laboratory;
mod losses;
mod mutations;
mod peers;
mod runs;
mod tcp;
mod traffic;
mod undivided;

use crate::files::built_in;
use crate::{Experiment, Figure, World};

const SIM: &[World] = &[World::Sim];

pub static EXPERIMENT: Experiment = Experiment {
    name: "2002-jo-multilink",
    title: "a trunk of eight sublinks: static hashing, moved bins, moved large bins",
    figures: &[
        Figure {
            id: "undivided",
            title: "the load on the undivided link (section III.B)",
            worlds: SIM,
            run: undivided::run,
        },
        Figure {
            id: "fig6",
            title: "traffic of each sublink under SH",
            worlds: SIM,
            run: traffic::fig6,
        },
        Figure {
            id: "fig7",
            title: "traffic of each sublink under DH",
            worlds: SIM,
            run: traffic::fig7,
        },
        Figure {
            id: "fig8",
            title: "traffic of each sublink under DHFV",
            worlds: SIM,
            run: traffic::fig8,
        },
        Figure {
            id: "fig9",
            title: "lost bytes",
            worlds: SIM,
            run: losses::fig9,
        },
        Figure {
            id: "fig10",
            title: "sublink reassignments",
            worlds: SIM,
            run: losses::fig10,
        },
        Figure {
            id: "fig11",
            title: "link utilisation",
            worlds: SIM,
            run: tcp::fig11,
        },
        Figure {
            id: "fig12",
            title: "TCP bytes sent and received",
            worlds: SIM,
            run: tcp::fig12,
        },
        Figure {
            id: "interval",
            title: "losses and moves against the time between two looks (section III.C)",
            worlds: SIM,
            run: interval::run,
        },
        Figure {
            id: "choice",
            title: "which bin DHFV moves (section II.A)",
            worlds: SIM,
            run: bins::choice,
        },
        Figure {
            id: "persistence",
            title: "whether large bins stay large over 100 ms (section II.A)",
            worlds: SIM,
            run: bins::persistence,
        },
        Figure {
            id: "peers",
            title: "the bonding driver's hash and MLPPP beside SH, DH and DHFV",
            worlds: SIM,
            run: peers::run,
        },
        Figure {
            id: "dsack",
            title: "the penalty of reordering with DSACK and RACK (section IV.E)",
            worlds: SIM,
            run: peers::dsack,
        },
        Figure {
            id: "equal",
            title: "flows of equal rate (section IV.E)",
            worlds: SIM,
            run: discussion::equal,
        },
        Figure {
            id: "sublinks",
            title: "imbalance against the number of sublinks (section IV.E)",
            worlds: SIM,
            run: discussion::sublinks,
        },
        Figure {
            id: "load",
            title: "losses and moves against the load (section IV.E)",
            worlds: SIM,
            run: discussion::load,
        },
        Figure {
            id: "lab",
            title: "a quarter of the load on real kernels",
            worlds: &[World::Lab],
            run: laboratory::run,
        },
    ],
    mutations: mutations::ALL,
    files: built_in!(
        "2002-jo-multilink",
        ["README.md", "expected.toml", "jo.toml", "equal.toml"]
    ),
};

#[cfg(test)]
mod tests;
