//! x
pub mod config;
pub mod control;
mod driver;
mod error;
pub mod host;
pub mod observe;
pub mod paths;
pub mod plane;
pub mod preflight;
pub mod probe;
mod slots;
pub use error::{BadInput, Error};
pub use slots::Slots;
