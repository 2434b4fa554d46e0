//! Questions to the programs which server a client would get.

use anabranch_core::Proto;
use anabranch_dataplane::services::Served;

use super::*;

impl Rig {
    fn explain(&mut self, family: Family, port: u16) -> Served {
        let (client, called) = (client(family, port), web(family));
        let served = self.services().explain(client, called, Proto::Tcp).unwrap();
        assert_eq!(served.service, Some(WEB));
        served
    }
}

#[test]
fn who_asks_learns_which_server_the_next_connection_gets_and_changes_nothing_by_it() {
    for policy in ["RR", "WLC", "Maglev", "source", "SWRR"] {
        let mut rig = Rig::new();
        for family in Family::ALL {
            rig.choose_by(policy, family, &[0, 2]);
            for port in 4000..4006 {
                let told = rig.explain(family, port);
                // Equally good servers are drawn.
                let is_sure = policy != "WLC" && policy != "SWRR";
                if is_sure {
                    assert_eq!(rig.explain(family, port), told, "{policy}");
                }
                assert!(!told.bound && !told.why.is_empty());
                let (before, reasons) = (
                    rig.services().gauges(WEB).unwrap(),
                    rig.services().reasons().unwrap(),
                );
                rig.explain(family, port);
                assert_eq!(rig.services().gauges(WEB).unwrap(), before);
                assert_eq!(rig.services().reasons().unwrap(), reasons);
                let given = rig.establish(client(family, port), web(family));
                let place = (0..SERVERS).find(|number| server(family, *number) == given);
                let given = ServerId(place_of(family, place));
                if is_sure {
                    assert_eq!(told.server, Some(given), "{policy}");
                }
                let has = rig.explain(family, port);
                assert_eq!((has.server, has.bound), (Some(given), true));
            }
        }
    }
}

fn place_of(family: Family, number: Option<u16>) -> u16 {
    place(family, number.expect("one of its servers"))
}

#[test]
fn who_would_get_no_server_is_told_why() {
    let mut rig = Rig::new();
    for family in Family::ALL {
        rig.choose_by("RR", family, &[]);
        let told = rig.explain(family, 4000);
        assert_eq!((told.server, told.bound), (None, false));
        let elsewhere = SocketAddr::new(web(family).ip(), 81);
        let asked = rig
            .services()
            .explain(client(family, 4000), elsewhere, Proto::Tcp);
        assert_eq!(asked.unwrap().service, None);
    }
}
