use anabranch_scenario::stats::ratio;
use anabranch_workload::Transfer;
use serde::{Deserialize, Serialize};

/// The machine-readable result of `anabranch-lab demo`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DemoResult {
    /// Its name, or its tuple.
    pub policy: String,
    /// Mean capacity that existed during the run: every link counts its rate for the time it was whole. A cut link
    /// counts nothing from the instant of the cut, not from its detection, until it is restored.
    pub capacity_bps: f64,
    /// Bits of files that arrived per second of the run. Bytes of failed transfers are of no use and do not count;
    /// those of transfers that the end of the run cut off do.
    pub goodput_bps: f64,
    /// `goodput_bps` / `capacity_bps`. Link rates include headers, so full links of 1500-byte packets give 0.965.
    pub utilisation: f64,
    /// All that started.
    pub transfers: u64,
    /// Those that ended without the whole file.
    pub failed: u64,
    /// In the order of the scenario.
    pub links: Vec<DemoLink>,
    /// None if no link was cut.
    pub cut: Option<Cut>,
}

/// A link of the demo and what it carried.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DemoLink {
    /// As in the scenario.
    pub name: String,
    /// Towards the users.
    pub rate_bps: u64,
    /// Of balanced flows, towards the users.
    pub bytes: u64,
    /// Opened on it.
    pub flows: u64,
}

/// The link that was cut and what it cost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cut {
    /// Its name.
    pub link: String,
    /// Since the epoch of the run.
    pub at_s: f64,
    /// Seconds after the cut until the gateway declared the link down; none if it never did.
    pub detected_s: Option<f64>,
    /// Failed transfers that started earlier than two seconds after the cut.
    pub failed_before_2s: u64,
    /// Failed transfers that started two seconds after the cut or later.
    pub failed_after_2s: u64,
}

/// What a demo run observed; times are seconds since the epoch of the run.
#[derive(Clone, Debug)]
pub struct DemoRun<'a> {
    /// Its name, or its tuple.
    pub policy: String,
    /// When the load began.
    pub began_s: f64,
    /// When the load ended.
    pub ended_s: f64,
    /// In the order of the scenario.
    pub links: Vec<DemoLink>,
    /// None if no link was cut.
    pub cut: Option<CutSeen>,
    /// All that started.
    pub transfers: &'a [Transfer],
}

/// When a link was cut, declared down, and made whole again; seconds since the epoch of the run.
#[derive(Clone, Debug)]
pub struct CutSeen {
    /// Its name.
    pub link: String,
    /// When it was cut.
    pub cut_s: f64,
    /// When the gateway gave it up; none if it never did.
    pub declared_down_s: Option<f64>,
    /// When it was whole again; none if it stayed cut.
    pub restored_s: Option<f64>,
}

impl DemoRun<'_> {
    /// What came of it.
    pub fn result(&self) -> DemoResult {
        let goodput_bps = ratio(self.useful_bits(), self.duration_s());
        let capacity_bps = self.capacity_bps();
        DemoResult {
            policy: self.policy.clone(),
            capacity_bps,
            goodput_bps,
            utilisation: ratio(goodput_bps, capacity_bps),
            transfers: self.transfers.len() as u64,
            failed: self.failures().count() as u64,
            links: self.links.clone(),
            cut: self.cut.as_ref().map(|seen| self.cut_result(seen)),
        }
    }

    fn duration_s(&self) -> f64 {
        self.ended_s - self.began_s
    }

    fn failures(&self) -> impl Iterator<Item = &Transfer> {
        self.transfers
            .iter()
            .filter(|transfer| transfer.outcome.is_failure())
    }

    fn useful_bits(&self) -> f64 {
        let useful = self
            .transfers
            .iter()
            .filter(|transfer| !transfer.outcome.is_failure());
        useful.map(|transfer| transfer.bytes as f64 * 8.0).sum()
    }

    fn capacity_bps(&self) -> f64 {
        let bits: f64 = self
            .links
            .iter()
            .map(|link| link.rate_bps as f64 * self.whole_s(&link.name))
            .sum();
        ratio(bits, self.duration_s())
    }

    /// Seconds of the run during which the link was not cut.
    fn whole_s(&self, link: &str) -> f64 {
        let cut_s = self.cut.iter().filter(|cut| cut.link == link).map(|cut| {
            let from = cut.cut_s.clamp(self.began_s, self.ended_s);
            let to = cut
                .restored_s
                .unwrap_or(self.ended_s)
                .clamp(from, self.ended_s);
            to - from
        });
        self.duration_s() - cut_s.sum::<f64>()
    }

    fn cut_result(&self, seen: &CutSeen) -> Cut {
        let late = |transfer: &&Transfer| transfer.start_s >= seen.cut_s + 2.0;
        let failed_after_2s = self.failures().filter(late).count() as u64;
        Cut {
            link: seen.link.clone(),
            at_s: seen.cut_s,
            detected_s: seen.declared_down_s.map(|down_s| down_s - seen.cut_s),
            failed_before_2s: self.failures().count() as u64 - failed_after_2s,
            failed_after_2s,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_scenario::testing::transfer;
    use anabranch_workload::Outcome;

    fn run(transfers: &[Transfer], cut: Option<CutSeen>) -> DemoRun<'_> {
        let link = |name: &str, rate_bps| DemoLink {
            name: name.into(),
            rate_bps,
            bytes: 0,
            flows: 0,
        };
        DemoRun {
            policy: "WSDM".into(),
            began_s: 0.0,
            ended_s: 10.0,
            links: vec![link("fiber", 50_000_000), link("lte", 10_000_000)],
            cut,
            transfers,
        }
    }

    fn cut(restored_s: Option<f64>) -> Option<CutSeen> {
        Some(CutSeen {
            link: "fiber".into(),
            cut_s: 4.0,
            declared_down_s: Some(4.5),
            restored_s,
        })
    }

    #[test]
    fn the_capacity_of_a_cut_link_counts_until_the_cut_and_again_after_it_is_restored() {
        assert_eq!(run(&[], None).result().capacity_bps, 60e6);
        assert_eq!(run(&[], cut(None)).result().capacity_bps, 30e6);
        assert_eq!(run(&[], cut(Some(9.0))).result().capacity_bps, 35e6);
        assert_eq!(run(&[], cut(Some(99.0))).result().capacity_bps, 30e6);
    }

    #[test]
    fn goodput_counts_bytes_of_finished_and_unfinished_transfers_but_not_of_failed_ones() {
        let mut transfers = vec![transfer(0, 0.0, 1.0); 3];
        transfers[1].outcome = Outcome::Unfinished;
        transfers[2].outcome = Outcome::Reset;
        let result = run(&transfers, None).result();
        assert_eq!(result.goodput_bps, 2.0 * 50_250.0 * 8.0 / 10.0);
        assert_eq!(result.utilisation, result.goodput_bps / 60e6);
        assert_eq!((result.transfers, result.failed), (3, 1));
    }

    #[test]
    fn failures_are_split_two_seconds_after_the_cut_by_their_start() {
        let starts = [1.0, 5.99, 6.0, 7.0];
        let failed = starts.map(|start_s| Transfer {
            outcome: Outcome::Reset,
            ..transfer(0, start_s, 3.0)
        });
        let cut = run(&failed, cut(None)).result().cut.unwrap();
        assert_eq!((cut.failed_before_2s, cut.failed_after_2s), (2, 2));
        assert_eq!(cut.detected_s, Some(0.5));
    }

    #[test]
    fn a_run_without_duration_has_no_rate_rather_than_an_infinite_one() {
        let result = DemoRun {
            ended_s: 0.0,
            ..run(&[transfer(0, 0.0, 1.0)], None)
        }
        .result();
        assert_eq!(
            (result.goodput_bps, result.capacity_bps, result.utilisation),
            (0.0, 0.0, 0.0)
        );
    }

    #[test]
    fn the_json_has_exactly_the_published_keys() {
        let json = serde_json::to_value(run(&[], cut(None)).result()).unwrap();
        let keys = |value: &serde_json::Value| {
            value
                .as_object()
                .unwrap()
                .keys()
                .cloned()
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert_eq!(
            keys(&json),
            "capacity_bps cut failed goodput_bps links policy transfers utilisation"
        );
        assert_eq!(keys(&json["links"][0]), "bytes flows name rate_bps");
        assert_eq!(
            keys(&json["cut"]),
            "at_s detected_s failed_after_2s failed_before_2s link"
        );
    }
}
