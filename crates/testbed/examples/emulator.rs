//! Measures the link emulator on this machine: rate error under overload, delay error under load, loss. Prints one
//! JSON document; exits with 1 if the contract (mean rate within 0.5 %, delay within 0.5 ms p99 at ≤ 100 Mbit/s) or
//! the validity of a trial is broken.
//!
//! `cargo run --release -p anabranch-testbed --example emulator [seconds per trial]`

use std::process::ExitCode;
use std::time::Duration;

use anabranch_testbed::calibrate::{Figures, Trial, run};
use anabranch_testbed::emulator::lossless;

const RATE_ERROR_MAX: f64 = 0.005;
const DELAY_ERROR_P99_MAX_US: f64 = 500.0;

fn trials(seconds: f64) -> Vec<Trial> {
    let trial = |mbps: u64, delay_us, load, packet_bytes| Trial {
        line: lossless(mbps * 1_000_000, Duration::from_micros(delay_us)),
        load,
        packet_bytes,
        seconds,
    };
    vec![
        trial(10, 10_000, 1.5, 1500),
        trial(20, 10_000, 1.5, 1500),
        trial(100, 10_000, 1.3, 1500),
        trial(500, 10_000, 1.1, 1500),
        trial(1, 10_000, 0.8, 1500),
        trial(20, 10_000, 0.8, 1500),
        trial(100, 10_000, 0.8, 1500),
        trial(100, 1_000, 0.8, 1500),
        trial(100, 100_000, 0.8, 200),
        trial(300, 10_000, 0.8, 1500),
    ]
}

fn keeps_its_word(figures: &Figures) -> bool {
    let rate_is_right = figures.rate_error.abs() <= RATE_ERROR_MAX;
    let delay_is_right = figures.trial.load > 1.0
        || figures.trial.line.rate_bps > 100_000_000
        || figures.delay_error_p99_us <= DELAY_ERROR_P99_MAX_US;
    rate_is_right && delay_is_right && figures.problems.is_empty()
}

fn main() -> ExitCode {
    let seconds = std::env::args().nth(1).map_or(Ok(3.0), |word| word.parse());
    let Ok(seconds) = seconds else {
        eprintln!("usage: emulator [seconds per trial]");
        return ExitCode::from(2);
    };
    let figures = trials(seconds).into_iter().map(run);
    let figures = match figures.collect::<Result<Vec<_>, _>>() {
        Ok(figures) => figures,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
    };
    println!(
        "{}",
        serde_json::to_string_pretty(&figures).expect("figures are plain data")
    );
    if figures.iter().all(keeps_its_word) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
