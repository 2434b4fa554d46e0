//! Lin, Tsao, Leong 2007: the link whose SYN/ACK comes first, against links in turn, for downloads from three far places.
//!
//! A [`place`] is a scenario file of one round, which is repeated every ten minutes while what is beyond the links changes as
//! [`weather`] has it. A round asks once by the policy, and then downloads over every link to know the truth.

mod fig1;
mod fig4;
mod fig5;
mod fig6;
mod mutations;
mod place;
mod weather;

use crate::files::built_in;
use crate::{Experiment, figures};

pub static EXPERIMENT: Experiment = Experiment {
    name: "2007-lin-ofrp",
    title: "the first SYN/ACK of a race against links in turn, for three far destinations",
    figures: figures! {
        "fig1": "the nearest hop picks the wrong link; how much round trips change" => fig1::run;
        "fig4": "throughput of every link and of the chosen one, round by round" => fig4::run;
        "fig5": "how often the best link is chosen" => fig5::run;
        "fig6": "throughput of the chosen link, of the best one's" => fig6::run;
    },
    mutations: mutations::ALL,
    files: built_in!(
        "2007-lin-ofrp",
        [
            "README.md",
            "expected.toml",
            "de.toml",
            "us.toml",
            "jp.toml",
            "hops.toml",
        ]
    ),
};

#[cfg(test)]
mod tests;
