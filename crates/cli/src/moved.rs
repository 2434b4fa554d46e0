//! Subcommands that `anabranch` had and `anabranch-lab` has.

use std::ffi::OsString;

use anabranch_config::BadInput;
use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Each with what is typed in its place; those of `lab` follow the name of the program at once.
const MOVED: [(&str, &str); 4] = [
    ("demo", "anabranch-lab demo"),
    ("sim", "anabranch-lab sim"),
    ("lab", "anabranch-lab"),
    ("experiment", "anabranch-lab experiment"),
];

/// What to type, if `error` is about a subcommand among `words` that has moved.
pub fn refusal(error: &clap::Error, words: &[OsString]) -> Option<BadInput> {
    if error.kind() != ErrorKind::InvalidSubcommand {
        return None;
    }
    let Some(ContextValue::String(unknown)) = error.get(ContextKind::InvalidSubcommand) else {
        return None;
    };
    let (former, present) = MOVED.into_iter().find(|(former, _)| former == unknown)?;
    let mut after = words.iter().skip_while(|word| *word != former).skip(1);
    let next = after.next().and_then(|word| word.to_str());
    let next = next.filter(|word| !word.starts_with('-'));
    let rest = next.map_or_else(String::new, |word| format!(" {word}"));
    Some(BadInput::new(format!(
        "`anabranch {former}{rest}` is a command of the laboratory: type `{present}{rest}`"
    )))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::Args;

    fn refused(line: &str) -> Option<String> {
        let words: Vec<OsString> = line.split(' ').map(Into::into).collect();
        let error = Args::try_parse_from(&words).unwrap_err();
        refusal(&error, &words).map(|refusal| refusal.to_string())
    }

    #[test]
    fn a_former_subcommand_names_the_present_command() {
        for (former, present) in [
            ("anabranch demo --seconds 12", "anabranch-lab demo"),
            ("anabranch sim run a.toml", "anabranch-lab sim run"),
            ("anabranch lab run a.toml", "anabranch-lab run"),
            ("anabranch --instance b lab attack", "anabranch-lab attack"),
            ("anabranch lab --help", "anabranch-lab"),
            ("anabranch experiment list", "anabranch-lab experiment list"),
        ] {
            let line = refused(former).unwrap();
            assert!(line.ends_with(&format!(": type `{present}`")), "{line}");
        }
    }

    #[test]
    fn other_words_are_no_former_subcommands() {
        for line in ["anabranch stats", "anabranch link stop demo", "anabranch"] {
            assert_eq!(refused(line), None, "{line}");
        }
    }
}
