//! Destinations that are probed because they are used most (`bpf/lib/gateway/survey.h`).

use anabranch_core::{Choice, ClassId, DataPlane, LinkId, Opening, Question};

use super::*;

const LOCAL_PORT: u16 = 40_000;
const NUMBER: u32 = 0x1234_5678;

fn surveying() -> Rig {
    Rig::choosing(&Choice {
        surveys: 1,
        lifetime_ns: 60_000_000_000,
        ..round_robin(0b11)
    })
}

fn ask(rig: &mut Rig, link: u16) {
    ask_at(rig, link, 80);
}

/// Whether what was asked there before, if anything was, has been answered.
fn ask_at(rig: &mut Rig, link: u16, port: u16) -> bool {
    let question = Question {
        class: ClassId::DEFAULT,
        link: LinkId(link),
        to: server(port),
    };
    let asked = rig.plane().ask(&question, LOCAL_PORT, NUMBER);
    asked.unwrap()
}

fn answer(link: u16, number: u32) -> Vec<u8> {
    let to = SocketAddr::new(EXTERNAL[usize::from(link)], LOCAL_PORT);
    tcp(server(80), to, "R", number, 0).frame()
}

#[test]
fn connections_of_classes_that_survey_are_reported_and_nothing_else() {
    let mut rig = surveying();
    rig.connect(client(4000), server(80));
    rig.translates_out(&udp(client(4000), server(53), b"x").frame());
    rig.connect(client(4001), second_server(443));
    let opening = |to| Opening {
        class: ClassId::DEFAULT,
        to,
    };
    let reported = rig.plane().openings().unwrap();
    assert_eq!(reported, [server(80), second_server(443)].map(opening));

    rig.install(&round_robin(0b11));
    rig.connect(client(4002), server(80));
    assert_eq!(rig.plane().openings().unwrap(), []);
}

#[test]
fn an_answer_tells_of_its_link_and_the_next_flows_take_the_fastest() {
    let mut rig = surveying();
    ask(&mut rig, 1);
    rig.link_brings(1, &answer(1, NUMBER)).dropped("surveyed");
    let [other, asked] = [0, 1].map(|link| rig.paths_to(SERVER).path[link]);
    assert_eq!((asked.samples, other.samples), (1, 0));
    for port in 4000..4004 {
        assert_eq!(rig.connect(client(port), server(80)).link, 1);
    }
    let told = rig.paths_to(SERVER).path[1];
    assert_eq!(told.samples, 1, "what flows meet is not told");
}

#[test]
fn who_knows_no_number_tells_nothing_and_an_answer_tells_once() {
    let mut rig = surveying();
    ask(&mut rig, 0);
    for (link, number) in [(0, NUMBER + 1), (0, 0), (1, NUMBER)] {
        let forged = rig.link_brings(link, &answer(link, number));
        assert_ne!(forged.reason, "surveyed");
    }
    rig.link_brings(0, &answer(0, NUMBER)).dropped("surveyed");
    let again = rig.link_brings(0, &answer(0, NUMBER));
    assert_ne!(again.reason, "surveyed");
    assert_eq!(rig.paths_to(SERVER).path[0].samples, 1);
}

/// Most destinations answer no question: what has no answer is forgotten when there is no room for more.
#[test]
fn questions_without_an_answer_make_room_for_others() {
    let mut rig = surveying();
    let asked: Vec<bool> = (1..=20_000).map(|port| ask_at(&mut rig, 0, port)).collect();
    assert_eq!(asked, [true; 20_000], "none of them before");
    assert!(!ask_at(&mut rig, 0, 20_000), "it waits for its answer");
    assert!(ask_at(&mut rig, 0, 1), "its answer would not be known");
    ask(&mut rig, 1);
    rig.link_brings(1, &answer(1, NUMBER)).dropped("surveyed");
}
