//! An experiment for readers: every claim beside what is published and what was observed, and the figures.

use anabranch_results::OutputError;
use maud::{Markup, PreEscaped, html};
use serde::Deserialize;

use crate::chart::Plot;
use crate::report::{Headline, page, tiles};

/// The page of an experiment: no scripts, no external resources.
#[derive(Clone, Debug)]
pub struct ClaimsPage {
    /// Of the page.
    pub title: String,
    /// What was run, in a sentence.
    pub lead: String,
    /// How many claims have which verdict.
    pub counts: Vec<Headline>,
    /// In the order of the experiment.
    pub figures: Vec<ClaimedFigure>,
    /// How the source was understood, and what else was tried.
    pub readings: Vec<Reading>,
    /// Names and texts of what the run depends on, and of what tells about it.
    pub files: Vec<(String, String)>,
}

/// A figure with its claims.
#[derive(Clone, Debug)]
pub struct ClaimedFigure {
    /// What it shows.
    pub title: String,
    /// Judged.
    pub claims: Vec<ClaimRow>,
    /// What a reader should know besides.
    pub notes: Vec<String>,
    /// As many as it takes.
    pub plots: Vec<Plot>,
}

/// A claim, in words.
#[derive(Clone, Debug, Default)]
pub struct ClaimRow {
    /// The sentence.
    pub claim: String,
    /// With its unit; empty if nothing was.
    pub published: String,
    /// With its interval and unit.
    pub observed: String,
    /// What counts as reproduced.
    pub expected: String,
    /// Today's verdict, and the stated one if that is another.
    pub verdict: String,
    /// Whether both agree.
    pub agrees: bool,
    /// In how many windows of seeds it held, of how many.
    pub held: (usize, usize),
    /// Why it is not called reproduced.
    pub why: Option<String>,
}

/// A way to understand the source.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reading {
    /// In a sentence.
    pub reading: String,
    /// How many sets of parameters were tried under it.
    pub tried: u32,
    /// Whether the experiment uses it.
    pub kept: bool,
    /// Why, or why not.
    pub why: String,
}

impl ClaimsPage {
    /// The page.
    ///
    /// # Errors
    /// If a plot cannot be drawn.
    pub fn render(&self) -> Result<String, OutputError> {
        let figures = self.figures.iter().map(ClaimedFigure::render);
        let figures: Vec<Markup> = figures.collect::<Result<_, _>>()?;
        let body = html! {
            p.lead { (self.lead) }
            (tiles(&self.counts))
            p.hint { "A claim holds if the whole 95 % interval of what was observed lies in what is expected. Calibrated: the number "
                "was an input. Sanity: it can hardly fail." }
            @for figure in &figures { (figure) }
            @if !self.readings.is_empty() { (self.readings()) }
            @if !self.files.is_empty() {
                h2 { "Parameters and deviations" }
                @for (name, text) in &self.files { details { summary { (name) } pre.wide { (text) } } }
            }
        };
        Ok(page(&self.title, &body))
    }

    fn readings(&self) -> Markup {
        html! {
            h2 { "How the source was read" }
            div.wide { table {
                thead { tr { th { "reading" } th.number { "sets tried" } th { "kept" } th { "why" } } }
                tbody { @for each in &self.readings { tr {
                    th scope="row" { (each.reading) }
                    td.number { (each.tried) }
                    td { (if each.kept { "yes" } else { "no" }) }
                    td { (each.why) }
                } } }
            } }
        }
    }
}

impl ClaimedFigure {
    fn render(&self) -> Result<Markup, OutputError> {
        let plots = self.plots.iter().map(Plot::inline);
        let plots: Vec<String> = plots.collect::<Result<_, _>>()?;
        Ok(html! {
            h2 { (self.title) }
            div.wide { table {
                thead { tr {
                    th { "claim" } th.number { "published" } th.number { "observed" } th.number { "expected" }
                    th { "verdict" } th.number { "held" }
                } }
                tbody { @for claim in &self.claims { (claim.render()) } }
            } }
            @for note in &self.notes { p.hint { (note) } }
            @for plot in &plots { figure.wide { (PreEscaped(plot)) } }
        })
    }
}

impl ClaimRow {
    fn render(&self) -> Markup {
        let (held, of) = self.held;
        html! { tr {
            th scope="row" { (self.claim) @if let Some(why) = &self.why { br; span.hint { (why) } } }
            td.number { (self.published) }
            td.number { (self.observed) }
            td.number { (self.expected) }
            td.bad[!self.agrees] { (self.verdict) }
            td.number { (held) " of " (of) }
        } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::Chart;

    #[test]
    fn a_page_has_claims_plots_readings_and_files_and_marks_what_disagrees() {
        let row = |verdict: &str, agrees| ClaimRow {
            claim: format!("it is {verdict}"),
            verdict: verdict.to_owned(),
            agrees,
            held: (11, 12),
            ..ClaimRow::default()
        };
        let page = ClaimsPage {
            title: "a paper".to_owned(),
            lead: "seeds 1..20".to_owned(),
            counts: vec![Headline::new("reproduced", "1")],
            figures: vec![ClaimedFigure {
                title: "figure 1".to_owned(),
                claims: vec![row("reproduced", true), row("partly", false)],
                notes: vec!["a note".to_owned()],
                plots: vec![Chart::new("drawn", "x", "y").line("a", [(0.0, 1.0)]).into()],
            }],
            readings: vec![Reading {
                reading: "as it stands".to_owned(),
                tried: 3,
                kept: false,
                why: "no set fits".to_owned(),
            }],
            files: vec![("a.toml".to_owned(), "length = \"1s\"".to_owned())],
        };
        let html = page.render().unwrap();
        for text in [
            "it is reproduced",
            "11 of 12",
            "a note",
            "drawn",
            "as it stands",
            "length = &quot;1s&quot;",
        ] {
            assert!(html.contains(text), "{text}");
        }
        assert_eq!(html.matches("class=\"bad\"").count(), 1);
    }
}
