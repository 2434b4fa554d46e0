//! Results for readers: pages, charts, images.
//!
//! - [`Report`] renders the evidence of a run as one self-contained HTML page with its plots, [`ComparisonPage`] what many
//!   runs say about the policies; [`layout`] keeps runs with their pages.
//! - [`chart`] draws lines, bars and distributions as SVG. [`Drawings`] are plots beside a result, as PNG too if asked.
//!
//! Nothing here reads a clock or a random number: the same evidence renders to the same bytes.

#![deny(missing_docs)]

pub mod chart;
mod comparison;
mod drawings;
mod figure;
mod plots;
mod png;
mod report;
mod words;

pub use comparison::ComparisonPage;
pub use drawings::{Drawings, Drawn};
pub use png::draw_pngs;
pub use report::{Headline, Report, layout, write_page};

#[cfg(test)]
mod testing {
    use anabranch_scenario::{Outcome, Transfer, TransferId, UserId};

    /// A successful transfer of 50 250 bytes over `fiber`.
    pub(crate) fn transfer(user: u32, start_s: f64, duration_s: f64) -> Transfer {
        let bytes = 50_250;
        Transfer {
            id: TransferId(0),
            user: UserId(user),
            source: [192, 168, 100, 1].into(),
            round: 0,
            planned_start_s: start_s,
            start_s,
            setup_s: Some(0.001),
            first_byte_s: Some(0.002),
            duration_s,
            bytes_asked: bytes,
            bytes,
            link: Some("fiber".into()),
            outcome: Outcome::Ok,
            syn_retransmits: 0,
        }
    }
}
