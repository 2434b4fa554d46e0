//! Running a loaded program on a packet of one's own (`BPF_PROG_TEST_RUN`).

use std::time::Duration;

use aya::{TestRun, TestRunOptions, programs::SchedClassifier};

use crate::Error;

/// What a program made of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ran {
    /// A `TC_ACT_*` value: 7 redirect, 2 drop, 0xffffffff leave to the stack.
    pub action: u32,
    /// As the program left it.
    pub packet: Vec<u8>,
    /// The `skb->mark` it left with.
    pub mark: u32,
    /// Mean of the repetitions.
    pub took: Duration,
}

/// What a program may add to a frame: the headers of an ICMP error.
const ROOM_TO_GROW: usize = 64;

/// Of `struct __sk_buff`: where the mark stands, and how much of it is given.
const CONTEXT_MARK: usize = 8;
const CONTEXT: usize = 12;
/// More than any kernel has of it, all of which it writes.
const CONTEXT_ROOM: usize = 512;

/// Runs a classifier on an Ethernet frame with `mark` as its `skb->mark`, `repeat` times. State changes; nothing is transmitted.
pub fn run(
    program: &mut SchedClassifier,
    name: &'static str,
    frame: &[u8],
    mark: u32,
    repeat: u32,
) -> Result<Ran, Error> {
    let mut context = [0; CONTEXT];
    context[CONTEXT_MARK..].copy_from_slice(&mark.to_ne_bytes());
    let mut left = [0; CONTEXT_ROOM];
    let mut packet = vec![0; frame.len() + ROOM_TO_GROW];
    let options = TestRunOptions {
        data_in: Some(frame),
        data_out: Some(&mut packet),
        ctx_in: Some(&context),
        ctx_out: Some(&mut left),
        repeat,
        ..TestRunOptions::new()
    };
    let ran = program.test_run(options).map_err(Error::program(name))?;
    packet.truncate(ran.data_size_out as usize);
    Ok(Ran {
        action: ran.return_value,
        packet,
        mark: u32::from_ne_bytes(std::array::from_fn(|at| left[CONTEXT_MARK + at])),
        took: ran.duration,
    })
}
