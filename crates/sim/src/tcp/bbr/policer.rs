//! Traffic policers: token buckets that let a burst pass and then drop what exceeds their rate (Flach et al., "An
//! Internet-Wide Analysis of Traffic Policing", 2016). Two lossy intervals with nearly the same throughput look like one;
//! then that throughput is the bandwidth for a while, instead of the greatest that was ever seen.

/// `bbr_lt_intvl_min_rtts`: rounds of an interval at least; four times as many at most.
const LEAST_ROUNDS: u32 = 4;
const MOST_ROUNDS: u32 = 4 * LEAST_ROUNDS;
/// `bbr_lt_loss_thresh`: lost for each delivered in an interval that is lossy.
const LOSSY: f64 = 50. / 256.;
/// `bbr_lt_bw_ratio` and `bbr_lt_bw_diff`: two throughputs differ by less if they are the same.
const SAME_SHARE: f64 = 1. / 8.;
const SAME_BPS: f64 = 4000.;
/// `bbr_lt_bw_max_rtts`: rounds after which the policer has to be found again.
const ROUNDS_IN_USE: u32 = 48;
/// Shorter intervals say nothing.
const LEAST_INTERVAL_NS: u64 = 1_000_000;

/// Totals of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Totals {
    /// Segments.
    pub delivered: u32,
    /// When the last of them was.
    pub delivered_ns: u64,
    /// Segments.
    pub lost: u32,
}

/// What an acknowledgement, or a timeout, says of a policer.
#[derive(Clone, Copy, Debug)]
pub(super) struct News {
    pub totals: Totals,
    /// Whether something was found lost.
    pub loses: bool,
    pub round_began: bool,
    pub app_limited: bool,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Policer {
    /// Of the last interval, or of both if it is in use.
    pps: Option<f64>,
    in_use: bool,
    /// Where the present interval began, once something was lost.
    began: Option<Totals>,
    rounds: u32,
}

impl Policer {
    /// What it lets pass, in segments per second, if there seems to be one.
    pub fn rate_pps(&self) -> Option<f64> {
        self.pps.filter(|_| self.in_use)
    }

    /// A round began while bandwidth was probed; returns whether the policer, which was in use, no longer is.
    pub fn age(&mut self) -> bool {
        self.rounds += 1;
        let old = self.rounds >= ROUNDS_IN_USE;
        if old {
            *self = Policer::default();
        }
        old
    }

    /// Looks for one, in segments of `mss_bytes`.
    pub fn observe(&mut self, news: &News, mss_bytes: u32) {
        if self.began.is_none() && news.loses {
            self.begin(news.totals);
        }
        let Some(began) = self.began else {
            return;
        };
        if news.app_limited {
            *self = Policer::default();
            return;
        }
        self.rounds += u32::from(news.round_began);
        if self.rounds > MOST_ROUNDS {
            *self = Policer::default();
        } else if self.rounds >= LEAST_ROUNDS && news.loses {
            self.end(&began, news.totals, mss_bytes);
        }
    }

    fn begin(&mut self, totals: Totals) {
        self.began = Some(totals);
        self.rounds = 0;
    }

    /// Something was lost after enough rounds: tokens are used up, as they were when the interval began.
    fn end(&mut self, began: &Totals, now: Totals, mss_bytes: u32) {
        let delivered = f64::from(now.delivered - began.delivered);
        let lost = f64::from(now.lost - began.lost);
        let interval_ns = now.delivered_ns.saturating_sub(began.delivered_ns);
        if delivered == 0. || lost < LOSSY * delivered || interval_ns < LEAST_INTERVAL_NS {
            return;
        }
        let pps = delivered * 1e9 / interval_ns as f64;
        match self.pps {
            Some(before) if are_same(pps, before, mss_bytes) => {
                self.pps = Some(f64::midpoint(pps, before));
                self.in_use = true;
                self.rounds = 0;
            }
            _ => {
                self.pps = Some(pps);
                self.begin(now);
            }
        }
    }
}

fn are_same(pps: f64, before: f64, mss_bytes: u32) -> bool {
    let difference = (pps - before).abs();
    difference <= SAME_SHARE * before || difference * f64::from(8 * mss_bytes) <= SAME_BPS
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rounds of 100 ms in which so many segments are delivered and lost.
    fn after(rounds: &[(u32, u32)]) -> Policer {
        let mut policer = Policer::default();
        let mut totals = Totals::default();
        for (delivered, lost) in rounds {
            totals.delivered += delivered;
            totals.delivered_ns += 100_000_000;
            totals.lost += lost;
            let news = News {
                totals,
                loses: *lost > 0,
                round_began: true,
                app_limited: false,
            };
            policer.observe(&news, 1448);
        }
        policer
    }

    #[test]
    fn two_lossy_intervals_of_the_same_throughput_are_a_policer() {
        let policed = after(&[(100, 30); 8]);
        assert_eq!(policed.rate_pps(), Some(1000.));
    }

    #[test]
    fn one_interval_little_loss_or_different_throughputs_are_none() {
        assert_eq!(after(&[(100, 30); 5]).rate_pps(), None);
        assert_eq!(after(&[(100, 15); 16]).rate_pps(), None);
        let uneven = [[(100, 30); 4], [(200, 60); 4]].concat();
        assert_eq!(after(&uneven).rate_pps(), None);
    }

    #[test]
    fn it_is_forgotten_after_48_rounds() {
        let mut policer = after(&[(100, 30); 8]);
        for _ in 1..ROUNDS_IN_USE {
            assert!(!policer.age() && policer.rate_pps().is_some());
        }
        assert!(policer.age() && policer.rate_pps().is_none());
    }
}
