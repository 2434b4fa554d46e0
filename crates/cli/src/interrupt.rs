//! Ctrl-C, and what a service manager sends, as an order to end a run early.

use std::thread;

use anabranch_workload::client::Stop;
use tokio::signal::unix::{SignalKind, signal};

/// An order that the next interrupt gives. From here on an interrupt does nothing else.
pub fn stop() -> anyhow::Result<Stop> {
    let stop = Stop::default();
    let ordered = stop.clone();
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
        runtime.block_on(async {
            tokio::select! { _ = interrupt.recv() => {}, _ = terminate.recv() => {} }
        });
        ordered.order();
    });
    Ok(stop)
}
