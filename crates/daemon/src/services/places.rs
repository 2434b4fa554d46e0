//! Assigns places to a number of things, so that each keeps the place that it has.

/// The place of each of `wanted`: its place in `known`, or else the first that nobody has had, or else the first that is not in
/// use. `known` has what is at each place. A place that `is_in_use` is not reassigned, even if its owner is not wanted any more.
/// None: no place is left for it.
pub fn places<T: PartialEq>(
    known: &[Option<T>],
    wanted: &[T],
    is_in_use: impl Fn(usize) -> bool,
) -> Vec<Option<u16>> {
    let place_of = |thing: &T| known.iter().position(|other| other.as_ref() == Some(thing));
    let mut taken: Vec<usize> = wanted.iter().filter_map(place_of).collect();
    let free = |taken: &mut Vec<usize>| {
        let mut places = (0..known.len()).filter(|place| !taken.contains(place));
        let never_used = places.clone().find(|place| known[*place].is_none());
        let place = never_used.or_else(|| places.find(|place| !is_in_use(*place)))?;
        taken.push(place);
        Some(place)
    };
    wanted
        .iter()
        .map(|thing| {
            let place = place_of(thing).or_else(|| free(&mut taken))?;
            u16::try_from(place).ok()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn who_is_in_use_keeps_the_place_and_who_is_not_gives_it_up() {
        let known = [Some('a'), Some('b'), None];
        let some = |places: [u16; 2]| places.map(Some).to_vec();
        assert_eq!(places(&known, &['c', 'a'], |_| true), some([2, 0]));
        assert_eq!(
            places(&known, &['c', 'd'], |place| place == 0),
            some([2, 1])
        );
        assert_eq!(
            places(&known, &['c', 'd', 'a'], |_| true),
            [Some(2), None, Some(0)]
        );
    }

    proptest! {
        #[test]
        fn no_two_have_one_place_and_nobody_moves(
            known in proptest::collection::vec(proptest::option::of(0u8..8), 8),
            wanted in proptest::collection::hash_set(0u8..16, 0..6),
        ) {
            let mut seen = std::collections::HashSet::new();
            let known: Vec<_> = known.into_iter().map(|one| one.filter(|one| seen.insert(*one))).collect();
            let wanted: Vec<u8> = wanted.into_iter().collect();
            let found: Option<Vec<_>> = places(&known, &wanted, |_| false).into_iter().collect();
            let found = found.expect("there are eight places for six");
            let different: std::collections::HashSet<_> = found.iter().collect();
            prop_assert_eq!(different.len(), wanted.len());
            for (thing, place) in wanted.iter().zip(&found) {
                if let Some(before) = known.iter().position(|other| *other == Some(*thing)) {
                    prop_assert_eq!(before, usize::from(*place));
                }
            }
        }
    }
}
