//! What happens to a line while packets are on it.

use anabranch_core::Time;
use anabranch_scenario::Opportunities;

use super::rare::Audit;
use super::{Frame, Impairments, Link, Loss, Verdict};
use crate::packet::PacketId;

/// After a change, packets arrive when [`Link::to_come`] says, no longer when [`Link::offer`] said. All of these panic if
/// the link is plain.
impl Link {
    /// The line becomes a blackhole: returns what was on it, and loses what it is offered.
    pub fn cut(&mut self, now: Time) -> Vec<PacketId> {
        let line = self.line_mut();
        line.rare.is_cut = true;
        let swallowed = line.swallow(now.as_nanos());
        if let Some(trace) = &mut self.line_mut().rare.trace {
            trace.give_back(now.as_nanos());
        }
        self.transmitter.drop_all(now.as_nanos());
        swallowed
    }

    /// The line is whole again.
    pub fn restore(&mut self) {
        self.line_mut().rare.is_cut = false;
    }

    /// Whether it swallows what it is offered.
    pub fn is_cut(&self) -> bool {
        self.line.as_ref().is_some_and(|line| line.rare.is_cut)
    }

    /// From here on packets leave as this trace says.
    pub fn set_trace(&mut self, trace: Opportunities) {
        self.line_mut().rare.trace = Some(Box::new(trace));
    }

    /// What waits, and the rest of what is in transmission, is sent at `rate_bps`; at least 1. Of a link without a trace.
    pub fn set_rate(&mut self, now: Time, rate_bps: u64) {
        assert!(
            self.line_mut().rare.trace.is_none(),
            "a trace is all the rate there is"
        );
        self.line_mut().arrive(now.as_nanos());
        let departures = self.transmitter.set_rate(now.as_nanos(), rate_bps);
        self.postpone(departures);
        self.disarm();
    }

    /// Packets whose transmission begins after this take `delay_ns`, but none overtakes another.
    pub fn set_delay(&mut self, now: Time, delay_ns: u64) {
        self.line_mut().arrive(now.as_nanos());
        self.transmitter.depart(now.as_nanos());
        self.delay_ns = delay_ns;
        let departures = self.transmitter.departures().skip(1).collect();
        self.postpone(departures);
    }

    /// Has the last packets arrive as they depart at these times.
    fn postpone(&mut self, mut times_ns: Vec<u64>) {
        for time_ns in &mut times_ns {
            *time_ns += self.delay_ns;
        }
        self.line_mut().postpone(&times_ns);
    }

    /// For packets offered from here on.
    pub fn set_loss(&mut self, loss: Loss) {
        self.line_mut().rare.set_loss(loss);
    }

    /// For packets offered from here on; a later change of rate or delay takes the jitter of those that wait away.
    pub fn set_impairments(&mut self, impairments: Impairments) {
        self.line_mut().rare.set_impairments(impairments);
    }

    /// What it does to packets beside losing them by chance; nothing if it is plain.
    pub fn impairments(&self) -> Impairments {
        let line = self.line.as_ref();
        line.map_or(Impairments::default(), |line| line.rare.impairments())
    }

    /// From here on, both sides of Little's law are added up.
    pub fn audit(&mut self, now: Time) {
        let line = self.line_mut();
        line.arrive(now.as_nanos());
        let inside = line.held_at(now).plus(line.waiting());
        let mut audit = Audit::new(now.as_nanos(), inside.packets);
        audit.sojourn_ns = line.still_ns(now.as_nanos());
        line.rare.audit = Some(audit);
    }

    /// Both sides of Little's law since the audit began, in ns: how long packets have been here, and the integral of how
    /// many were. None without an audit.
    pub fn little_ns(&mut self, now: Time) -> Option<(i128, i128)> {
        let line = self.line.as_mut()?;
        line.arrive(now.as_nanos());
        let mut audit = line.rare.audit?;
        audit.pass(now.as_nanos());
        let sojourn_ns = audit.sojourn_ns - line.still_ns(now.as_nanos());
        Some((sojourn_ns, audit.integral_ns))
    }

    /// Whether both sides of Little's law are the same. True without an audit.
    pub fn obeys_little(&mut self, now: Time) -> bool {
        let sides = self.little_ns(now);
        sides.is_none_or(|(sojourn_ns, integral_ns)| sojourn_ns == integral_ns)
    }

    /// Whether a packet gets as far as the buffer.
    #[inline(always)]
    pub(super) fn judge(&mut self, now_ns: u64, frame: Frame) -> Verdict {
        let line = self.line.as_deref_mut();
        let Some(line) = line else {
            return Verdict::Taken;
        };
        line.arrive(now_ns);
        if line.rare.is_cut {
            line.rare.refused.add(frame.bytes);
            return Verdict::Refused;
        }
        if !line.rare.detects_early() {
            return Verdict::Taken;
        }
        self.transmitter.depart(now_ns);
        let idle_ns = now_ns.saturating_sub(self.transmitter.free_ns());
        let idle = u128::from(idle_ns) * u128::from(self.transmitter.rate_bps()) / 8_000_000_000;
        let idle_bytes = u64::try_from(idle).unwrap_or(u64::MAX);
        let queue_bytes = self.transmitter.backlog().bytes;
        line.rare.detect(queue_bytes, idle_bytes, frame)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::{Buffer, LinkSpec, Nature, Offer, Passage, Service, Sort};
    use super::*;

    /// 1000 bytes take 1 ms, and 1 ms on the way.
    const SPEC: LinkSpec = LinkSpec {
        rate_bps: 8_000_000,
        delay_ns: 1_000_000,
        buffer: Buffer::Unlimited,
        loss: Loss::None,
    };

    fn at(us: u64) -> Time {
        Time::from_nanos(us * 1_000)
    }

    /// Four packets of 1000 bytes at time 0.
    fn four(spec: LinkSpec) -> Link {
        let mut link = Link::new(spec, 1, 1);
        link.audit(at(0));
        for i in 0..4 {
            link.offer(at(0), PacketId(i), 1000);
        }
        link
    }

    fn arrives(us: u64) -> Offer {
        Offer::Arrives(at(us))
    }

    /// When what is held at `now` arrives, in µs.
    fn arrivals(link: &mut Link, now: Time) -> Vec<u64> {
        let all: Vec<Time> = link.to_come(now).map(|(_, arrival)| arrival).collect();
        assert!(all.iter().all(|arrival| link.obeys_little(*arrival)));
        all.iter().map(|time| time.as_nanos() / 1000).collect()
    }

    #[test]
    fn a_rate_that_doubles_halves_what_is_left_to_send() {
        let mut link = four(SPEC);
        link.set_rate(at(1500), 16_000_000);
        // One propagates, of one a half is sent, two wait.
        assert_eq!(arrivals(&mut link, at(1500)), [2000, 2750, 3250, 3750]);
        assert!(link.conserves(at(9000)) && link.obeys_little(at(9000)));
        assert_eq!(link.offer(at(9000), PacketId(9), 1000), arrives(10_500));
    }

    #[test]
    fn a_rate_that_falls_delays_what_is_in_transmission() {
        let mut link = four(SPEC);
        link.set_rate(at(500), 4_000_000);
        assert_eq!(arrivals(&mut link, at(500)), [2500, 4500, 6500, 8500]);
    }

    #[test]
    fn a_shorter_delay_lets_nobody_overtake() {
        let mut link = four(LinkSpec {
            delay_ns: 10_000_000,
            ..SPEC
        });
        link.set_delay(at(1500), 1_000_000);
        // The second was in transmission: its delay is the old one, and the others wait behind it.
        let expected = [11_000, 12_000, 12_000, 12_000];
        assert_eq!(arrivals(&mut link, at(1500)), expected);
        link.set_delay(at(20_000), 2_000_000);
        assert_eq!(link.offer(at(20_000), PacketId(9), 1000), arrives(23_000));
    }

    #[test]
    fn a_cut_line_swallows_what_it_has_and_what_comes_until_it_is_whole() {
        let mut link = four(SPEC);
        assert_eq!(link.cut(at(1500)).len(), 4);
        assert_eq!(link.offer(at(1600), PacketId(5), 1000), Offer::Lost);
        assert!(link.conserves(at(2000)) && link.obeys_little(at(3000)));
        assert_eq!(link.counters(at(2000)).cut.packets, 5);
        link.restore();
        assert_eq!(link.offer(at(4000), PacketId(6), 1000), arrives(6000));
        assert_eq!(arrivals(&mut link, at(4000)), [6000]);
        assert!(link.conserves(at(5000)));
    }

    #[test]
    fn a_long_packet_vanishes_as_long_as_the_mtu_is_less_and_takes_its_place_all_the_same() {
        let mut link = Link::new(SPEC, 1, 1);
        link.set_impairments(Impairments {
            mtu_bytes: Some(999),
            ..Impairments::default()
        });
        assert_eq!(link.offer(at(0), PacketId(0), 1000), Offer::Lost);
        assert_eq!(link.offer(at(0), PacketId(1), 999), arrives(2999));
        link.set_impairments(Impairments::default());
        assert_eq!(link.offer(at(4000), PacketId(2), 1000), arrives(6000));
        assert_eq!(link.counters(at(9000)).lost.packets, 1);
        assert!(link.conserves(at(9000)));
    }

    #[test]
    fn a_captive_line_loses_all_but_its_service() {
        let mut link = Link::new(SPEC, 1, 1);
        link.set_impairments(Impairments {
            passage: Passage::Only(Service::Dns),
            ..Impairments::default()
        });
        let mut offer = |packet, sort| {
            let nature = Nature {
                sort,
                ..Nature::ORDINARY
            };
            let frame = Frame {
                packet: PacketId(packet),
                bytes: 100,
                flow: 0,
                ect: false,
                nature,
            };
            link.take(at(0), frame)
        };
        assert_eq!(offer(0, Sort::Other), Offer::Lost);
        assert_eq!(offer(1, Sort::Of(Service::Icmp)), Offer::Lost);
        assert!(matches!(
            offer(2, Sort::Of(Service::Dns)),
            Offer::Arrives(_)
        ));
        assert!(link.loses_by_nature() && !Link::new(SPEC, 1, 1).loses_by_nature());
    }

    #[test]
    fn jitter_spreads_delays_and_lets_nobody_overtake() {
        let jittery = |seed| {
            let mut link = Link::new(SPEC, seed, 1);
            link.set_impairments(Impairments {
                jitter: Duration::from_millis(20),
                ..Impairments::default()
            });
            link.audit(at(0));
            // Every 2 ms, and every 100 ms where none waits for another.
            let offers = (0..400).map(|i| if i < 200 { i * 2_000 } else { i * 100_000 });
            let arrivals: Vec<u64> = offers
                .map(|us| match link.offer(at(us), PacketId(0), 1000) {
                    Offer::Arrives(then) => then.as_nanos() / 1000 - us,
                    other => panic!("{other:?}"),
                })
                .collect();
            assert!(link.obeys_little(at(100_000_000)));
            arrivals
        };
        let delays = jittery(7);
        assert!((0..199).all(|i| delays[i] <= delays[i + 1] + 2_000));
        let alone = &delays[200..];
        assert!(alone.iter().all(|us| (2_000..22_000).contains(us)));
        // 200 even draws have a mean of half the range, give or take 5.8 ms / √200.
        let mean = alone.iter().sum::<u64>() as f64 / 200.0;
        assert!((mean - 12_000.0).abs() < 3.0 * 410.0, "{mean}");
        assert_eq!(delays, jittery(7));
        assert_ne!(delays, jittery(8));
    }

    #[test]
    fn losses_can_begin_and_end() {
        let mut link = Link::new(SPEC, 1, 1);
        link.set_loss(Loss::Independent { probability: 1. });
        assert_eq!(link.offer(at(0), PacketId(0), 1000), Offer::Lost);
        link.set_loss(Loss::None);
        assert_eq!(link.offer(at(500), PacketId(1), 1000), arrives(3000));
        assert!(link.conserves(at(500)));
    }
}
