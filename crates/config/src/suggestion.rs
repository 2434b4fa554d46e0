//! What somebody who mistyped a word may have meant.

/// Words that agree less are not taken for each other (Jaro and Winkler's measure, from 0 to 1).
const LIKENESS_MIN: f64 = 0.8;

/// The end of a message about a word that is none of the known ones: the nearest of those, if one is near. Case does
/// not count.
pub fn did_you_mean<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let word = word.to_lowercase();
    let likeness = |name: &str| strsim::jaro_winkler(&word, &name.to_lowercase());
    let rated = known.into_iter().map(|name| (likeness(name), name));
    let nearest = rated.max_by(|one, other| one.0.total_cmp(&other.0));
    match nearest.filter(|(likeness, _)| *likeness >= LIKENESS_MIN) {
        Some((_, name)) => format!("; did you mean {name}?"),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_word_is_named_and_none_if_all_are_far() {
        let known = ["WSDM", "RR", "WRR", "hash", "rendezvous"];
        for (word, nearest) in [
            ("WDSM", "WSDM"),
            ("rr2", "RR"),
            ("hsah", "hash"),
            ("rendevouz", "rendezvous"),
        ] {
            assert_eq!(
                did_you_mean(word, known),
                format!("; did you mean {nearest}?")
            );
        }
        assert_eq!(did_you_mean("fastest", known), "");
        assert_eq!(did_you_mean("x", []), "");
    }
}
