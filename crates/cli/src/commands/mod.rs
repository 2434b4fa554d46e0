//! One file per subcommand.

pub mod attack;
pub mod check;
pub mod completions;
pub mod experiment;
pub mod explain;
pub mod flows;
pub mod link;
pub mod neighbours;
pub mod policies;
pub mod prefixes;
pub mod reload;
pub mod run;
pub mod scenario;
pub mod status;
pub mod stop;
