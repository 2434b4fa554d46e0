//! Plots beside a result, in a directory that people put files of their own into.
//!
//! A result names the plots that were drawn of it and the digest of each. When another takes its place, the plots of the
//! former go away: exactly the files of these names that still are what was drawn.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use anabranch_results::{OutputError, read_json, sha256_hex};
use serde::{Deserialize, Serialize};

use crate::png::Painter;

/// Plots that are to be written, by the name of the file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Drawings(BTreeMap<String, Vec<u8>>);

/// SHA-256, in hexadecimal, of each plot of a result, by the name of its file: the key `plots` of the result's JSON.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Drawn(BTreeMap<String, String>);

impl Drawings {
    /// `plots` are names without ending, and SVGs; with `png` each is a PNG of the same name too.
    pub fn new(
        plots: impl IntoIterator<Item = (String, String)>,
        png: bool,
    ) -> Result<Drawings, OutputError> {
        let painter = png.then(Painter::default);
        let mut files = BTreeMap::new();
        for (name, svg) in plots {
            if let Some(painter) = &painter {
                files.insert(format!("{name}.png"), painter.paint(&name, &svg)?);
            }
            files.insert(format!("{name}.svg"), svg.into_bytes());
        }
        Ok(Drawings(files))
    }

    /// The digests of all files, by their names.
    pub fn drawn(&self) -> Drawn {
        let files = self.0.iter();
        Drawn(
            files
                .map(|(name, bytes)| (name.clone(), sha256_hex(bytes)))
                .collect(),
        )
    }

    /// Writes all files into `directory`, which must exist.
    pub fn write(&self, directory: &Path) -> Result<(), OutputError> {
        self.0.iter().try_for_each(|(name, bytes)| {
            let path = directory.join(name);
            fs::write(&path, bytes).map_err(OutputError::io(&path))
        })
    }
}

impl Drawn {
    /// The plots of the result whose JSON is `result`; none if there is no such result, or it names none.
    pub fn of(result: &Path) -> Drawn {
        #[derive(Deserialize)]
        struct Named {
            plots: Drawn,
        }
        read_json(result).map_or(Drawn::default(), |named: Named| named.plots)
    }

    /// Adds those of another result of the same folder; of one name the latter stands.
    pub fn extend(&mut self, more: Drawn) {
        self.0.extend(more.0);
    }

    /// Removes these files from `directory`, but those that are something else by now.
    pub fn remove_from(&self, directory: &Path) -> Result<(), OutputError> {
        for (name, drawn) in &self.0 {
            let path = directory.join(name);
            let is_beside = path.parent() == Some(directory);
            let Ok(bytes) = fs::read(&path) else { continue };
            if is_beside && sha256_hex(&bytes) == *drawn {
                remove(&path)?;
            }
        }
        Ok(())
    }
}

fn remove(path: &Path) -> Result<(), OutputError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(OutputError::io(path)(error)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use anabranch_results::write_json;
    use serde_json::json;

    use super::*;

    fn svg(width: u32) -> String {
        format!(r#"<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="40"></svg>"#)
    }

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn what_was_drawn_goes_away_and_what_is_somebodys_own_stays() {
        let out = tempfile::tempdir().unwrap();
        let plots = [("a", 80), ("b", 81), ("c", 82)];
        let plots = plots.map(|(name, width)| (name.to_owned(), svg(width)));
        let drawings = Drawings::new(plots, true).unwrap();
        drawings.write(out.path()).unwrap();
        let result = out.path().join("result.json");
        write_json(&result, &json!({ "rows": [], "plots": drawings.drawn() })).unwrap();
        let path = |name: &str| out.path().join(name);
        fs::write(path("mine.svg"), svg(80)).unwrap();
        fs::write(path("b.svg"), "mine by now").unwrap();
        fs::remove_file(path("c.png")).unwrap();
        let drawn = Drawn::of(&result);
        assert_eq!(drawn, drawings.drawn());
        drawn.remove_from(out.path()).unwrap();
        assert_eq!(names(out.path()), ["b.svg", "mine.svg", "result.json"]);
    }

    #[test]
    fn nothing_is_removed_that_is_not_beside_the_result() {
        let out = tempfile::tempdir().unwrap();
        let inner = out.path().join("inner");
        fs::create_dir(&inner).unwrap();
        fs::write(out.path().join("a.svg"), svg(80)).unwrap();
        let drawn = Drawn([("../a.svg".to_owned(), sha256_hex(svg(80).as_bytes()))].into());
        drawn.remove_from(&inner).unwrap();
        assert!(out.path().join("a.svg").exists());
    }

    #[test]
    fn a_result_of_old_or_none_names_no_plots() {
        let out = tempfile::tempdir().unwrap();
        let result = out.path().join("result.json");
        assert_eq!(Drawn::of(&result), Drawn::default());
        write_json(&result, &json!({ "rows": [] })).unwrap();
        assert_eq!(Drawn::of(&result), Drawn::default());
    }
}
