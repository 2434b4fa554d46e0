//! How a server is chosen: by policies, as the programs and the native build have them.

use super::*;

#[test]
fn least_connections_go_by_what_is_still_open() {
    let mut rig = Rig::new();
    let family = Family::V4;
    rig.choose_by("LC", family, &[0, 1, 2]);
    let opens = |rig: &mut Rig, port| {
        rig.client_sends(&tcp(client(family, port), web(family), "S", 1, 0))
            .dst()
    };
    let first: Vec<_> = (4000..4003).map(|port| opens(&mut rig, port)).collect();
    let all = [0, 1, 2].map(|number| server(family, number));
    assert_eq!(BTreeSet::from_iter(&first), BTreeSet::from_iter(&all));
    rig.client_sends(&tcp(client(family, 4001), web(family), "R", 2, 0));
    assert_eq!(opens(&mut rig, 4003), first[1]);
}

#[test]
fn the_fastest_server_gets_connections_until_it_is_hot_then_the_next() {
    let mut rig = Rig::new();
    let family = Family::V6;
    let (mut choice, _) = rig.choose_by("Prequal", family, &[0, 1, 2]);
    choice.hot = 3;
    for (number, weight) in [(0, 20), (1, 10), (2, 30)] {
        choice.target[usize::from(place(family, number))] = Target::new(weight, 0);
    }
    rig.services().set_choice(WEB, family, &choice).unwrap();
    let met = (4000..4012).map(|port| {
        let syn = tcp(client(family, port), web(family), "S", 1, 0);
        rig.client_sends(&syn).dst()
    });
    let met: Vec<_> = met.collect();
    let cold = [2, 2, 2, 0, 0, 0, 1, 1, 1].map(|number| server(family, number));
    assert_eq!(met[..9], cold);
    let hot: BTreeSet<_> = met[9..].iter().copied().collect();
    assert_eq!(hot.len(), 3, "each has as many as the others");
}

#[test]
fn slots_are_taken_in_turn_or_by_lot_and_ties_are_broken_at_random() {
    let mut rig = Rig::new();
    let family = Family::V4;
    let mut count = |policy, usable: &[u16]| {
        rig.choose_by(policy, family, usable);
        let mut met = vec![0; SERVERS.into()];
        for port in 0..300 {
            let syn = tcp(client(family, 4000 + port), web(family), "S", 1, 0);
            let chosen = rig.client_sends(&syn).dst();
            let number = (0..SERVERS).find(|number| server(family, *number) == chosen);
            met[usize::from(number.unwrap())] += 1;
            // What is over counts for nobody.
            rig.client_sends(&tcp(client(family, 4000 + port), web(family), "R", 2, 0));
        }
        met
    };
    assert_eq!(count("WRR", &[0, 1, 2]), [100, 100, 100]);
    assert_eq!(count("WRR", &[0, 2]), [150, 0, 150]);
    for policy in ["weighted random", "LC", "CONN"] {
        let met = count(policy, &[0, 1, 2]);
        assert!(
            met.iter().all(|one| (60..=140).contains(one)),
            "{policy}: {met:?}"
        );
    }
}

#[test]
fn a_hash_leads_where_the_native_build_says_and_nothing_moves_but_from_a_server_that_is_lost() {
    let mut rig = Rig::new();
    let secret = Secret { word: [7, 11] };
    rig.services().set_secret(WEB, &secret).unwrap();
    for (policy, per_client) in [("Maglev", false), ("source", true)] {
        for family in Family::ALL {
            let (choice, table) = rig.choose_by(policy, family, &[0, 1, 2]);
            let mut met = Vec::new();
            for port in 5000..5040 {
                let from = client(family, port);
                let request = Request {
                    hash: client_hash(&choice, &secret, from, web(family)),
                    ..Request::default()
                };
                let expected = choose(&choice, &Gauges::default(), &table, &request).target;
                let expected = expected.expect("one is usable") - place(family, 0);
                let seen = rig.client_sends(&tcp(from, web(family), "S", 1, 0));
                assert_eq!(seen.dst(), server(family, expected), "{policy} {port}");
                rig.client_sends(&tcp(from, web(family), "R", 2, 0));
                met.push(seen.dst());
            }
            let different: BTreeSet<_> = met.iter().collect();
            assert_eq!(different.len() == 1, per_client, "{policy}: {different:?}");
            let lost = met[0];
            let left: Vec<u16> = (0..SERVERS)
                .filter(|number| server(family, *number) != lost)
                .collect();
            rig.choose_by(policy, family, &left);
            for (port, before) in (5000..5040).zip(met) {
                let from = client(family, port);
                let now = rig.client_sends(&tcp(from, web(family), "S", 9, 0)).dst();
                assert_ne!(now, lost);
                assert!(before == lost || now == before, "{policy} {port}");
                rig.client_sends(&tcp(from, web(family), "R", 10, 0));
            }
        }
    }
}

#[test]
fn a_bounded_hash_leaves_a_server_that_has_more_than_its_share() {
    let mut rig = Rig::new();
    for family in Family::ALL {
        rig.choose_by("Maglev-bounded", family, &[0, 1, 2]);
        let mut leads = Vec::new();
        for port in 4000..4090 {
            let from = client(family, port);
            leads.push(rig.client_sends(&tcp(from, web(family), "S", 1, 0)).dst());
            let open = u64::from(port - 3999);
            for number in 0..SERVERS {
                let bound = (open as f64 / f64::from(SERVERS) * 1.25).ceil() as u64;
                assert!(rig.live(family, number) <= bound, "{number} of {open}");
            }
        }
        // All that the other servers had end.
        for port in (4000..4090).filter(|port| leads[usize::from(port - 4000)] != leads[0]) {
            rig.client_sends(&tcp(client(family, port), web(family), "R", 2, 0));
        }
        for port in 5000..5020 {
            let seen = rig.client_sends(&tcp(client(family, port), web(family), "S", 1, 0));
            assert_ne!(seen.dst(), leads[0], "it has nearly all");
        }
    }
}

#[test]
fn a_bound_counts_what_clients_of_a_family_have_open_in_tunnels_of_the_other() {
    let mut rig = Rig::new();
    let family = Family::V4;
    let secret = Secret { word: [7, 11] };
    rig.services().set_secret(WEB, &secret).unwrap();
    for number in 0..SERVERS {
        let known = rig.services().servers(WEB).unwrap();
        let far = Server {
            forwarding: Forwarding::Tunnel { gue_port: None },
            ..known[usize::from(place(Family::V6, number))].unwrap()
        };
        let place = ServerId(place(family, number));
        rig.services().set_server(WEB, place, Some(far)).unwrap();
    }
    let (choice, table) = rig.choose_by("Maglev-bounded", family, &[0, 1, 2]);
    let mut by_hash = 0;
    for port in 4000..4090 {
        let from = client(family, port);
        let request = Request {
            hash: client_hash(&choice, &secret, from, web(family)),
            // Nobody has nearly as many.
            open: 1 << 20,
            ..Request::default()
        };
        let wanted = choose(&choice, &Gauges::default(), &table, &request).target;
        let wanted = wanted.unwrap() - place(family, 0);
        let before = rig.live(family, wanted);
        let (_, reason) = rig.send(&tcp(from, web(family), "S", 1, 0).frame());
        assert_eq!(reason, "to-server");
        by_hash += rig.live(family, wanted) - before;
    }
    assert!(by_hash > 60, "{by_hash} of 90 went where their hash leads");
}
