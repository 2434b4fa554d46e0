//! Flows of the former version, of every kind, and what an upgrade makes of them (`bpf/lib/gateway/take_over.h`).

use super::{
    classes::{divide, only},
    *,
};

#[test]
fn every_entry_of_every_kind_of_flow_is_as_it_was() {
    let mut rig = Rig::former();
    let attempt = rig.open(client(4000), server(22));
    let confirmed = rig.connect(client(4001), server(22));
    let over = rig.connect(client(4002), server(22));
    let reset = over.answer("R", REMOTE_ISN + 1, 0);
    rig.translates_in(over.link, &reset.frame());

    // An attempt that has gone on over another link, and can be won by either.
    let mut retries = round_robin(0b11);
    retries.syn_retry = 1;
    rig.install(&retries);
    let first = rig.open(client(4003), server(22));
    let second = rig.open(client(4003), server(22));
    assert_ne!(first.link, second.link);

    // One that races.
    let mut races = round_robin(0b11);
    races.races = 1000;
    rig.race(&races);
    rig.open(client(4004), server(22));

    // A mapping that has asked two servers, and one whose socket has another in another class.
    divide(&mut rig, &only(0));
    let ask = |rig: &mut Rig, port, to| {
        let asked = rig.lan_sends(&udp(client(port), to, b"q").frame());
        asked.sent("translated-out").src()
    };
    let external = ask(&mut rig, 4005, server(53));
    ask(&mut rig, 4005, second_server(53));
    let plain = ask(&mut rig, 4006, server(53));
    let apart = ask(&mut rig, 4006, server(443));
    assert_ne!(plain, apart);

    // A flow without NAT.
    rig.set(|s| s.routed = of_both(0b10));
    rig.install(&only(1));
    let routed = rig.lan_sends(&tcp(client(4007), server(22), "S", LOCAL_ISN, 0).frame());
    assert_eq!(routed.sent("translated-out").src(), client(4007));
    rig.set(|s| s.routed = 0);
    let live = rig.live();

    let [before, now] = rig.upgrade();

    // Two each, one more of either attempt with two tries, and permissions of the second server and of who has a mapping of its own.
    assert_eq!(before.len(), 9 * 2 + 2 + 2);
    assert_eq!(now, before);
    assert_eq!((rig.flows().len(), rig.live()), (9, live));
    rig.confirm(&attempt);
    let says = confirmed.say("PA", LOCAL_ISN + 1, REMOTE_ISN + 1);
    rig.translates_out(&says.frame());
    rig.confirm(&first);
    assert_eq!(rig.flow(client(4003)).link, first.link);
    rig.translates_in(0, &udp(second_server(53), external, b"a").frame());
    rig.translates_in(1, &udp(server(443), apart, b"a").frame());
    assert_eq!(ask(&mut rig, 4006, server(443)), apart);
}
