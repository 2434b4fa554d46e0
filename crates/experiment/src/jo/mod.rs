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
use crate::{Experiment, figures};

pub static EXPERIMENT: Experiment = Experiment {
    name: "2002-jo-multilink",
    title: "a trunk of eight sublinks: static hashing, moved bins, moved large bins",
    figures: figures! {
        "undivided": "the load on the undivided link (section III.B)" => undivided::run;
        "fig6": "traffic of each sublink under SH" => traffic::fig6;
        "fig7": "traffic of each sublink under DH" => traffic::fig7;
        "fig8": "traffic of each sublink under DHFV" => traffic::fig8;
        "fig9": "lost bytes" => losses::fig9;
        "fig10": "sublink reassignments" => losses::fig10;
        "fig11": "link utilisation" => tcp::fig11;
        "fig12": "TCP bytes sent and received" => tcp::fig12;
        "interval": "losses and moves against the time between two looks (section III.C)" => interval::run;
        "choice": "which bin DHFV moves (section II.A)" => bins::choice;
        "persistence": "whether large bins stay large over 100 ms (section II.A)" => bins::persistence;
        "peers": "the bonding driver's hash and MLPPP beside SH, DH and DHFV" => peers::run;
        "dsack": "the penalty of reordering with DSACK and RACK (section IV.E)" => peers::dsack;
        "equal": "flows of equal rate (section IV.E)" => discussion::equal;
        "sublinks": "imbalance against the number of sublinks (section IV.E)" => discussion::sublinks;
        "load": "losses and moves against the load (section IV.E)" => discussion::load;
        "lab" [Lab]: "a quarter of the load on real kernels" => laboratory::run;
    },
    mutations: mutations::ALL,
    files: built_in!(
        "2002-jo-multilink",
        ["README.md", "expected.toml", "jo.toml", "equal.toml"]
    ),
};

#[cfg(test)]
mod tests;
