//! Links and sites, and the way through them.

/// Hops of one path.
pub const MAX_HOPS: usize = 3;

/// One link of a network, in one direction: a pipe, as dummynet calls it. A gateway's link has two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PipeId(u32);

/// Marks the number of a link that one other feeds, and nothing else.
pub(super) const FED: u32 = 1 << 30;

impl PipeId {
    pub(super) fn new(index: u32) -> PipeId {
        PipeId(index)
    }

    pub(super) fn fed(index: u32) -> PipeId {
        PipeId(index | FED)
    }

    #[inline]
    pub(super) fn is_fed(self) -> bool {
        self.0 & FED != 0
    }

    #[inline]
    pub(super) fn index(self) -> usize {
        (self.0 & !FED) as usize
    }
}

/// A place between links; its owner gives the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SiteId(pub u16);

/// One path of a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathId(pub(super) u32);

/// A link or a site of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hop(u32);

/// Marks the number of a site.
pub(super) const SITE: u32 = 1 << 31;

impl From<PipeId> for Hop {
    fn from(link: PipeId) -> Hop {
        Hop(link.0)
    }
}

impl From<SiteId> for Hop {
    fn from(site: SiteId) -> Hop {
        Hop(u32::from(site.0) | SITE)
    }
}

pub(crate) enum Stop {
    Link(PipeId),
    Site(SiteId),
}

impl Hop {
    #[inline]
    pub(crate) fn stop(self) -> Stop {
        if self.0 & SITE == 0 {
            Stop::Link(PipeId(self.0))
        } else {
            Stop::Site(SiteId((self.0 & !SITE) as u16))
        }
    }
}

/// The hops ahead.
#[derive(Clone, Copy, Debug)]
pub struct Path {
    hops: [Hop; MAX_HOPS],
    /// The place of the next hop, and of the one after the last.
    next: u8,
    end: u8,
}

impl Path {
    /// Nothing is ahead.
    pub(crate) fn empty() -> Path {
        Path {
            hops: [Hop(0); MAX_HOPS],
            next: 0,
            end: 0,
        }
    }

    /// # Panics
    /// If there are no hops, or more than [`MAX_HOPS`].
    pub fn new(hops: &[impl Into<Hop> + Copy]) -> Self {
        let count = hops.len();
        assert!(
            (1..=MAX_HOPS).contains(&count),
            "a path has 1 to {MAX_HOPS} hops, not {count}"
        );
        let mut path = Path::empty();
        path.end = count as u8;
        for (place, hop) in path.hops.iter_mut().zip(hops) {
            *place = (*hop).into();
        }
        path
    }

    /// Whether nothing is ahead.
    pub fn is_empty(&self) -> bool {
        self.next == self.end
    }

    pub(super) fn ahead(&self) -> &[Hop] {
        &self.hops[usize::from(self.next)..usize::from(self.end)]
    }

    /// The number of the first hop, 0 if there is none.
    pub(super) fn first_number(&self) -> u32 {
        self.ahead().first().map_or(0, |hop| hop.0)
    }

    #[inline]
    fn peek(&self) -> Option<Hop> {
        let hop = self.hops.get(usize::from(self.next)).copied();
        hop.filter(|_| self.next < self.end)
    }

    /// Takes the next hop off the path.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<Hop> {
        let next = self.peek()?;
        self.next += 1;
        Some(next)
    }

    /// With the hop that was taken off it last.
    pub(super) fn with_former(mut self) -> Path {
        self.next = self.next.saturating_sub(1);
        self
    }

    /// Takes the next hop off the path if it is a fed link.
    #[inline]
    pub(super) fn next_fed(&mut self) -> Option<PipeId> {
        match self.peek()?.stop() {
            Stop::Link(link) if link.is_fed() => {
                self.next += 1;
                Some(link)
            }
            _ => None,
        }
    }
}
