use clap::CommandFactory;
use clap_complete::Shell;

use crate::args::Args;
use crate::output::print;

pub fn run(shell: Shell) -> anyhow::Result<()> {
    let mut command = Args::command();
    let name = command.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, name, &mut script);
    print(String::from_utf8(script)?)
}
