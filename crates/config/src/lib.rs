//! Files that people write: the gateway's configuration and scenarios.
//!
//! A file is TOML, read by serde into a struct that refuses unknown keys, and then judged by whoever knows what its
//! values mean together. Both may find something wrong, and both say it the same way, in one line: the file and the line
//! in it, the key, the value as written, and what is allowed. [`Source`] keeps the text with its positions for that;
//! [`BadInput`] is the line.
//!
//! Quantities carry their unit: [`Rate`], [`Span`], [`Bytes`], [`Share`], [`Frequency`]; [`format`] writes them for people.

#![deny(missing_docs)]
#![forbid(unsafe_code)]

pub mod either;
mod error;
pub mod format;
mod quantity;
mod source;
mod suggestion;

pub use either::Either;
pub use error::{BadInput, with_causes};
pub use quantity::{Bytes, Frequency, LineRate, Rate, Share, Span};
pub use source::{Source, dotted, is_name, read_text, read_text_up_to};
pub use suggestion::did_you_mean;
