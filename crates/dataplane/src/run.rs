//! Running a loaded program on a packet of one's own (`BPF_PROG_TEST_RUN`).

use std::time::Duration;

use aya::{TestRun, TestRunOptions, programs::SchedClassifier};

use anabranch_policy::abi;

use crate::{Error, despite_signals};

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

/// What a program may add to a frame: the headers of an ICMP error, or of a frame and a tunnel.
const ROOM_TO_GROW: usize = 128;

/// Of `struct __sk_buff`: where the mark and the words of programs stand, and how much of it is given.
const CONTEXT_MARK: usize = 8;
const CONTEXT_WORDS: usize = 48;
const CONTEXT: usize = 68;

/// Whose mark a frame bears as it arrives (`bpf/lib/packet/mark.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Marked {
    /// Somebody else's; 0: nobody's.
    ByOthers(u32),
    /// A program's that has sent it back.
    ByPrograms(u32),
}

impl Marked {
    /// The beginning of `struct __sk_buff` as it says so.
    pub fn context(self) -> [u8; CONTEXT] {
        let mut context = [0; CONTEXT];
        let mut put = |at: usize, word: u32| {
            context[at..][..4].copy_from_slice(&word.to_ne_bytes());
        };
        match self {
            Self::ByOthers(mark) => put(CONTEXT_MARK, mark),
            Self::ByPrograms(mark) => {
                put(CONTEXT_MARK, mark);
                put(CONTEXT_WORDS, abi::SENT_BACK_0);
                put(CONTEXT_WORDS + 4, abi::SENT_BACK_1);
            }
        }
        context
    }
}
/// More than any kernel has of it, all of which it writes.
const CONTEXT_ROOM: usize = 512;

/// Runs a classifier on an Ethernet frame that is marked so, `repeat` times. State changes; nothing is transmitted.
pub fn run(
    program: &mut SchedClassifier,
    name: &'static str,
    frame: &[u8],
    marked: Marked,
    repeat: u32,
) -> Result<Ran, Error> {
    let context = marked.context();
    let mut left = [0; CONTEXT_ROOM];
    let mut packet = vec![0; frame.len() + ROOM_TO_GROW];
    let ran = despite_signals(|| {
        program.test_run(TestRunOptions {
            data_in: Some(frame),
            data_out: Some(&mut packet),
            ctx_in: Some(&context),
            ctx_out: Some(&mut left),
            repeat,
            ..TestRunOptions::new()
        })
    })
    .map_err(Error::program(name))?;
    packet.truncate(ran.data_size_out as usize);
    Ok(Ran {
        action: ran.return_value,
        packet,
        mark: u32::from_ne_bytes(std::array::from_fn(|at| left[CONTEXT_MARK + at])),
        took: ran.duration,
    })
}
