//! Runs that are carried out a second time: a world that is not deterministic would otherwise go unnoticed.

use std::time::Duration;

use anabranch_scenario::{Record, Run};

/// Does something twice, which costs twice the time: what came of the first time, and the problem if `difference` tells
/// a part in which the second is another.
pub fn repeat<T, E>(
    mut once: impl FnMut() -> Result<T, E>,
    difference: impl FnOnce(&T, &T) -> Option<&'static str>,
) -> Result<(T, Option<String>), E> {
    let first = once()?;
    let second = once()?;
    let problem = difference(&first, &second)
        .map(|part| format!("not deterministic: a second run has other {part}"));
    Ok((first, problem))
}

/// Carries out a run twice. If the records differ, the run has a problem. Progress is told of the first time.
pub fn twice<E>(
    run: &Run,
    progress: &mut dyn FnMut(Duration),
    world: impl Fn(&Run, &mut dyn FnMut(Duration)) -> Result<Record, E>,
) -> Result<Record, E> {
    let mut is_first = true;
    let once = || match std::mem::take(&mut is_first) {
        true => world(run, progress),
        false => world(run, &mut |_| {}),
    };
    let (mut record, problem) = repeat(once, Record::difference)?;
    record.problems.extend(problem);
    Ok(record)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::sweep::tests::{record, runs};

    #[test]
    fn a_world_that_is_not_deterministic_makes_a_run_invalid() {
        let run = &runs("")[0];
        let same = twice(run, &mut |_| {}, |run, _| Ok::<_, String>(record(run)));
        assert!(same.unwrap().problems.is_empty());
        let count = Cell::new(0);
        let other = |run: &Run, _: &mut dyn FnMut(Duration)| {
            count.set(count.get() + 1);
            let mut record = record(run);
            record.transfers[1].bytes = count.get();
            Ok::<_, String>(record)
        };
        assert_eq!(
            twice(run, &mut |_| {}, other).unwrap().problems,
            ["not deterministic: a second run has other transfers"]
        );
    }
}
