//! Flow queueing, RFC 8290: queues that take turns by deficit round robin, a CoDel in each. A queue that gets its first
//! packet goes before those that had some already, so that flows which send little wait for nobody.

use std::collections::VecDeque;

use crate::{FqCodel, Waiting};

use super::Fifo;
use super::codel::Law;

/// Dropped at once from the longest queue at most (RFC 8290, section 4.1).
const BATCH: usize = 64;

#[derive(Debug)]
pub(super) struct Fq<P> {
    fq: FqCodel,
    queues: Vec<Flow<P>>,
    /// Those that are served, by their numbers: first those that have just got a packet.
    fresh: VecDeque<u32>,
    old: VecDeque<u32>,
}

/// The queue of the flows of one number.
#[derive(Debug)]
struct Flow<P> {
    fifo: Fifo<P>,
    law: Law,
    deficit_bytes: i64,
    /// Whether it is among those that are served.
    listed: bool,
}

impl<P> Default for Flow<P> {
    fn default() -> Self {
        Flow {
            fifo: Fifo::default(),
            law: Law::default(),
            deficit_bytes: 0,
            listed: false,
        }
    }
}

impl<P: Copy> Fq<P> {
    pub fn new(fq: FqCodel) -> Self {
        Fq {
            queues: (0..fq.flows).map(|_| Flow::default()).collect(),
            fq,
            fresh: VecDeque::new(),
            old: VecDeque::new(),
        }
    }

    pub fn push(&mut self, packet: Waiting<P>) {
        let number = packet.flow % self.fq.flows;
        let flow = &mut self.queues[number as usize];
        flow.fifo.push(packet);
        if !flow.listed {
            flow.listed = true;
            flow.deficit_bytes = i64::from(self.fq.quantum_bytes);
            self.fresh.push_back(number);
        }
    }

    /// The packet that leaves at `now_ns`, and whether it is marked; what is dropped before it joins `dropped`.
    pub fn pop(
        &mut self,
        now_ns: u64,
        dropped: &mut Vec<Waiting<P>>,
    ) -> Option<(Waiting<P>, bool)> {
        loop {
            let is_fresh = !self.fresh.is_empty();
            let list = if is_fresh {
                &mut self.fresh
            } else {
                &mut self.old
            };
            let number = *list.front()?;
            let flow = &mut self.queues[number as usize];
            if flow.deficit_bytes <= 0 {
                flow.deficit_bytes += i64::from(self.fq.quantum_bytes);
                list.pop_front();
                self.old.push_back(number);
                continue;
            }
            let codel = &self.fq.codel;
            if let Some(leaving) = flow.law.dequeue(codel, now_ns, &mut flow.fifo, dropped) {
                flow.deficit_bytes -= i64::from(leaving.0.bytes);
                return Some(leaving);
            }
            list.pop_front();
            if is_fresh {
                self.old.push_back(number);
            } else {
                flow.listed = false;
            }
        }
    }

    /// Half of the packets of the longest queue go, from its head.
    pub fn shed(&mut self, dropped: &mut Vec<Waiting<P>>) {
        let longest = self.queues.iter_mut().rev();
        let Some(flow) = longest.max_by_key(|flow| flow.fifo.tally().bytes) else {
            return;
        };
        let half = flow.fifo.tally().packets as usize / 2;
        dropped.extend((0..half.clamp(1, BATCH)).map_while(|_| flow.fifo.pop()));
    }

    pub fn iter(&self) -> impl Iterator<Item = &Waiting<P>> {
        self.queues.iter().flat_map(|flow| flow.fifo.iter())
    }

    pub fn clear(&mut self) {
        self.fresh.clear();
        self.old.clear();
        self.queues.fill_with(Flow::default);
    }
}
