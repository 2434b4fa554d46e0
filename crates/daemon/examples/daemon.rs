//! The daemon alone: `daemon CONFIG RUNTIME_DIR PINS_DIR INSTANCE`. Prints `ready` once packets are forwarded.

use std::path::Path;
use std::process::ExitCode;

use anabranch_api::Paths;
use anabranch_daemon::{Error, run};
use tracing_subscriber::EnvFilter;

fn main() -> ExitCode {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .init();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [config, runtime, pins, instance] = &arguments[..] else {
        eprintln!("usage: daemon CONFIG RUNTIME_DIR PINS_DIR INSTANCE");
        return ExitCode::from(2);
    };
    let serve = || -> Result<(), Error> {
        let paths = Paths::under(Path::new(runtime), Path::new(pins), instance)?;
        run(Path::new(config), &paths, || println!("ready"))
    };
    match serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(error.exit_code())
        }
    }
}
