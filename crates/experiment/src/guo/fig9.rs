use std::time::Duration;

use anabranch_report::chart::Chart;
use anabranch_scenario::Direction;
use anabranch_sim::fluid::{Counted, Flow, Served, Sharing, serve};

use crate::run::FIRST_SEED;
use crate::{Context, ExperimentError, Findings};

const RATE_BPS: u64 = 500_000;
/// When each flow begins; alone on a link it takes one second.
const BEGIN_S: [u64; 4] = [0, 0, 1, 1];

pub(super) fn run(context: &Context) -> Result<Findings, ExperimentError> {
    let mut findings = Findings::default();
    for (links, key) in [(1, "one_link"), (2, "two_links")] {
        // Nothing is drawn: the first seed is as good as any.
        let served = context.numbers(&format!("fig9, {links} links"), FIRST_SEED, || {
            shared(links)
        })?;
        let durations_s = || served.iter().map(|served| served.duration_s);
        findings.observe(format!("{key}_sum_s"), durations_s().sum());
        let longest_s = durations_s().fold(0.0, f64::max);
        findings.observe(format!("{key}_longest_s"), longest_s);
        findings.plot(format!("fig9-{key}"), plot(links, &served)?);
    }
    Ok(findings)
}

fn shared(links: usize) -> Result<Vec<Served>, ExperimentError> {
    let flows = BEGIN_S.map(|begin_s| Flow {
        at: Duration::from_secs(begin_s),
        bytes: RATE_BPS / 8,
        direction: Direction::Up,
        hash: 0,
    });
    let lcf = "LCF".parse().expect("a row of the table");
    let by_load = Sharing::Chosen(lcf, Counted::BothWays);
    serve(&vec![RATE_BPS; links], by_load, 0, flows)
        .map_err(|error| ExperimentError::run("fig9", error))
}

/// Each flow as a bar from its beginning to its end.
fn plot(links: usize, served: &[Served]) -> Result<String, ExperimentError> {
    let title = match links {
        1 => "Figure 9, one link",
        _ => "Figure 9, two links",
    };
    let chart = Chart::new(title, "time, s", "flow")
        .range_x(0.0..5.0)
        .range_y(-0.5..3.5);
    let chart =
        BEGIN_S
            .iter()
            .zip(served)
            .enumerate()
            .fold(chart, |chart, (flow, (&begin_s, served))| {
                let (begin_s, height) = (begin_s as f64, flow as f64);
                let bar = [(begin_s, height), (begin_s + served.duration_s, height)];
                chart.line(format!("f{flow}"), bar)
            });
    chart
        .svg()
        .map_err(|error| ExperimentError::run("fig9.svg", error))
}
