//! Troubles that keep the host from being as configured, and when to log them.

use std::collections::BTreeMap;

/// A device may vanish between an inspection and what is done then. So a trouble is logged only if the next inspection meets it,
/// too.
const SAID_AT: u32 = 2;

/// Troubles that the last two inspections of the host have met.
#[derive(Debug, Default)]
pub(crate) struct Troubles(BTreeMap<String, Trouble>);

#[derive(Debug, Default)]
struct Trouble {
    looks_in_a_row: u32,
    /// Met in this inspection.
    is_met: bool,
}

impl Troubles {
    /// Begins an inspection; troubles that the one before did not meet are gone.
    pub fn begin_look(&mut self) {
        self.0
            .retain(|_, trouble| std::mem::take(&mut trouble.is_met));
    }

    /// Whether to log it: once, for as long as it lasts.
    pub fn meet(&mut self, words: &str) -> bool {
        let trouble = self.0.entry(words.to_owned()).or_default();
        if std::mem::replace(&mut trouble.is_met, true) {
            return false;
        }
        trouble.looks_in_a_row = trouble.looks_in_a_row.saturating_add(1);
        trouble.looks_in_a_row == SAID_AT
    }

    /// Troubles that more than one inspection has met: they were logged and last.
    pub fn standing(&self) -> impl Iterator<Item = &str> {
        self.0
            .iter()
            .filter(|(_, trouble)| trouble.is_met && trouble.looks_in_a_row >= SAID_AT)
            .map(|(words, _)| words.as_str())
    }

    /// This look met none.
    pub fn is_clear(&self) -> bool {
        self.met().next().is_none()
    }

    /// Those of this look.
    pub fn met(&self) -> impl Iterator<Item = &str> {
        self.0
            .iter()
            .filter(|(_, trouble)| trouble.is_met)
            .map(|(words, _)| words.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said<'a>(troubles: &mut Troubles, met: &[&'a str]) -> Vec<&'a str> {
        troubles.begin_look();
        let said = met.iter().filter(|words| troubles.meet(words));
        said.copied().collect()
    }

    #[test]
    fn each_of_several_troubles_is_said_once_while_it_lasts() {
        let mut troubles = Troubles::default();
        let both = ["attach", "route"];
        let looks: [(&[_], &[_]); 4] = [(&[], &[]), (&both, &both), (&[], &both), (&[], &both)];
        for (expected, standing) in looks {
            assert_eq!(said(&mut troubles, &both), expected);
            assert!(troubles.standing().eq(standing.iter().copied()));
        }
        assert!(troubles.met().eq(both));
    }

    #[test]
    fn trouble_that_returns_is_said_again_and_one_look_of_it_never() {
        let mut troubles = Troubles::default();
        assert_eq!(said(&mut troubles, &["attach", "attach"]), [""; 0]);
        assert_eq!(said(&mut troubles, &["route"]), [""; 0]);
        assert_eq!(said(&mut troubles, &["attach", "route"]), ["route"]);
        assert_eq!(said(&mut troubles, &[]), [""; 0]);
        assert_eq!(
            (troubles.met().count(), troubles.standing().count()),
            (0, 0)
        );
        assert_eq!(said(&mut troubles, &["route"]), [""; 0]);
        assert_eq!(said(&mut troubles, &["route"]), ["route"]);
    }
}
