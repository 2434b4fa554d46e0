//! Two balancers with the same secret before the same servers. They share no state.

use anabranch_policy::abi::Unknown;

use super::*;

const CLIENTS: std::ops::Range<u16> = 4000..4600;

/// Two that know nothing of each other and send what they do not know by its hash.
fn two(family: Family) -> [Rig; 2] {
    [(); 2].map(|()| {
        let mut rig = Rig::without_entries(Unknown::Hash);
        rig.limit_entries(0);
        rig.choose_by("Maglev", family, &[0, 1, 2]);
        rig
    })
}

#[test]
fn another_balancer_takes_connections_over_by_the_secret_alone() {
    for family in Family::ALL {
        let [mut one, mut other] = two(family);
        for port in CLIENTS.take(50) {
            let (from, to) = (client(family, port), web(family));
            let server = one.establish(from, to);
            let ask = tcp(from, to, "PA", 2, 101).payload(b"GET /");
            let seen = other.sends_without_entry(ask.frame(), "hashed");
            assert_eq!((seen.dst(), seen.payload()), (server, &b"GET /"[..]));
            let (ran, reason) = other.send(&tcp(server, from, "A", 101, 7).frame());
            assert_eq!(reason, "aliased");
            assert_eq!(
                (read(&ran.packet).src(), read(&ran.packet).dst()),
                (to, from)
            );
            let again = other.client_sends(&tcp(from, to, "S", 9, 0));
            assert_eq!(again.dst(), server, "the next connection");
        }
    }
}

#[test]
fn connections_move_with_the_server_that_leaves_and_hardly_any_other() {
    for family in Family::ALL {
        let [mut one, mut other] = two(family);
        other.choose_by("Maglev", family, &[0, 1]);
        other.change_rows(family, &[0, 1]);
        let (mut of_others, mut moved) = (0, 0);
        for port in CLIENTS {
            let (from, to) = (client(family, port), web(family));
            let before = one.client_sends(&tcp(from, to, "S", 1, 0)).dst();
            let after = other.sends_without_entry(tcp(from, to, "A", 2, 101).frame(), "hashed");
            let has_left = before == server(family, 2);
            assert!(!has_left || after.dst() != before);
            of_others += usize::from(!has_left);
            moved += usize::from(after.dst() != before);
        }
        let all = CLIENTS.len();
        assert!(of_others >= all / 2, "{of_others} of {all}");
        assert!(moved <= all / 3 + all * 3 / 100, "{moved} of {all}");
        assert!(
            moved - (all - of_others) <= all * 3 / 100,
            "{moved} of {all}"
        );
    }
}
