//! What the demo does: the scenario, as long as wanted.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anabranch_console::table;
use anabranch_core::{Algorithm, Typed};
use anabranch_scenario::{
    Families, Family, LinkPlan, Load, Network, Policy, Run, Scenario, ScenarioFile,
};
use anabranch_workload::{Extent, Workload};
use anyhow::bail;

const FILE: &str = include_str!("../../../../scenarios/demo.toml");
const SEED: u64 = 1;

pub struct Plan {
    pub run: Run,
    pub links: Vec<LinkPlan>,
    pub workload: Workload,
    pub seconds: u16,
}

impl Plan {
    /// The scenario with this policy, these families and this length; faults keep their place in it.
    pub fn new(policy: Typed<Algorithm>, families: Families, seconds: u16) -> anyhow::Result<Self> {
        let file = ScenarioFile::parse(Path::new("demo.toml"), FILE)?;
        let mut scenario = Scenario::clone(file.first());
        let (Network::Site(site), Load::Pages(workload)) = (&scenario.network, &scenario.load)
        else {
            bail!("demo.toml: the demo shows users behind links");
        };
        let length = Duration::from_secs(seconds.into());
        let (links, mut workload) = (site.links.clone(), workload.clone());
        workload.extent = Extent::Duration(length);
        for fault in &mut scenario.faults {
            fault.at = length.mul_f64(fault.at.div_duration_f64(scenario.limit));
        }
        scenario.limit = length;
        scenario.families = families;
        scenario.load = Load::Pages(workload.clone());
        let policy = policy.map(Policy::gateway);
        Ok(Self {
            run: Run::new(Arc::new(scenario), policy, SEED, Vec::new()),
            links,
            workload,
            seconds,
        })
    }

    pub fn introduction(&self) -> String {
        let links = self.links.iter().map(|link| {
            let [down, up] = [&link.down, &link.up].map(|line| table::rate(line.rate_bps as f64));
            let round_trip = link.down.delay + link.up.delay;
            let round_trip_ms = round_trip.as_secs_f64() * 1e3;
            format!(
                "  {:<6} {down} down, {up} up, {round_trip_ms} ms",
                link.name
            )
        });
        format!(
            "{} links in network namespaces, {} users with {} downloads each over {}, policy {}, {} s:\n{}\n\n",
            count(self.links.len()),
            self.workload.users,
            self.workload.tabs_per_user,
            self.families(),
            self.run.policy_name,
            self.seconds,
            links.collect::<Vec<_>>().join("\n")
        )
    }

    /// In words.
    pub fn families(&self) -> String {
        let families = self.run.scenario.families.list().iter();
        let words = families.map(Family::to_string);
        words.collect::<Vec<_>>().join(" and ")
    }
}

fn count(number: usize) -> String {
    match number {
        3 => "Three".to_owned(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use anabranch_scenario::Change;

    use super::*;

    #[test]
    fn a_link_dies_half_way_through_whatever_the_length() {
        for seconds in [10, 24, 60] {
            let plan = Plan::new(Algorithm::default().into(), Families::Both, seconds).unwrap();
            let [fault] = &plan.run.scenario.faults[..] else {
                panic!("{:?}", plan.run.scenario.faults);
            };
            assert_eq!(fault.change, Change::Cut);
            assert_eq!(fault.at.as_secs_f64() * 2.0, f64::from(seconds));
            let Load::Pages(workload) = plan.run.load() else {
                panic!("{:?}", plan.run.load());
            };
            assert_eq!(workload.extent, Extent::Duration(plan.run.scenario.limit));
        }
    }

    #[test]
    fn the_introduction_names_the_links_as_they_are() {
        let policy = Algorithm::default().into();
        let expected = "\
Three links in network namespaces, 8 users with 5 downloads each over IPv4 and IPv6, policy WSDM, 24 s:
  fiber  40.0 Mbit/s down, 20.0 Mbit/s up, 12 ms
  cable  25.0 Mbit/s down, 10.0 Mbit/s up, 25 ms
  lte    15.0 Mbit/s down, 8.00 Mbit/s up, 45 ms

";
        let plan = Plan::new(policy, Families::Both, 24).unwrap();
        assert_eq!(plan.introduction(), expected);
    }
}
