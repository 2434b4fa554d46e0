//! Ctrl-C, and what a service manager sends, as an order to end early.

use std::thread;

use anabranch_workload::client::Stop;
use tokio::signal::unix::{SignalKind, signal};

use crate::PROGRAM;

/// As shells have it: 128, and the number of SIGINT.
pub const EXIT_CODE: u8 = 130;

/// What was asked for was not completed, because somebody ended it.
#[derive(Debug, thiserror::Error)]
#[error("interrupted; {kept}")]
pub struct Interrupted {
    /// What is kept, and how to go on.
    pub kept: String,
}

/// An order that the next interrupt gives, so that everything is taken down. The interrupt after that ends the process
/// where it stands.
pub fn stop() -> anyhow::Result<Stop> {
    let stop = Stop::default();
    let ordered = stop.clone();
    on_interrupts(move || {
        if ordered.is_ordered() {
            leave("what it had built is removed by the next laboratory");
        }
        ordered.order();
    })?;
    Ok(stop)
}

/// The next interrupt ends the process: for work that leaves nothing behind that has to be undone.
pub fn leave_at_once(kept: String) -> anyhow::Result<()> {
    on_interrupts(move || leave(&kept))
}

fn leave(kept: &str) {
    let kept = kept.to_owned();
    eprintln!("\n{PROGRAM}: {}", Interrupted { kept });
    std::process::exit(EXIT_CODE.into());
}

fn on_interrupts(mut act: impl FnMut() + Send + 'static) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let (mut interrupt, mut terminate) = {
        let _inside = runtime.enter();
        (
            signal(SignalKind::interrupt())?,
            signal(SignalKind::terminate())?,
        )
    };
    thread::spawn(move || {
        loop {
            runtime.block_on(async {
                tokio::select! { _ = interrupt.recv() => {}, _ = terminate.recv() => {} }
            });
            act();
        }
    });
    Ok(())
}
