//! Rules as the programs find them against rules as they are defined.

mod agreement;
mod fit;
