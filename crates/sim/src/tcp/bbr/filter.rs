//! The greatest of the last values, in constant space.

/// Kathleen Nichols' filter (`lib/win_minmax.c`): the best value of a window, the best after it and the best after that,
/// so that there is one to fall back on when the first is too old.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WindowedMax {
    /// The greatest first; none is older than the one before.
    best: [Value; 3],
}

#[derive(Clone, Copy, Debug, Default)]
struct Value {
    at: u32,
    value: f64,
}

impl WindowedMax {
    /// 0 before the first value.
    pub fn get(&self) -> f64 {
        self.best[0].value
    }

    /// Takes a value in at `at`; values from before `at - window` no longer count.
    pub fn update(&mut self, window: u32, at: u32, value: f64) {
        let new = Value { at, value };
        let [first, second, third] = &mut self.best;
        if value >= first.value || at - third.at > window {
            self.best = [new; 3];
            return;
        }
        if value >= second.value {
            (*second, *third) = (new, new);
        } else if value >= third.value {
            *third = new;
        }
        self.age(window, new);
    }

    fn age(&mut self, window: u32, new: Value) {
        let [first, second, third] = &mut self.best;
        let age = new.at - first.at;
        if age > window {
            (*first, *second, *third) = (*second, *third, new);
            if new.at - first.at > window {
                (*first, *second, *third) = (*second, *third, new);
            }
        } else if second.at == first.at && age > window / 4 {
            (*second, *third) = (new, new);
        } else if third.at == second.at && age > window / 2 {
            *third = new;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_greatest_is_forgotten_when_it_is_older_than_the_window() {
        let mut filter = WindowedMax::default();
        filter.update(10, 0, 100.);
        for at in 1..=10 {
            filter.update(10, at, 50.);
            assert_eq!(filter.get(), 100.);
        }
        filter.update(10, 11, 50.);
        assert_eq!(filter.get(), 50.);
    }

    proptest! {
        /// The filter may forget a value that never was among the best three, and remembers none too long.
        #[test]
        fn it_is_no_greater_than_the_window_and_no_less_than_the_present(
            values in prop::collection::vec((0u32..4, 1u32..100), 1..100),
        ) {
            let mut filter = WindowedMax::default();
            let (mut at, mut seen) = (0, Vec::new());
            for (later, value) in values {
                at += later;
                let value = f64::from(value);
                seen.push((at, value));
                filter.update(10, at, value);
                let window = seen.iter().filter(|(then, _)| at - then <= 10);
                let greatest = window.map(|(_, value)| *value).fold(0., f64::max);
                prop_assert!(filter.get() <= greatest && filter.get() >= value);
            }
        }
    }
}
