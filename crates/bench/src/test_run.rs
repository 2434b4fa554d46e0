//! Programs under `BPF_PROG_TEST_RUN`, on a packet that they send on.

use std::time::Duration;

use anabranch_dataplane::despite_signals;
use anyhow::{Result, ensure};
use aya::programs::{SchedClassifier, TestRun, TestRunOptions};

const TC_ACT_REDIRECT: u32 = 7;
/// Of the EtherType, and what it is for IPv6.
const TYPE_AT: usize = 12;
const IPV6: [u8; 2] = [0x86, 0xdd];

/// What a program made of a packet that it sent on each time.
pub struct Run {
    pub packet: Vec<u8>,
    /// Mean of the repetitions.
    pub took: Duration,
}

/// Runs `program` on a frame, and on what it made of that, `repeat` times.
pub fn test_run(program: &mut SchedClassifier, frame: &[u8], repeat: u32) -> Result<Run> {
    let mut packet = vec![0; frame.len()];
    let ran = despite_signals(|| {
        program.test_run(TestRunOptions {
            data_in: Some(frame),
            data_out: Some(&mut packet),
            repeat,
            ..TestRunOptions::new()
        })
    })?;
    ensure!(
        ran.return_value == TC_ACT_REDIRECT,
        "the program answered {}",
        ran.return_value
    );
    ensure!(
        u32::from(packet[ttl_at(frame)]) + repeat == u32::from(frame[ttl_at(frame)]),
        "the packet was not sent on each time"
    );
    Ok(Run {
        packet,
        took: ran.duration,
    })
}

fn ttl_at(frame: &[u8]) -> usize {
    if frame[TYPE_AT..TYPE_AT + 2] == IPV6 {
        21
    } else {
        22
    }
}
