//! Packets live in one slab and are passed around by index.

/// Where a packet is in the slab; valid until the packet is taken out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketId(pub(crate) u32);

/// All packets in the network. A freed place is the next to be used, while the cache still has it.
#[derive(Debug)]
pub struct Slab<P> {
    places: Vec<P>,
    free: Vec<PacketId>,
    inserted: u64,
}

impl<P> Default for Slab<P> {
    fn default() -> Self {
        Slab {
            places: Vec::new(),
            free: Vec::new(),
            inserted: 0,
        }
    }
}

impl<P: Copy> Slab<P> {
    /// # Panics
    /// If there are 2³² packets at once.
    #[inline]
    pub fn insert(&mut self, packet: P) -> PacketId {
        self.inserted += 1;
        if let Some(id) = self.free.pop() {
            self.places[id.0 as usize] = packet;
            return id;
        }
        let id = PacketId(u32::try_from(self.places.len()).expect("2^32 packets at once"));
        self.places.push(packet);
        id
    }

    /// What stands at a place that is taken.
    #[inline]
    pub fn get(&self, id: PacketId) -> &P {
        &self.places[id.0 as usize]
    }

    /// The same, to be changed.
    #[inline]
    pub fn get_mut(&mut self, id: PacketId) -> &mut P {
        &mut self.places[id.0 as usize]
    }

    /// Takes the packet out and looks at it where it was, until its place is given to another.
    #[inline]
    pub fn take(&mut self, id: PacketId) -> &P {
        self.free.push(id);
        &self.places[id.0 as usize]
    }

    /// Takes the packet out; its place may be given to another.
    #[inline]
    pub fn remove(&mut self, id: PacketId) -> P {
        self.free.push(id);
        self.places[id.0 as usize]
    }

    /// Packets that were ever in the network.
    pub fn inserted(&self) -> u64 {
        self.inserted
    }

    /// Packets in the network.
    pub fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Packets for which there is memory.
    pub fn places(&self) -> usize {
        self.places.len()
    }

    /// Whether no place is taken.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_used_again_and_only_after_its_packet_left() {
        let mut slab = Slab::default();
        let a = slab.insert('a');
        let b = slab.insert('b');
        assert_eq!(slab.remove(a), 'a');
        let c = slab.insert('c');
        assert_eq!(c, a);
        assert_eq!((*slab.get(b), *slab.get(c), slab.len()), ('b', 'c', 2));
    }
}
