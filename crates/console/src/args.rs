//! Parts of command lines.

use std::ffi::OsStr;

use clap::CommandFactory;
use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use clap_complete::Shell;

use crate::output::print;

/// Prints the completion script of a command for a shell.
pub fn completions<C: CommandFactory>(shell: Shell) -> anyhow::Result<()> {
    let mut command = C::command();
    let name = command.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, name, &mut script);
    print(String::from_utf8(script)?)
}

/// Any word, of which completions offer these. Whether it is right is judged where it is used.
pub fn hinted(names: fn() -> Vec<String>) -> impl TypedValueParser<Value = String> {
    Hinted(names)
}

#[derive(Clone)]
struct Hinted(fn() -> Vec<String>);

impl TypedValueParser for Hinted {
    type Value = String;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<String, clap::Error> {
        StringValueParser::new().parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new((self.0)().into_iter().map(PossibleValue::new)))
    }
}
