//! One file per subcommand.

pub mod check;
pub mod completions;
pub mod explain;
pub mod flows;
pub mod link;
pub mod policies;
pub mod run;
pub mod status;
