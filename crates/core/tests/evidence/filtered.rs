//! Ways of asking that are filtered.

use super::*;

#[test]
fn one_or_two_ways_of_asking_that_are_filtered_cost_a_link_nothing_from_the_start_or_later() {
    let traffic: [fn(Time) -> Traffic; 2] = [
        |_| nothing(),
        |now| match (now.as_nanos() / 1_000_000_000).is_multiple_of(4) {
            true => unanswered(),
            false => nothing(),
        },
    ];
    for (filtered, known_s) in ALL_KINDS
        .iter()
        .flat_map(|one| {
            [
                vec![*one],
                ALL_KINDS.into_iter().filter(|kind| kind != one).collect(),
            ]
        })
        .flat_map(|filtered| [0, 2, 60].map(|known_s| (filtered.clone(), known_s)))
    {
        for carried in traffic {
            let mut line = of_kinds();
            line.run(S(known_s), |_| true, |_| nothing());
            let passes = |target: usize| !filtered.contains(&KINDS[target].kind);
            line.run(S(300), passes, carried);
            let falls = line.falls(Time::ZERO);
            assert_eq!(falls, [], "{filtered:?} after {known_s} s");
            let mut told = line.machine.filtered();
            told.sort();
            let mut wanted = filtered.clone();
            wanted.sort();
            assert_eq!(
                told,
                wanted,
                "after {known_s} s: {:#?}",
                line.machine.targets()
            );
            let quality = line.machine.quality(line.now);
            assert!(quality.judged > 0 && !quality.is_lossy(), "{quality:?}");
            line.run(S(120), |_| true, |_| nothing());
            assert_eq!(line.machine.filtered(), [], "{filtered:?}");
        }
    }
}

#[test]
fn a_cut_is_found_as_fast_with_several_ways_of_asking_and_with_some_of_them_filtered() {
    for filtered in [vec![], vec![Kind::Dns], vec![Kind::Icmp, Kind::Dns]] {
        for (known_s, phase) in [3, 10, 60]
            .into_iter()
            .flat_map(|s| (0..12).map(move |phase| (s, phase)))
        {
            let passes = |target: usize| !filtered.contains(&KINDS[target].kind);
            let mut line = of_kinds();
            line.run(S(known_s) + STEP * 9 * phase, passes, |_| requests());
            let cut = line.now;
            line.run(S(3), |_| false, |_| unanswered());
            let after = line.falls(cut).first().map(|fall| fall.since(cut));
            assert!(
                after.is_some_and(|after| after < S(1)),
                "{filtered:?}, {known_s} s, {phase}: {after:?}"
            );
            line.run(S(10), passes, |_| nothing());
            assert!(!line.is_down());
            let idle = line.now;
            line.run(S(20), passes, |_| nothing());
            let cut = line.now;
            line.run(S(4), |_| false, |_| nothing());
            let after = line.falls(idle).first().map(|fall| fall.since(cut));
            assert!(
                after.is_some_and(|after| after < S(3)),
                "{filtered:?}: {after:?}"
            );
        }
    }
}

#[test]
fn a_link_that_returns_while_a_way_of_asking_is_filtered_is_soon_in_use() {
    let mut line = of_kinds();
    line.run(S(60), |_| true, |_| nothing());
    line.run(S(10), |_| false, |_| nothing());
    assert!(line.is_down());
    let mended = line.now;
    let passes = |target: usize| KINDS[target].kind != Kind::Dns;
    line.run(S(10), passes, |_| nothing());
    let after = line.returns(mended)[0].since(mended);
    assert!(after < S(4), "{after:?}");
}
