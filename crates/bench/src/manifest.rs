//! What a reader needs to know to measure the same again.

use std::process::Command;

use anyhow::Result;
use serde::Serialize;

use crate::machine;
use crate::measure::Span;
use crate::testbed::{AnabranchBy, CONGESTION_CONTROL, Conntrack, LINKS};

#[derive(Debug, Serialize)]
pub struct Manifest {
    anabranch: &'static str,
    anabranch_by: AnabranchBy,
    kernel: String,
    cpu: String,
    cpus: usize,
    nft: String,
    iproute2: String,
    runs: usize,
    warm_up_s: f64,
    window_s: f64,
    links: u8,
    congestion_control: &'static str,
    conntrack: Conntrack,
    /// Over the last minute before the first run: what else the machine did.
    load_average: f64,
}

impl Manifest {
    pub fn collect(by: AnabranchBy, runs: usize, span: Span, conntrack: Conntrack) -> Result<Self> {
        Ok(Manifest {
            anabranch: env!("CARGO_PKG_VERSION"),
            anabranch_by: by,
            kernel: nix::sys::utsname::uname()?
                .release()
                .to_string_lossy()
                .into_owned(),
            cpu: machine::cpu_model(),
            cpus: crate::cpu::count(),
            nft: says("nft", "--version"),
            iproute2: says("ip", "-Version"),
            runs,
            warm_up_s: span.warm_up.as_secs_f64(),
            window_s: span.window.as_secs_f64(),
            links: LINKS,
            congestion_control: CONGESTION_CONTROL,
            conntrack,
            load_average: machine::load_average(),
        })
    }

    /// Whether the machine had something else to do when the runs began.
    pub fn was_busy(&self) -> bool {
        self.load_average > 0.5
    }
}

fn says(program: &str, flag: &str) -> String {
    Command::new(program).arg(flag).output().map_or_else(
        |error| error.to_string(),
        |output| String::from_utf8_lossy(&output.stdout).trim().to_owned(),
    )
}
