//! Four equal flows on one link and on two: in the fluid model, whose numbers are the paper's, and packet by packet.

use std::sync::Arc;
use std::time::Duration;

use anabranch_report::chart::Chart;
use anabranch_scenario::{Direction, Load, RemoteServerId, Scenario, UserId};
use anabranch_sim::fluid::{Counted, Flow, Served, Sharing};
use anabranch_workload::{Arrival, ArrivalPlan, ClassId, Pattern};

use super::trace::{Row, Trace, duration_sum_s};
use crate::{Context, ExperimentError, Findings, Observation, simulate};

const RATE_BPS: u64 = 500_000;
/// By packets a flow takes not a second alone but so many, in which its slow start is little; the sums are told of as many.
const SCALE: u64 = 30;
/// When each flow begins, in s; alone on a link it takes one second.
type Begin = [u64; 4];
/// The figure's.
const OVERLAPPING: Begin = [0, 0, 1, 1];
/// Two links are twice as fast, and no more.
const OTHERS: [(&str, Begin); 2] = [("together", [0; 4]), ("apart", [0, 0, 2, 2])];

pub(super) fn run(context: &Context) -> Result<Findings, ExperimentError> {
    let mut findings = Findings::default();
    for (links, key) in [(1, "one_link"), (2, "two_links")] {
        let served = in_fluid(context, links, OVERLAPPING)?;
        let longest_s = served.iter().map(|served| served.duration_s);
        findings.observe(format!("{key}_sum_s"), exact(sum_s(&served)));
        findings.observe(
            format!("{key}_longest_s"),
            exact(longest_s.fold(0.0, f64::max)),
        );
        let packets_s = by_packets_s(context, links, OVERLAPPING)?;
        findings.observe(format!("{key}_packets_sum_s"), exact(packets_s));
        findings.plot(format!("fig9-{key}"), plot(links, &served));
    }
    for (key, begin) in OTHERS {
        let fluid_s = |links| in_fluid(context, links, begin).map(|served| sum_s(&served));
        findings.observe(format!("{key}_ratio"), exact(fluid_s(1)? / fluid_s(2)?));
        let packets_s = |links| by_packets_s(context, links, begin);
        let ratio = packets_s(1)? / packets_s(2)?;
        findings.observe(format!("{key}_packets_ratio"), exact(ratio));
    }
    Ok(findings)
}

/// Nothing is drawn: any seed is as good.
fn exact(value: f64) -> Observation {
    Observation::Exact(value)
}

fn sum_s(served: &[Served]) -> f64 {
    served.iter().map(|served| served.duration_s).sum()
}

fn in_fluid(context: &Context, links: usize, begin: Begin) -> Result<Vec<Served>, ExperimentError> {
    // Ports in turn.
    let flows = begin.iter().zip(0..).map(|(&begin_s, hash)| Flow {
        at: Duration::from_secs(begin_s),
        bytes: RATE_BPS / 8,
        direction: Direction::Up,
        hash,
    });
    let lcf = "LCF".parse().expect("a row of the table");
    let by_load = Sharing::Chosen(lcf, Counted::BothWays);
    let run = format!("fig9, {links} links, {begin:?}");
    context.numbers(&run, context.seeds()[0], || {
        context.serve(&vec![RATE_BPS; links], by_load, 0, flows.clone())
    })
}

/// Links and TCP are those of the traces.
fn by_packets_s(context: &Context, links: usize, begin: Begin) -> Result<f64, ExperimentError> {
    let row = |begin_s| Arrival {
        at: Duration::from_secs(begin_s * SCALE),
        user: UserId(0),
        server: RemoteServerId(0),
        class: ClassId(0),
        bytes: RATE_BPS / 8 * SCALE,
        direction: Direction::Up,
    };
    let trace = Trace::One.over(context.files, links)?;
    let mut scenario = Scenario::clone(&trace);
    scenario.load = Load::Arrivals(ArrivalPlan {
        pattern: Pattern::Rows(begin.map(row).into()),
        seed: 0,
    });
    let runs = Row::Load.runs(&Arc::new(scenario), &context.seeds()[..1]);
    let sums_s = simulate(context, &runs, |_, record| duration_sum_s(record))?;
    Ok(sums_s[0] / SCALE as f64)
}

/// Each flow as a bar from its beginning to its end.
fn plot(links: usize, served: &[Served]) -> Chart {
    let title = match links {
        1 => "Figure 9, one link",
        _ => "Figure 9, two links",
    };
    let chart = Chart::new(title, "time, s", "flow")
        .range_x(0.0..5.0)
        .range_y(-0.5..3.5);
    let flows = OVERLAPPING.iter().zip(served).enumerate();
    flows.fold(chart, |chart, (flow, (&begin_s, served))| {
        let (begin_s, height) = (begin_s as f64, flow as f64);
        let bar = [(begin_s, height), (begin_s + served.duration_s, height)];
        chart.line(format!("f{flow}"), bar)
    })
}
