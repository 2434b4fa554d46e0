//! The delivery rate: how fast the network has delivered of late what was sent
//! (draft-cheng-iccrg-delivery-rate-estimation-02).
//!
//! Every transmission remembers what had been delivered when it left. Once it is delivered itself, what was delivered
//! in between is a sample: over the time that acknowledging took, or sending if that took longer, so that
//! acknowledgements in a bunch do not look like a fast network. Of all that an acknowledgement delivers, the segment
//! sent last gives the sample.

use std::collections::VecDeque;

/// The last transmission of a segment.
#[derive(Clone, Copy, Debug)]
struct Transmission {
    sent_ns: u64,
    /// When it was sent what had been delivered last, and when that was delivered.
    first_sent_ns: u64,
    delivered_ns: u64,
    /// Segments that had been delivered.
    delivered: u32,
    app_limited: bool,
    resent: bool,
    arrived: bool,
}

/// What one acknowledgement tells.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RateSample {
    /// Segments that it says arrived.
    pub arrived: u32,
    /// The shortest round trip of those sent once (Karn).
    pub rtt_ns: Option<u64>,
    /// `None` if nothing arrived, or in less than a round trip.
    pub rate: Option<Rate>,
    /// Whether the rate may be that of an application that had nothing to send.
    pub app_limited: bool,
}

/// Segments delivered in a time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// Segments.
    pub delivered: u32,
    /// From when the sampled segment left, or what was delivered last before it.
    pub interval_ns: u64,
    /// Segments that had been delivered when the sampled one left.
    pub prior_delivered: u32,
}

impl Rate {
    /// In segments per second.
    pub fn pps(&self) -> f64 {
        f64::from(self.delivered) * 1e9 / self.interval_ns as f64
    }
}

/// What is known of everything outstanding.
#[derive(Clone, Debug)]
pub struct DeliveryRate {
    una: u32,
    /// From `una` on.
    transmissions: VecDeque<Transmission>,
    delivered: u32,
    delivered_ns: u64,
    first_sent_ns: u64,
    /// The application limits what is sent before so many segments are delivered; 0 if it does not.
    app_limited_until: u32,
    /// Ever.
    least_rtt_ns: u64,
    arrived: u32,
    rtt_ns: Option<u64>,
    /// Of what has arrived since the last sample, what was sent last.
    newest: Option<(u32, Transmission)>,
}

impl DeliveryRate {
    /// Of a sender that is about to send `first`.
    pub fn new(first: u32) -> Self {
        DeliveryRate {
            una: first,
            transmissions: VecDeque::new(),
            delivered: 0,
            delivered_ns: 0,
            first_sent_ns: 0,
            app_limited_until: 0,
            least_rtt_ns: u64::MAX,
            arrived: 0,
            rtt_ns: None,
            newest: None,
        }
    }

    /// Segments delivered so far.
    pub fn delivered(&self) -> u32 {
        self.delivered
    }

    /// When the last of them was.
    pub fn delivered_ns(&self) -> u64 {
        self.delivered_ns
    }

    /// Whether the application limits what is sent.
    pub fn app_limited(&self) -> bool {
        self.app_limited_until > 0
    }

    /// The application has nothing more to send, or is treated as if, with `in_flight` segments outstanding.
    pub fn limit_by_application(&mut self, in_flight: u32) {
        self.app_limited_until = (self.delivered + in_flight).max(1);
    }

    /// A segment is sent: the next, or again one that is outstanding.
    pub fn send(&mut self, number: u32, now_ns: u64) {
        if self.transmissions.is_empty() {
            self.first_sent_ns = now_ns;
            self.delivered_ns = now_ns;
        }
        let ahead = (number - self.una) as usize;
        let transmission = Transmission {
            sent_ns: now_ns,
            first_sent_ns: self.first_sent_ns,
            delivered_ns: self.delivered_ns,
            delivered: self.delivered,
            app_limited: self.app_limited(),
            resent: ahead < self.transmissions.len(),
            arrived: false,
        };
        match self.transmissions.get_mut(ahead) {
            Some(former) => *former = transmission,
            None => self.transmissions.push_back(transmission),
        }
    }

    /// The peer has said of a segment, selectively, that it arrived.
    pub fn arrive(&mut self, number: u32, now_ns: u64) {
        let ahead = (number - self.una) as usize;
        let Some(transmission) = self.transmissions.get_mut(ahead) else {
            return;
        };
        if std::mem::replace(&mut transmission.arrived, true) {
            return;
        }
        let transmission = *transmission;
        self.delivered += 1;
        self.delivered_ns = now_ns;
        self.arrived += 1;
        if !transmission.resent {
            let rtt_ns = now_ns - transmission.sent_ns;
            self.rtt_ns = Some(self.rtt_ns.map_or(rtt_ns, |least| least.min(rtt_ns)));
            self.least_rtt_ns = self.least_rtt_ns.min(rtt_ns);
        }
        let later = |(number, newest): &(u32, Transmission)| (newest.sent_ns, *number);
        let candidate = (number, transmission);
        if self.newest.as_ref().map(later) < Some(later(&candidate)) {
            self.newest = Some(candidate);
        }
    }

    /// Everything below `ack` arrived.
    pub fn acknowledge(&mut self, ack: u32, now_ns: u64) {
        (self.una..ack).for_each(|number| self.arrive(number, now_ns));
        self.transmissions.drain(..(ack - self.una) as usize);
        self.una = ack;
    }

    /// What has arrived since the last sample, at `now_ns`.
    pub fn sample(&mut self, now_ns: u64) -> RateSample {
        if self.delivered > self.app_limited_until {
            self.app_limited_until = 0;
        }
        let mut sample = RateSample {
            arrived: std::mem::take(&mut self.arrived),
            rtt_ns: self.rtt_ns.take(),
            ..RateSample::default()
        };
        if let Some((_, newest)) = self.newest.take() {
            self.first_sent_ns = newest.sent_ns;
            sample.app_limited = newest.app_limited;
            sample.rate = self.rate(&newest, now_ns);
        }
        sample
    }

    /// A segment that was resent without need and whose first transmission is acknowledged gives a rate over less than a
    /// round trip: none.
    fn rate(&self, newest: &Transmission, now_ns: u64) -> Option<Rate> {
        let sending_ns = newest.sent_ns - newest.first_sent_ns;
        let acknowledging_ns = now_ns - newest.delivered_ns;
        let interval_ns = sending_ns.max(acknowledging_ns);
        let is_whole = interval_ns > 0 && interval_ns >= self.least_rtt_of_any();
        is_whole.then(|| Rate {
            delivered: self.delivered - newest.delivered,
            interval_ns,
            prior_delivered: newest.delivered,
        })
    }

    /// 0 before the first.
    fn least_rtt_of_any(&self) -> u64 {
        match self.least_rtt_ns {
            u64::MAX => 0,
            least_ns => least_ns,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_window_sent_at_a_pace_and_acknowledged_at_it_gives_that_rate() {
        let mut rates = DeliveryRate::new(1);
        (1..=20).for_each(|number| rates.send(number, u64::from(number) * MS));
        for number in 1..=20 {
            let now_ns = (50 + u64::from(number)) * MS;
            rates.acknowledge(number + 1, now_ns);
            rates.sample(now_ns);
            rates.send(number + 20, now_ns);
        }
        for number in 21..=40 {
            let now_ns = (80 + u64::from(number)) * MS;
            rates.acknowledge(number + 1, now_ns);
            let rate = rates.sample(now_ns).rate.unwrap();
            // Since segment `number` left, 20 others and itself: in the 50 ms of its round trip.
            assert_eq!(rate.delivered, 20, "{number}");
            assert_eq!(rate.interval_ns, 50 * MS);
        }
    }

    #[test]
    fn acknowledgements_in_a_bunch_count_over_the_time_of_sending() {
        let mut rates = DeliveryRate::new(1);
        (1..=11).for_each(|number| rates.send(number, u64::from(number) * 10 * MS));
        rates.acknowledge(2, 111 * MS);
        rates.sample(111 * MS);
        rates.acknowledge(12, 112 * MS);
        let rate = rates.sample(112 * MS).rate.unwrap();
        assert_eq!((rate.delivered, rate.interval_ns), (11, 102 * MS));
        (12..=13).for_each(|number| rates.send(number, (110 + u64::from(number)) * MS));
        rates.arrive(13, 300 * MS);
        let sample = rates.sample(300 * MS);
        assert_eq!((sample.arrived, sample.rtt_ns), (1, Some(177 * MS)));
    }

    #[test]
    fn what_arrived_selectively_is_not_counted_again() {
        let mut rates = DeliveryRate::new(1);
        (1..=4).for_each(|number| rates.send(number, 0));
        rates.arrive(3, 10 * MS);
        rates.arrive(3, 10 * MS);
        assert_eq!(rates.sample(10 * MS).arrived, 1);
        rates.acknowledge(5, 20 * MS);
        assert_eq!((rates.sample(20 * MS).arrived, rates.delivered()), (3, 4));
    }

    #[test]
    fn segments_resent_without_need_have_no_round_trip_and_no_rate_of_less_than_one() {
        let mut rates = DeliveryRate::new(1);
        for (number, ms) in [(1, 0), (2, 0), (3, 30)] {
            rates.send(number, ms * MS);
        }
        rates.arrive(2, 50 * MS);
        rates.sample(50 * MS);
        for (number, ms) in [(1, 60), (3, 71)] {
            rates.send(number, ms * MS);
        }
        rates.acknowledge(3, 75 * MS);
        let sample = rates.sample(75 * MS);
        assert_eq!((sample.arrived, sample.rtt_ns), (1, None));
        rates.send(3, 76 * MS);
        rates.acknowledge(4, 80 * MS);
        let sample = rates.sample(80 * MS);
        assert_eq!(
            (sample.arrived, sample.rtt_ns, sample.rate),
            (1, None, None)
        );
    }

    #[test]
    fn a_sample_is_the_applications_until_what_it_left_is_delivered() {
        let mut rates = DeliveryRate::new(1);
        rates.limit_by_application(0);
        (1..=3).for_each(|number| rates.send(number, 0));
        rates.acknowledge(2, 10 * MS);
        assert!(rates.sample(10 * MS).app_limited && rates.app_limited());
        rates.acknowledge(3, 11 * MS);
        assert!(rates.sample(11 * MS).app_limited && !rates.app_limited());
        rates.send(4, 12 * MS);
        rates.acknowledge(5, 22 * MS);
        assert!(!rates.sample(22 * MS).app_limited);
    }
}
