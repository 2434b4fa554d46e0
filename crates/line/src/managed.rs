//! Queues that decide what leaves them when it leaves: CoDel, by itself and for each flow.
//!
//! A queue holds packets as whoever drives it names them, and is told the time. It never asks for the rate of the line:
//! whoever sends asks for the next packet when the last is sent.

mod codel;
mod fq;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use crate::{Buffer, Codel, Queue, Tally};
use codel::Law;
use fq::Fq;

/// A packet in a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting<P> {
    /// As its owner knows it.
    pub packet: P,
    /// On the wire.
    pub bytes: u32,
    /// When it came.
    pub since_ns: u64,
    /// The hash of its flow.
    pub flow: u32,
    /// Whether it may be marked instead of dropped (RFC 3168).
    pub ect: bool,
}

/// A packet that leaves its queue to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leaving<P> {
    /// As it came.
    pub waiting: Waiting<P>,
    /// Whether congestion is to be noted on it: CE of RFC 3168.
    pub marked: bool,
}

/// A queue whose packets are judged when they leave.
#[derive(Debug)]
pub struct ManagedQueue<P> {
    kind: Kind<P>,
    limit: Buffer,
    waiting: Tally,
}

#[derive(Debug)]
enum Kind<P> {
    Codel(Codel, Law, Fifo<P>),
    FqCodel(Fq<P>),
}

impl<P: Copy> ManagedQueue<P> {
    /// None if `queue` judges packets when they come, or not at all.
    pub fn new(queue: &Queue, limit: Buffer) -> Option<Self> {
        let kind = match *queue {
            Queue::DropTail | Queue::Red(_) => return None,
            Queue::Codel(codel) => Kind::Codel(codel, Law::default(), Fifo::default()),
            Queue::FqCodel(fq) => Kind::FqCodel(Fq::new(fq)),
        };
        Some(ManagedQueue {
            kind,
            limit,
            waiting: Tally::default(),
        })
    }

    /// What waits.
    pub fn waiting(&self) -> Tally {
        self.waiting
    }

    /// All that waits, in any order.
    pub fn iter(&self) -> impl Iterator<Item = &Waiting<P>> {
        let (one, flows) = match &self.kind {
            Kind::Codel(_, _, fifo) => (Some(fifo.iter()), None),
            Kind::FqCodel(fq) => (None, Some(fq.iter())),
        };
        one.into_iter().flatten().chain(flows.into_iter().flatten())
    }

    /// Takes a packet in while `sent` is in transmission, for which the buffer has to have room, too. What finds none
    /// joins `overflowed`: the packet itself, or, of flow queues, what is at the head of the longest.
    pub fn push(&mut self, packet: Waiting<P>, sent: Tally, overflowed: &mut Vec<Waiting<P>>) {
        let full = |waiting: Tally| match self.limit {
            Buffer::Bytes(bytes) => waiting.bytes + sent.bytes > bytes,
            Buffer::Packets(packets) => waiting.packets + sent.packets > packets,
            Buffer::Unlimited => false,
        };
        self.waiting.add(packet.bytes.into());
        match &mut self.kind {
            Kind::Codel(_, _, fifo) => {
                if full(self.waiting) {
                    self.waiting.remove(packet.bytes.into());
                    overflowed.push(packet);
                } else {
                    fifo.push(packet);
                }
            }
            Kind::FqCodel(fq) => {
                fq.push(packet);
                while full(self.waiting) && self.waiting.packets > 0 {
                    let before = overflowed.len();
                    fq.shed(overflowed);
                    self.waiting.remove_all(&overflowed[before..]);
                }
            }
        }
    }

    /// The packet to be sent at `now_ns`; those dropped before it join `dropped`.
    pub fn pop(&mut self, now_ns: u64, dropped: &mut Vec<Waiting<P>>) -> Option<Leaving<P>> {
        let before = dropped.len();
        let leaving = match &mut self.kind {
            Kind::Codel(codel, law, fifo) => law.dequeue(codel, now_ns, fifo, dropped),
            Kind::FqCodel(fq) => fq.pop(now_ns, dropped),
        };
        self.waiting.remove_all(&dropped[before..]);
        let (waiting, marked) = leaving?;
        self.waiting.remove(waiting.bytes.into());
        Some(Leaving { waiting, marked })
    }

    /// Forgets all that waits.
    pub fn clear(&mut self) {
        match &mut self.kind {
            Kind::Codel(_, law, fifo) => (*law, *fifo) = (Law::default(), Fifo::default()),
            Kind::FqCodel(fq) => fq.clear(),
        }
        self.waiting = Tally::default();
    }
}

impl Tally {
    fn remove(&mut self, bytes: u64) {
        self.packets -= 1;
        self.bytes -= bytes;
    }

    fn remove_all<P>(&mut self, gone: &[Waiting<P>]) {
        gone.iter()
            .for_each(|packet| self.remove(packet.bytes.into()));
    }
}

/// First in, first out, and how much that is.
#[derive(Debug)]
struct Fifo<P> {
    packets: VecDeque<Waiting<P>>,
    tally: Tally,
}

impl<P> Default for Fifo<P> {
    fn default() -> Self {
        Fifo {
            packets: VecDeque::new(),
            tally: Tally::default(),
        }
    }
}

impl<P: Copy> Fifo<P> {
    fn push(&mut self, packet: Waiting<P>) {
        self.tally.add(packet.bytes.into());
        self.packets.push_back(packet);
    }

    fn pop(&mut self) -> Option<Waiting<P>> {
        let packet = self.packets.pop_front()?;
        self.tally.remove(packet.bytes.into());
        Some(packet)
    }

    fn tally(&self) -> Tally {
        self.tally
    }

    fn iter(&self) -> impl Iterator<Item = &Waiting<P>> {
        self.packets.iter()
    }
}
