//! One file per subcommand.

pub mod check;
pub mod explain;
pub mod flows;
pub mod link;
pub mod member;
pub mod prefixes;
pub mod reload;
pub mod run;
pub mod service;
pub mod status;
pub mod stop;
