//! Results for readers: pages, charts, images.
//!
//! - [`Report`] renders the evidence of a run as one self-contained HTML page with its plots, [`ComparisonPage`] what many
//!   runs say about the policies, [`ClaimsPage`] what is published beside what was observed; [`layout`] keeps runs with their pages.
//! - [`chart`] draws lines, bars and distributions as SVG. [`Drawings`] are plots beside a result, as PNG too if asked.
//!
//! Nothing here reads a clock or a random number: the same evidence renders to the same bytes.

#![deny(missing_docs)]

pub mod chart;
mod claims;
mod comparison;
mod drawings;
mod figure;
mod plots;
mod png;
mod report;
mod words;

pub use claims::{ClaimRow, ClaimedFigure, ClaimsPage, Reading};
pub use comparison::ComparisonPage;
pub use drawings::{Drawings, Drawn};
pub use png::draw_pngs;
pub use report::{Headline, Report, layout, write_page};
