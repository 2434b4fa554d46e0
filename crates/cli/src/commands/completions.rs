use std::io;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::args::Args;

pub fn run(shell: Shell) -> anyhow::Result<()> {
    let mut command = Args::command();
    let name = command.get_name().to_owned();
    clap_complete::generate(shell, &mut command, name, &mut io::stdout());
    Ok(())
}
