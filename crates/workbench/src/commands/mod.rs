//! One file per subcommand.

pub mod attack;
pub mod experiment;
pub mod neighbours;
pub mod scenario;
