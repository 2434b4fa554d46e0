//! Which policy for which site: words of `experiments/guide.toml`, each beside what an experiment has observed; and all that was
//! observed, for `anabranch policies`.

use std::fs;
use std::path::Path;

use anabranch_config::{BadInput, Source, read_text};
use serde::Deserialize;

use crate::measured::{Shown, observed, shown};

const WORDS: &str = "experiments/guide.toml";
const PAGE: &str = "docs/choosing-a-policy.md";
const OBSERVED: &str = "experiments/observed.tsv";
const HEAD: &str = "# Choosing a policy

<!-- written by `anabranch-lab experiment guide`: change experiments/guide.toml -->

[policies.md](policies.md) has all of them, and `anabranch policies NAME` a page of each. What was observed is from the READMEs of the
[experiments](experiments.md), with its 95 % interval; the command observes it anew. A ratio above 1 is in favour of what its
claim names first.
";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Words {
    situation: Vec<Situation>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Situation {
    title: String,
    line: Vec<Line>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    take: String,
    #[serde(rename = "where")]
    place: String,
    figure: String,
}

/// Writes the page and the observations of a checkout.
///
/// # Errors
/// If its words cannot be read, or name what no experiment shows.
pub fn write_guide(checkout: &Path) -> Result<(), BadInput> {
    write(&checkout.join(PAGE), &guide(checkout)?)?;
    write(&checkout.join(OBSERVED), &observed())
}

fn write(file: &Path, text: &str) -> Result<(), BadInput> {
    fs::write(file, text).map_err(|error| BadInput::new(format!("{}: {error}", file.display())))
}

fn guide(checkout: &Path) -> Result<String, BadInput> {
    let path = checkout.join(WORDS);
    let text = read_text(&path)?;
    let source = Source::parse(&path, &text)?;
    let words: Words = source.read()?;
    let mut page = HEAD.to_owned();
    for Situation { title, line } in words.situation {
        page += &format!(
            "\n## {title}\n\n| take | where | observed | of | by |\n|---|---|---|---|---|\n"
        );
        for Line {
            take,
            place,
            figure,
        } in line
        {
            let Shown { measured, verdict } = shown(&figure).ok_or_else(|| {
                let problem = "no claim that the README of an experiment shows";
                BadInput::new(format!(
                    "{}: figure = {figure:?}: {problem}",
                    path.display()
                ))
            })?;
            let claim = measured.claim;
            let claim = match verdict {
                "reproduced" => claim.to_owned(),
                verdict => format!("{claim} ({verdict})"),
            };
            page += &format!(
                "| {take} | {place} | {} | {claim} | `anabranch-lab experiment run {}/{}` |\n",
                measured.observed, measured.experiment, measured.figure
            );
        }
    }
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checkout() -> &'static Path {
        Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
    }

    #[test]
    fn the_page_says_what_the_experiments_have_observed() {
        let page = fs::read_to_string(checkout().join(PAGE)).expect("is there");
        let written = guide(checkout()).expect("is made");
        assert!(page == written, "anabranch-lab experiment guide");
    }

    #[test]
    fn what_policies_are_shown_with_is_what_the_experiments_have_observed() {
        let written = fs::read_to_string(checkout().join(OBSERVED)).expect("is there");
        assert!(observed() == written, "anabranch-lab experiment guide");
    }

    #[test]
    fn a_figure_that_nobody_shows_is_refused() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join(WORDS);
        fs::create_dir_all(path.parent().expect("a folder")).expect("makes");
        let line = "[[situation]]\ntitle = 't'\n[[situation.line]]\ntake = 'RR'\nwhere = 'w'\nfigure = '2005-peng-algorithms/fig8/none'\n";
        fs::write(&path, line).expect("writes");
        let error = guide(directory.path()).expect_err("no such claim");
        let error = error.to_string();
        assert!(error.contains("fig8/none\": no claim"), "{error}");
    }
}
