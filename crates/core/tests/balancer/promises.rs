//! What holds whatever happens.

use super::*;

/// Anything that can happen to three links.
#[derive(Clone, Debug)]
enum Transition {
    Present(usize),
    Absent(usize),
    Admin(usize, Admin),
    Wait { ms: u64, answering: u32 },
    Traffic { tx: u32, rx: u32, progress: u32 },
}

fn transition() -> impl Strategy<Value = Transition> {
    let admin = prop::sample::select(vec![Admin::Up, Admin::Drain, Admin::Down]);
    prop_oneof![
        (0..3usize).prop_map(Transition::Present),
        (0..3usize).prop_map(Transition::Absent),
        (0..3usize, admin).prop_map(|(link, admin)| Transition::Admin(link, admin)),
        (0..3000u64, 0..8u32).prop_map(|(ms, answering)| Transition::Wait { ms, answering }),
        (0..8u32, 0..8u32, 0..8u32).prop_map(|(tx, rx, progress)| Transition::Traffic {
            tx,
            rx,
            progress
        }),
    ]
}

/// What holds whatever happened: the promises of the crate, in terms of what was told to the balancer.
struct Oracle {
    present: [bool; 3],
    admin: [Admin; 3],
}

impl Oracle {
    fn check(&self, driver: &Driver) {
        let usable = driver.usable();
        assert_eq!(
            usable,
            driver
                .core
                .balancer()
                .usable(ClassId::DEFAULT, V4)
                .targets()
                .word[0],
            "the installed choice is the balancer's"
        );
        let eligible = |i: &usize| self.present[*i] && self.admin[*i] == Admin::Up;
        for i in (0..3).filter(|i| usable >> i & 1 == 1) {
            assert!(
                eligible(&i),
                "link {i} is used: present {:?}, {:?}",
                self.present,
                self.admin
            );
        }
        assert_eq!(
            usable == 0,
            (0..3).filter(eligible).count() == 0,
            "refused only if nothing is left"
        );
        let alive_unmetered = driver
            .core
            .balancer()
            .status(driver.now)
            .iter()
            .any(|l| l.usable && !l.metered && !matches!(l.state, State::Down(_)));
        assert!(
            !(alive_unmetered && usable >> 2 == 1),
            "the metered link rests while another works"
        );
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
        let mut oracle = Oracle { present: [true; 3], admin: [Admin::Up; 3] };
        for transition in transitions {
            match transition {
                Transition::Present(i) => {
                    oracle.present[i] = true;
                    driver.set_present(i);
                }
                Transition::Absent(i) => {
                    oracle.present[i] = false;
                    driver.set_absent(i);
                }
                Transition::Admin(i, admin) => {
                    oracle.admin[i] = admin;
                    driver.set_admin(i, admin);
                }
                Transition::Wait { ms, answering } => {
                    driver.run(Duration::from_millis(ms), |link| answering >> link.0 & 1 == 1);
                }
                Transition::Traffic { tx, rx, progress } => {
                    for (i, counters) in driver.counters.iter_mut().enumerate() {
                        counters.traffic[V4].tx_packets += u64::from(tx >> i & 1);
                        counters.traffic[V4].rx_packets += u64::from(rx >> i & 1);
                        counters.traffic[V4].rx_progress += u64::from(progress >> i & rx >> i & 1);
                    }
                }
            }
            oracle.check(&driver);
        }
    }
}
