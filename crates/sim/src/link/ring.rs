//! A queue whose places are numbered.

/// First in, first out. An element keeps the number under which it came in; numbers wrap around.
#[derive(Debug)]
pub struct Ring<T> {
    /// A power of two of them, or none.
    places: Box<[T]>,
    first: u32,
    end: u32,
}

const LEAST_PLACES: usize = 4;

impl<T> Default for Ring<T> {
    fn default() -> Self {
        Ring {
            places: Box::default(),
            first: 0,
            end: 0,
        }
    }
}

impl<T: Copy + Default> Ring<T> {
    pub fn len(&self) -> usize {
        self.end.wrapping_sub(self.first) as usize
    }

    pub fn is_full(&self) -> bool {
        self.len() == self.places.len()
    }

    /// The number of the next to come.
    pub fn end(&self) -> u32 {
        self.end
    }

    #[inline]
    pub fn at(&self, number: u32) -> &T {
        &self.places[number as usize & (self.places.len() - 1)]
    }

    #[inline]
    pub fn at_mut(&mut self, number: u32) -> &mut T {
        &mut self.places[number as usize & (self.places.len() - 1)]
    }

    pub fn first(&self) -> Option<&T> {
        (self.first != self.end).then(|| self.at(self.first))
    }

    pub fn last(&self) -> Option<&T> {
        (self.first != self.end).then(|| self.at(self.end.wrapping_sub(1)))
    }

    /// Lets go of the first.
    pub fn pop(&mut self) {
        debug_assert!(self.first != self.end, "nothing is there");
        self.first = self.first.wrapping_add(1);
    }

    /// Lets go of all.
    pub fn clear(&mut self) {
        self.first = self.end;
    }

    #[inline]
    pub fn push(&mut self, element: T) {
        if self.is_full() {
            self.grow();
        }
        let end = self.end;
        *self.at_mut(end) = element;
        self.end = end.wrapping_add(1);
    }

    /// From the first on.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        (0..self.len() as u32).map(|i| self.at(self.first.wrapping_add(i)))
    }

    /// The numbers of those from `number` on.
    pub fn from(&self, number: u32) -> impl ExactSizeIterator<Item = u32> + use<T> {
        let end = self.end;
        (0..end.wrapping_sub(number)).map(move |i| number.wrapping_add(i))
    }

    #[cold]
    fn grow(&mut self) {
        let mut places = vec![T::default(); (2 * self.places.len()).max(LEAST_PLACES)];
        for number in self.from(self.first) {
            let mask = places.len() - 1;
            places[number as usize & mask] = *self.at(number);
        }
        self.places = places.into();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_equals_a_queue(steps in prop::collection::vec(any::<bool>(), 1..200)) {
            let mut model = VecDeque::new();
            let mut ring = Ring { places: Box::default(), first: u32::MAX - 20, end: u32::MAX - 20 };
            for (i, push) in steps.into_iter().enumerate() {
                if push {
                    ring.push(i);
                    model.push_back(i);
                } else if model.pop_front().is_some() {
                    ring.pop();
                }
                prop_assert_eq!((ring.first(), ring.last()), (model.front(), model.back()));
                prop_assert!(ring.iter().eq(&model));
            }
        }
    }
}
