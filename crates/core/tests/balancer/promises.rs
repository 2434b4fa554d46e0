//! What holds whatever happens.

use super::*;

/// Anything that can happen to three links, each with a path for either family; bit [`place`] of a mask is a path.
#[derive(Clone, Debug)]
enum Transition {
    Present(usize, Family),
    Absent(usize, Family),
    Admin(usize, Admin),
    Wait { ms: u64, answering: u32 },
    Traffic { tx: u32, rx: u32, progress: u32 },
}

/// Of a path among the bits of a mask.
fn place(link: usize, family: Family) -> usize {
    family.index() * 3 + link
}

fn transition() -> impl Strategy<Value = Transition> {
    let admin = prop::sample::select(vec![Admin::Up, Admin::Drain, Admin::Down]);
    let family = || prop::sample::select(vec![V4, V6]);
    prop_oneof![
        (0..3usize, family()).prop_map(|(link, family)| Transition::Present(link, family)),
        (0..3usize, family()).prop_map(|(link, family)| Transition::Absent(link, family)),
        (0..3usize, admin).prop_map(|(link, admin)| Transition::Admin(link, admin)),
        (0..3000u64, 0..64u32).prop_map(|(ms, answering)| Transition::Wait { ms, answering }),
        (0..64u32, 0..64u32, 0..64u32).prop_map(|(tx, rx, progress)| Transition::Traffic {
            tx,
            rx,
            progress
        }),
    ]
}

/// What holds whatever happened: the promises of the crate, in terms of what was told to the balancer.
struct Oracle {
    present: PerFamily<[bool; 3]>,
    admin: [Admin; 3],
}

impl Oracle {
    fn check(&self, driver: &Driver) {
        for family in Family::ALL {
            self.check_family(driver, family);
        }
        let [v4, v6] = Family::ALL.map(|family| driver.choices[&(ClassId::DEFAULT, family)]);
        let among_the_same = Choice {
            usable: v6.usable,
            working: v6.working,
            ..v4
        };
        assert_eq!(among_the_same, v6, "families differ in their links alone");
        for (event, installed) in &driver.events {
            if let Event::EndFlows { link, .. } = event {
                assert!(
                    installed >> link.0 & 1 == 0,
                    "flows end on a link that gets new ones"
                );
                assert!(*installed != 0, "flows end although no link takes them");
            }
        }
    }

    fn check_family(&self, driver: &Driver, family: Family) {
        let usable = driver.usable_by(ClassId::DEFAULT, family);
        let balancer = driver.core.balancer();
        assert_eq!(
            usable,
            balancer.usable(ClassId::DEFAULT, family).targets().word[0],
            "the installed choice is the balancer's"
        );
        let eligible = |i: &usize| self.present[family][*i] && self.admin[*i] == Admin::Up;
        for i in (0..3).filter(|i| usable >> i & 1 == 1) {
            assert!(
                eligible(&i),
                "link {i} is used for {family}: present {:?}, {:?}",
                self.present[family],
                self.admin
            );
        }
        assert_eq!(
            usable == 0,
            (0..3).filter(eligible).count() == 0,
            "refused only if nothing is left"
        );
        let works = |path: &PathStatus| path.usable && !matches!(path.state, State::Down(_));
        let alive_unmetered = balancer
            .status(driver.now)
            .iter()
            .any(|link| !link.metered && works(&link.paths[family]));
        assert!(
            !(alive_unmetered && usable >> 2 == 1),
            "the metered link rests while another works"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn whatever_happens_only_fit_links_are_used_and_flows_end_only_when_others_take_them(
        transitions in prop::collection::vec(transition(), 1..40),
    ) {
        let mut links = equal(3);
        links[2].metered = true;
        let mut driver = Driver::new("WSDM", links);
        let mut oracle = Oracle { present: PerFamily::only(V4, [true; 3]), admin: [Admin::Up; 3] };
        for transition in transitions {
            match transition {
                Transition::Present(i, family) => {
                    oracle.present[family][i] = true;
                    driver.set_state(i, family, LinkState::Present);
                }
                Transition::Absent(i, family) => {
                    oracle.present[family][i] = false;
                    driver.set_state(i, family, LinkState::Absent(Missing::Carrier));
                }
                Transition::Admin(i, admin) => {
                    oracle.admin[i] = admin;
                    driver.set_admin(i, admin);
                }
                Transition::Wait { ms, answering } => {
                    driver.run_paths(Duration::from_millis(ms), |link, family| {
                        answering >> place(link.index(), family) & 1 == 1
                    });
                }
                Transition::Traffic { tx, rx, progress } => {
                    for (i, counters) in driver.counters.iter_mut().enumerate() {
                        for (family, traffic) in counters.traffic.iter_mut() {
                            let bit = |mask: u32| u64::from(mask >> place(i, family) & 1);
                            traffic.tx_packets += bit(tx);
                            traffic.rx_packets += bit(rx);
                            traffic.rx_progress += bit(progress & rx);
                        }
                    }
                }
            }
            oracle.check(&driver);
        }
    }
}
