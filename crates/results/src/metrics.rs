use std::collections::BTreeMap;

use anabranch_scenario::stats::ratio;
use anabranch_scenario::{Counts, Link, Record};
use anabranch_workload::{Direction, Outcome, Transfer, UserId};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// The figures of a run, from its transfers and the rates of its links.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Summary {
    /// All that started.
    pub transfers: u64,
    /// Whole.
    pub ok: u64,
    /// Ended otherwise, by themselves.
    pub failed: u64,
    /// Cut off by the end of the run.
    pub unfinished: u64,
    /// Failed of those that ended by themselves.
    pub failed_ratio: f64,
    /// Count of each outcome but `ok`.
    pub outcomes: BTreeMap<Outcome, u64>,
    /// T_c: from the first start to the end of the last transfer.
    pub completion_s: f64,
    /// Effective bandwidth utilisation (Peng eq. 10): bits that applications asked for and got, over the bits that all
    /// links could have carried in T_c in the directions that files went. Retransmitted bits do not count, nor what goes
    /// in a direction that the links do not have, as up from the clients of a trunk. The paper's transfers all complete; a
    /// failed one counts nothing here and an unfinished one what had arrived.
    pub ebu: f64,
    /// Bits that applications asked for and got, in both directions, per second of T_c.
    pub goodput_bps: f64,
    /// Mean over successful transfers of their own throughput, set-up included: what a user feels.
    pub mean_throughput_bps: f64,
    /// Mean absolute deviation of users' mean throughput from the mean of users.
    pub user_deviation_bps: f64,
    /// Sum of the durations of successful transfers.
    pub duration_sum_s: f64,
    /// Of successful transfers, set-up included.
    pub duration: Percentiles,
    /// Of handshakes that completed.
    pub setup: Percentiles,
    /// Transfers whose first SYN was lost or refused by silence.
    pub with_syn_retransmits: u64,
    /// By group, class and direction, in the order of their names; one if all transfers are of a kind.
    pub parts: Vec<PartSummary>,
    /// In the order of the scenario.
    pub links: Vec<LinkSummary>,
    /// Transfers that no response attributed to a link.
    pub without_link: u64,
    /// Probes, losses, reordering, reassignments, where the world counted them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counts: Option<Counts>,
}

/// What became of the transfers of one kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartSummary {
    /// Of the users, if the scenario has groups.
    pub group: Option<String>,
    /// Of the workload, if it has classes.
    pub class: Option<String>,
    /// Of the files.
    pub direction: Direction,
    /// All that started.
    pub transfers: u64,
    /// Whole.
    pub ok: u64,
    /// Ended otherwise, by themselves.
    pub failed: u64,
    /// Bytes of files that arrived, useful or not.
    pub bytes: u64,
    /// Its part of the goodput of the run: over the T_c of all.
    pub goodput_bps: f64,
    /// Of successful transfers, each one's own, set-up included.
    pub mean_throughput_bps: f64,
    /// Of successful transfers, set-up included.
    pub duration: Percentiles,
}

/// What one link did for the transfers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkSummary {
    /// As in the scenario.
    pub name: String,
    /// Towards the users.
    pub down_rate_bps: u64,
    /// From the users; 0 for a sublink of a trunk, which goes one way.
    pub up_rate_bps: u64,
    /// Transfers that its responses told of; where no transfer is told its link, as on a trunk, flows that began on it by
    /// the series of the link.
    pub flows: u64,
    /// Of those it carried.
    pub failed: u64,
    /// Bytes of files in both directions, useful or not.
    pub bytes: u64,
    /// Bytes of packets to the users, by the series of the link; 0 without one.
    #[serde(default)]
    pub down_bytes: u64,
    /// Bytes of packets from the users, by the series of the link; 0 without one.
    #[serde(default)]
    pub up_bytes: u64,
    /// Of successful transfers.
    pub mean_throughput_bps: f64,
    /// Of successful transfers, set-up included.
    pub duration: Percentiles,
}

/// The longest time that a distribution tells apart from longer ones, in microseconds.
const DAY_US: u64 = 86_400_000_000;

/// A distribution of times in seconds, from a histogram with three significant digits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Percentiles {
    /// How many times; all others are 0 without any.
    pub count: u64,
    /// Mean.
    pub mean_s: f64,
    /// The shortest.
    pub min_s: f64,
    /// Median.
    pub p50_s: f64,
    /// 90th percentile.
    pub p90_s: f64,
    /// 99th percentile.
    pub p99_s: f64,
    /// The longest.
    pub max_s: f64,
}

impl Percentiles {
    /// Of times in seconds.
    pub fn of(times_s: impl Iterator<Item = f64>) -> Percentiles {
        let mut distribution = Distribution::default();
        times_s.for_each(|time_s| distribution.record(time_s));
        distribution.percentiles()
    }
}

/// Times in seconds as a histogram with three significant digits: as much memory for a million as for one.
#[derive(Clone, Debug)]
pub struct Distribution(Histogram<u64>);

impl Default for Distribution {
    fn default() -> Self {
        let histogram = Histogram::new_with_max(DAY_US, 3);
        Distribution(histogram.expect("a day in 3 digits is in bounds"))
    }
}

impl Distribution {
    /// Counts one time, in seconds.
    pub fn record(&mut self, time_s: f64) {
        let time_us = (time_s.max(0.0) * 1e6).round() as u64;
        self.0.saturating_record(time_us);
    }

    /// Summed up.
    pub fn percentiles(&self) -> Percentiles {
        let histogram = &self.0;
        let seconds = |micros: u64| micros as f64 / 1e6;
        Percentiles {
            count: histogram.len(),
            mean_s: histogram.mean() / 1e6,
            min_s: seconds(histogram.min()),
            p50_s: seconds(histogram.value_at_quantile(0.5)),
            p90_s: seconds(histogram.value_at_quantile(0.9)),
            p99_s: seconds(histogram.value_at_quantile(0.99)),
            max_s: seconds(histogram.max()),
        }
    }

    /// Times and the share of all that took at most so long, from the shortest to the longest.
    pub fn curve(&self) -> Vec<(f64, f64)> {
        let all = self.0.len() as f64;
        let mut below = 0;
        let mut corners = Vec::new();
        for step in self.0.iter_recorded() {
            let time_s = step.value_iterated_to() as f64 / 1e6;
            corners.push((time_s, below as f64 / all));
            below += step.count_at_value();
            corners.push((time_s, below as f64 / all));
        }
        corners
    }
}

impl Summary {
    /// All that a record tells.
    pub fn of(record: &Record) -> Summary {
        let mut summary = Summary::of_transfers(&record.transfers, &record.links);
        summary.counts = Some(record.counts);
        let nobody_tells = summary.without_link == summary.transfers;
        for link in &mut summary.links {
            let series = record.series.iter().find(|series| series.name == link.name);
            if let Some(last) = series.and_then(|series| series.samples.last()) {
                link.down_bytes = last.down_bytes;
                link.up_bytes = last.up_bytes;
                if nobody_tells {
                    link.flows = last.opened;
                }
            }
        }
        summary
    }

    /// What the transfers alone tell.
    pub fn of_transfers(transfers: &[Transfer], links: &[Link]) -> Summary {
        let count = |matches: fn(Outcome) -> bool| {
            transfers.iter().filter(|t| matches(t.outcome)).count() as u64
        };
        let (ok, failed) = (count(Outcome::is_ok), count(Outcome::is_failure));
        let completion_s = completion_s(transfers);
        Summary {
            transfers: transfers.len() as u64,
            ok,
            failed,
            unfinished: transfers.len() as u64 - ok - failed,
            failed_ratio: ratio(failed as f64, (ok + failed) as f64),
            outcomes: outcomes(transfers),
            completion_s,
            ebu: ebu(transfers, links, completion_s),
            goodput_bps: ratio(transfers.iter().map(useful_bits).sum(), completion_s),
            mean_throughput_bps: mean(succeeded(transfers).map(Transfer::throughput_bps)),
            user_deviation_bps: user_deviation_bps(transfers),
            duration_sum_s: succeeded(transfers)
                .map(|transfer| transfer.duration_s)
                .sum(),
            duration: Percentiles::of(succeeded(transfers).map(|transfer| transfer.duration_s)),
            setup: Percentiles::of(transfers.iter().filter_map(|transfer| transfer.setup_s)),
            with_syn_retransmits: transfers.iter().filter(|t| t.syn_retransmits > 0).count() as u64,
            parts: parts(transfers, completion_s),
            links: links
                .iter()
                .map(|link| LinkSummary::of(link, transfers))
                .collect(),
            without_link: transfers
                .iter()
                .filter(|transfer| transfer.link.is_none())
                .count() as u64,
            counts: None,
        }
    }
}

impl PartSummary {
    /// Of transfers of one kind; at least one.
    fn of(own: &[&Transfer], completion_s: f64) -> PartSummary {
        let kind = own[0];
        let ok = || own.iter().filter(|transfer| transfer.outcome.is_ok());
        let failed = own.iter().filter(|transfer| transfer.outcome.is_failure());
        PartSummary {
            group: kind.group.clone(),
            class: kind.class.clone(),
            direction: kind.direction,
            transfers: own.len() as u64,
            ok: ok().count() as u64,
            failed: failed.count() as u64,
            bytes: own.iter().map(|transfer| transfer.bytes).sum(),
            goodput_bps: ratio(own.iter().copied().map(useful_bits).sum(), completion_s),
            mean_throughput_bps: mean(ok().map(|transfer| transfer.throughput_bps())),
            duration: Percentiles::of(ok().map(|transfer| transfer.duration_s)),
        }
    }
}

impl LinkSummary {
    fn of(link: &Link, transfers: &[Transfer]) -> LinkSummary {
        let own: Vec<&Transfer> = transfers
            .iter()
            .filter(|t| t.link.as_deref() == Some(&link.name))
            .collect();
        let ok = || own.iter().filter(|transfer| transfer.outcome.is_ok());
        LinkSummary {
            name: link.name.clone(),
            down_rate_bps: link.down_rate_bps,
            up_rate_bps: link.up_rate_bps,
            flows: own.len() as u64,
            failed: own
                .iter()
                .filter(|transfer| transfer.outcome.is_failure())
                .count() as u64,
            bytes: own.iter().map(|transfer| transfer.bytes).sum(),
            down_bytes: 0,
            up_bytes: 0,
            mean_throughput_bps: mean(ok().map(|transfer| transfer.throughput_bps())),
            duration: Percentiles::of(ok().map(|transfer| transfer.duration_s)),
        }
    }
}

/// Those whose file arrived whole.
pub fn succeeded(transfers: &[Transfer]) -> impl Iterator<Item = &Transfer> {
    transfers.iter().filter(|transfer| transfer.outcome.is_ok())
}

fn outcomes(transfers: &[Transfer]) -> BTreeMap<Outcome, u64> {
    let mut counts = BTreeMap::new();
    for transfer in transfers
        .iter()
        .filter(|transfer| !transfer.outcome.is_ok())
    {
        *counts.entry(transfer.outcome).or_default() += 1;
    }
    counts
}

fn completion_s(transfers: &[Transfer]) -> f64 {
    let first = transfers
        .iter()
        .map(|transfer| transfer.start_s)
        .reduce(f64::min);
    let last = transfers.iter().map(Transfer::end_s).reduce(f64::max);
    first.zip(last).map_or(0.0, |(first, last)| last - first)
}

/// Directions in which files went, downstream first; downstream if there were none.
pub fn directions(transfers: &[Transfer]) -> Vec<Direction> {
    let goes = |direction: &Direction| transfers.iter().any(|t| t.direction == *direction);
    let found: Vec<Direction> = Direction::BOTH.into_iter().filter(goes).collect();
    match found.is_empty() {
        true => vec![Direction::Down],
        false => found,
    }
}

fn parts(transfers: &[Transfer], completion_s: f64) -> Vec<PartSummary> {
    let mut kinds: BTreeMap<_, Vec<&Transfer>> = BTreeMap::new();
    for transfer in transfers {
        let kind = (&transfer.group, &transfer.class, transfer.direction);
        kinds.entry(kind).or_default().push(transfer);
    }
    let kinds = kinds.values();
    kinds
        .map(|own| PartSummary::of(own, completion_s))
        .collect()
}

fn ebu(transfers: &[Transfer], links: &[Link], completion_s: f64) -> f64 {
    let (mut bits, mut capacity_bps) = (0.0, 0.0);
    for direction in directions(transfers) {
        let rates = links.iter().map(|link| link.rate_bps(direction) as f64);
        let rate_bps: f64 = rates.sum();
        if rate_bps > 0.0 {
            capacity_bps += rate_bps;
            let own = transfers.iter().filter(|t| t.direction == direction);
            bits += own.map(useful_bits).sum::<f64>();
        }
    }
    ratio(bits, capacity_bps * completion_s)
}

fn useful_bits(transfer: &Transfer) -> f64 {
    match transfer.outcome {
        Outcome::Ok => transfer.bytes_asked as f64 * 8.0,
        Outcome::Unfinished => transfer.bytes as f64 * 8.0,
        _ => 0.0,
    }
}

fn user_deviation_bps(transfers: &[Transfer]) -> f64 {
    let mut of_user: BTreeMap<UserId, Vec<f64>> = BTreeMap::new();
    for transfer in succeeded(transfers) {
        of_user
            .entry(transfer.user)
            .or_default()
            .push(transfer.throughput_bps());
    }
    let means: Vec<f64> = of_user
        .values()
        .map(|rates| mean(rates.iter().copied()))
        .collect();
    let centre = mean(means.iter().copied());
    mean(means.iter().map(|user| (user - centre).abs()))
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
    ratio(sum, count)
}

#[cfg(test)]
mod tests {
    use anabranch_scenario::testing::transfer;
    use anabranch_scenario::{LinkReading, LinkSeries, World};
    use anabranch_workload::TransferId;

    use super::*;

    #[test]
    fn a_distribution_rises_to_one_at_its_longest_time() {
        let mut distribution = Distribution::default();
        for time_s in [0.5, 0.25, 0.5, 2.0] {
            distribution.record(time_s);
        }
        let curve = distribution.curve();
        assert_eq!((curve[0].1, curve[1].1), (0.0, 0.25));
        let (longest_s, share) = curve[curve.len() - 1];
        // Three significant digits.
        assert!((longest_s / 2.0 - 1.0).abs() < 1e-3 && share == 1.0);
        assert!(curve.is_sorted_by(|a, b| a.0 <= b.0 && a.1 <= b.1));
    }

    fn links() -> Vec<Link> {
        vec![
            Link {
                name: "fiber".into(),
                down_rate_bps: 1_536_000,
                up_rate_bps: 128_000,
            },
            Link {
                name: "lte".into(),
                down_rate_bps: 512_000,
                up_rate_bps: 72_000,
            },
        ]
    }

    #[test]
    fn a_run_without_transfers_has_zeroes_and_no_division_by_zero() {
        let summary = Summary::of_transfers(&[], &links());
        assert_eq!(
            (summary.transfers, summary.ebu, summary.completion_s),
            (0, 0.0, 0.0)
        );
        assert_eq!(
            (
                summary.failed_ratio,
                summary.user_deviation_bps,
                summary.duration.p99_s
            ),
            (0.0, 0.0, 0.0)
        );
    }

    #[test]
    fn table_3_of_the_paper_gives_its_ebu() {
        // L1(3,1): 10 rounds of 3 files in 9.8 s over one T1 is 0.80; L1(3,3): 10 rounds of 9 in 34.1 s is 0.69.
        for (files, completion_s, ebu) in [(30, 9.8, 0.80), (90, 34.1, 0.69)] {
            let transfers = vec![transfer(0, 0.0, completion_s); files];
            let t1 = [Link {
                name: "T1".into(),
                down_rate_bps: 1_536_000,
                up_rate_bps: 1_536_000,
            }];
            let found = Summary::of_transfers(&transfers, &t1).ebu;
            assert!(
                (found - ebu).abs() < 0.005,
                "{files} files: {found}, the paper {ebu}"
            );
        }
    }

    #[test]
    fn failed_transfers_are_a_ratio_of_those_that_ended_and_give_no_goodput() {
        let mut transfers = vec![transfer(0, 0.0, 1.0); 4];
        transfers[1].outcome = Outcome::Reset;
        transfers[2] = Transfer {
            outcome: Outcome::ConnectTimeout,
            link: None,
            bytes: 0,
            ..transfers[2].clone()
        };
        transfers[3].outcome = Outcome::Unfinished;
        transfers[3].bytes = 1_000;
        let summary = Summary::of_transfers(&transfers, &links());
        assert_eq!(
            (
                summary.ok,
                summary.failed,
                summary.unfinished,
                summary.without_link
            ),
            (1, 2, 1, 1)
        );
        assert!((summary.failed_ratio - 2.0 / 3.0).abs() < 1e-12);
        assert_eq!(summary.goodput_bps, (50_250.0 + 1_000.0) * 8.0);
        assert_eq!(summary.outcomes[&Outcome::Reset], 1);
        assert_eq!(
            (
                summary.links[0].flows,
                summary.links[0].failed,
                summary.links[1].flows
            ),
            (3, 1, 0)
        );
    }

    #[test]
    fn uploads_are_held_against_what_the_links_carry_up() {
        let up = Transfer {
            direction: Direction::Up,
            ..transfer(0, 0.0, 10.0)
        };
        let bits = 50_250.0 * 8.0;
        let ebu = |transfers: &[Transfer]| Summary::of_transfers(transfers, &links()).ebu;
        let near = |found: f64, expected: f64| (found / expected - 1.0).abs() < 1e-12;
        assert!(near(
            ebu(std::slice::from_ref(&up)),
            bits / (200_000.0 * 10.0)
        ));
        let both = [up.clone(), transfer(0, 0.0, 10.0)];
        assert!(near(ebu(&both), 2.0 * bits / (2_248_000.0 * 10.0)));
        let one_way = links().into_iter().map(|link| Link {
            up_rate_bps: 0,
            ..link
        });
        let one_way: Vec<Link> = one_way.collect();
        let found = Summary::of_transfers(&both, &one_way);
        assert!(near(found.ebu, bits / (2_048_000.0 * 10.0)));
        assert!(near(found.goodput_bps, 2.0 * bits / 10.0));
        assert_eq!(Summary::of_transfers(&both[..1], &one_way).ebu, 0.0);
    }

    #[test]
    fn transfers_of_each_group_class_and_direction_are_told_apart_and_add_up() {
        let of = |group: Option<&str>, class: Option<&str>, direction, duration_s| Transfer {
            group: group.map(str::to_owned),
            class: class.map(str::to_owned),
            direction,
            ..transfer(0, 0.0, duration_s)
        };
        let (down, up) = (Direction::Down, Direction::Up);
        let mut transfers = vec![
            of(Some("near"), Some("web"), up, 1.0),
            of(Some("near"), Some("web"), down, 2.0),
            of(Some("far"), Some("web"), down, 4.0),
            of(Some("near"), Some("web"), down, 4.0),
            of(Some("near"), None, down, 1.0),
        ];
        transfers[3].outcome = Outcome::Reset;
        let summary = Summary::of_transfers(&transfers, &links());
        let parts = summary.parts.iter().map(|part| {
            let (group, class) = (part.group.as_deref(), part.class.as_deref());
            let counts = (part.transfers, part.ok, part.failed);
            (group, class, part.direction, counts, part.duration.max_s)
        });
        let expected = [
            (Some("far"), Some("web"), down, (1, 1, 0), 4.0),
            (Some("near"), None, down, (1, 1, 0), 1.0),
            (Some("near"), Some("web"), down, (2, 1, 1), 2.0),
            (Some("near"), Some("web"), up, (1, 1, 0), 1.0),
        ];
        for (found, expected) in parts.zip(expected) {
            assert_eq!(
                (found.0, found.1, found.2, found.3),
                (expected.0, expected.1, expected.2, expected.3)
            );
            assert!((found.4 / expected.4 - 1.0).abs() < 1e-3);
        }
        assert_eq!(summary.parts.len(), 4);
        let goodput: f64 = summary.parts.iter().map(|part| part.goodput_bps).sum();
        assert!((goodput / summary.goodput_bps - 1.0).abs() < 1e-12);
    }

    #[test]
    fn the_deviation_of_users_is_the_mean_distance_of_their_mean_throughputs() {
        // Users at 402 and 201 kbit/s: the mean is 301.5 and each is 100.5 away.
        let summary =
            Summary::of_transfers(&[transfer(0, 0.0, 1.0), transfer(1, 0.0, 2.0)], &links());
        assert!((summary.user_deviation_bps - 100_500.0).abs() < 1e-6);
    }

    #[test]
    fn percentiles_keep_three_significant_digits() {
        let found = Percentiles::of((1..=1000).map(|n| f64::from(n) / 100.0));
        for (value, expected) in [
            (found.p50_s, 5.0),
            (found.p90_s, 9.0),
            (found.p99_s, 9.9),
            (found.max_s, 10.0),
        ] {
            assert!((value / expected - 1.0).abs() < 1e-3, "{found:?}");
        }
        assert_eq!(found.count, 1000);
    }

    /// Two links that 7 and 3 flows begin on, and one transfer.
    fn record(link: Option<&str>) -> Record {
        let series = |name: &str, opened: u64| {
            let mut series = LinkSeries::new(name, 1_000_000, 0);
            let reading = |opened| LinkReading {
                down_bytes: 100 * opened,
                opened,
                ..LinkReading::default()
            };
            series.push(0.0, reading(5));
            series.push(1.0, reading(5 + opened));
            series
        };
        let name_of = |series: &LinkSeries| Link {
            name: series.name.clone(),
            down_rate_bps: series.down_rate_bps,
            up_rate_bps: series.up_rate_bps,
        };
        let series = vec![series("0", 7), series("1", 3)];
        Record {
            world: World::Sim,
            transfers: vec![Transfer {
                link: link.map(str::to_owned),
                ..transfer(0, 0.0, 1.0)
            }],
            links: series.iter().map(name_of).collect(),
            series,
            events: Vec::new(),
            counts: Counts::default(),
            conditions: Vec::new(),
            problems: Vec::new(),
        }
    }

    #[test]
    fn flows_are_the_transfers_that_name_their_link_or_those_that_began_on_it_if_none_does() {
        let flows = |link| -> Vec<_> {
            let links = Summary::of(&record(link)).links.into_iter();
            links.map(|link| (link.flows, link.down_bytes)).collect()
        };
        assert_eq!(flows(Some("1")), [(0, 700), (1, 300)]);
        assert_eq!(flows(None), [(7, 700), (3, 300)]);
    }

    /// Peng's Appendix A: WMORBF, L3(3,1), 20 rounds, BL2 congested. All 60 rows are readable in the scan but for the
    /// set-up times of ids 4 and 45 and the total time of id 4; ids follow from the source ports. Which link carried a
    /// session is not printed.
    mod appendix_a {
        use super::*;

        /// The paper's kbit in its rates.
        const KBIT: f64 = 1024.0;

        #[derive(Deserialize)]
        struct Row {
            id: u64,
            source: std::net::Ipv4Addr,
            start: f64,
            setup_s: Option<f64>,
            total_s: Option<f64>,
            bytes: u64,
            rate_kbps: f64,
            state: String,
            end_s: f64,
        }

        impl Row {
            /// As printed, or from the rate where the print is lost.
            fn total_s(&self) -> f64 {
                self.total_s
                    .unwrap_or(self.bytes as f64 * 8.0 / (self.rate_kbps * KBIT))
            }
        }

        fn rows() -> Vec<Row> {
            let file = include_str!("testdata/peng-2005-appendix-a.csv");
            csv::Reader::from_reader(file.as_bytes())
                .into_deserialize()
                .collect::<Result<_, _>>()
                .unwrap()
        }

        fn epoch(rows: &[Row]) -> f64 {
            rows.iter()
                .map(|row| row.start)
                .fold(f64::INFINITY, f64::min)
        }

        fn transfers() -> Vec<Transfer> {
            let rows = rows();
            let epoch = epoch(&rows);
            rows.iter()
                .map(|row| Transfer {
                    id: TransferId(row.id),
                    setup_s: row.setup_s,
                    outcome: row.state.to_lowercase().parse().unwrap(),
                    bytes_asked: row.bytes,
                    bytes: row.bytes,
                    link: None,
                    ..transfer(
                        row.source.octets()[3].into(),
                        row.start - epoch,
                        row.total_s(),
                    )
                })
                .collect()
        }

        fn summary() -> Summary {
            let link = |n| Link {
                name: format!("BL{n}"),
                down_rate_bps: 512_000,
                up_rate_bps: 512_000,
            };
            Summary::of_transfers(&transfers(), &[link(1), link(2), link(3)])
        }

        #[test]
        fn every_transcribed_row_agrees_with_its_own_rate_and_end_time() {
            let rows = rows();
            let epoch = epoch(&rows);
            assert_eq!(rows.len(), 60);
            for (index, row) in rows.iter().enumerate() {
                assert_eq!(row.id, index as u64 + 1);
                let rate_kbps = row.bytes as f64 * 8.0 / KBIT / row.total_s();
                assert!(
                    (rate_kbps / row.rate_kbps - 1.0).abs() < 1e-3,
                    "id {}: {rate_kbps}",
                    row.id
                );
                let end_s = row.start - epoch + row.total_s();
                assert!(
                    (end_s - row.end_s).abs() < 0.02,
                    "id {}: ends at {end_s}",
                    row.id
                );
            }
        }

        #[test]
        fn the_run_completes_in_371_5_seconds_at_an_ebu_of_0_042() {
            let summary = summary();
            assert_eq!(
                (summary.ok, summary.failed, summary.failed_ratio),
                (60, 0, 0.0)
            );
            assert!(
                (summary.completion_s - 371.5).abs() < 0.01,
                "{}",
                summary.completion_s
            );
            // 60 × 50 250 bytes over a T1 of 1536 kbit/s, 1000 bits each as in Table 3, for 371.5 s.
            assert!((summary.ebu - 0.0423).abs() < 0.00005, "{}", summary.ebu);
        }

        #[test]
        fn the_mean_throughput_is_the_mean_of_the_printed_rates() {
            let printed = rows().iter().map(|row| row.rate_kbps * KBIT).sum::<f64>() / 60.0;
            let found = summary().mean_throughput_bps;
            assert!(
                (found / printed - 1.0).abs() < 1e-3,
                "{found} bit/s, printed {printed}"
            );
        }

        #[test]
        fn users_deviate_by_21_8_kbit_from_their_mean_of_416() {
            // Means of the printed rates: 383.4, 431.1 and 434.0 kbit/s for .1, .2 and .3.
            let found_kbps = summary().user_deviation_bps / KBIT;
            assert!((found_kbps - 21.84).abs() < 0.05, "{found_kbps}");
        }

        #[test]
        fn seven_starved_sessions_take_nearly_all_of_the_sum_of_durations() {
            let summary = summary();
            assert!(
                (summary.duration_sum_s - 601.1).abs() < 0.05,
                "{}",
                summary.duration_sum_s
            );
            let starved: f64 = transfers()
                .iter()
                .map(|t| t.duration_s)
                .filter(|&time_s| time_s > 5.0)
                .sum();
            assert!(
                (starved / summary.duration_sum_s - 0.92).abs() < 0.01,
                "{starved}"
            );
            assert!((summary.duration.p50_s - 0.77).abs() < 0.01 && summary.duration.max_s > 181.0);
        }
    }
}
