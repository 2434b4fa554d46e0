use std::sync::Arc;
use std::time::Duration;

use anabranch_core::Typed;
use anabranch_scenario::{Change, Loss, Network, Run, Scenario};

use crate::mutation::{RANDOM, again, under};
use crate::{Mutation, mutations};

pub(super) const ALL: &[Mutation] = mutations! {
    RANDOM;
    "always-racing": "OFRP under every policy" => run: |run| under(run, "OFRP");
    "even": "every link is as the first" => run: |run| changed(run, even);
    "stormy": "delays change four times as far" => run: |run| changed(run, |scenario| stretch(scenario, 4, 1));
    "lossy": "losses differ four times as far" => run: |run| changed(run, |scenario| stretch(scenario, 1, 4));
};

fn changed(run: &Run, change: impl Fn(&mut Scenario)) -> Run {
    let mut scenario = Scenario::clone(&run.scenario);
    change(&mut scenario);
    let policy = Typed {
        policy: run.policy,
        name: run.policy_name.clone(),
    };
    again(run, Arc::new(scenario), policy)
}

fn even(scenario: &mut Scenario) {
    let Network::Site(site) = &mut scenario.network else {
        return;
    };
    let first = site.links[0].clone();
    for link in &mut site.links {
        link.down.clone_from(&first.down);
        link.up.clone_from(&first.up);
        link.beyond.clone_from(&first.beyond);
    }
    let of_first = |fault: &&anabranch_scenario::Fault| fault.link == first.name;
    let faults: Vec<_> = scenario.faults.iter().filter(of_first).cloned().collect();
    let names: Vec<_> = site.links.iter().map(|link| link.name.clone()).collect();
    let to_each = faults.iter().flat_map(|fault| {
        names.iter().map(|name| anabranch_scenario::Fault {
            link: name.clone(),
            ..fault.clone()
        })
    });
    scenario.faults = to_each.collect();
}

/// What changes beyond the links is so many times as far, in logarithms, from what the file says.
fn stretch(scenario: &mut Scenario, delays: i32, losses: i32) {
    let Network::Site(site) = &scenario.network else {
        return;
    };
    for fault in &mut scenario.faults {
        let link = site.links.iter().find(|link| link.name == fault.link);
        let Some(beyond) = link.and_then(|link| link.beyond.as_ref()) else {
            continue;
        };
        match (&mut fault.change, beyond.down.loss) {
            (Change::Delay(delay), _) => *delay = farther(*delay, beyond.down.delay, delays),
            (
                Change::Loss(Loss::Independent { probability }),
                Loss::Independent { probability: usual },
            ) => *probability = (usual * (*probability / usual).powi(losses)).min(0.5),
            _ => {}
        }
    }
}

fn farther(delay: Duration, usual: Duration, times: i32) -> Duration {
    const MAX: f64 = 5.0;
    let usual_s = usual.as_secs_f64();
    let delay_s = usual_s * (delay.as_secs_f64() / usual_s).powi(times);
    Duration::from_secs_f64(delay_s.min(MAX))
}
