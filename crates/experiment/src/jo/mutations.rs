use std::sync::Arc;
use std::time::Duration;

use anabranch_core::multilink::{BinChoice, Parameters};
use anabranch_scenario::{Load, Network, Policy, Recovery, Run, Scenario};
use anabranch_workload::Pattern;

use super::discussion::FULL_USERS;
use super::runs::{DH, DHFV, SH, SINGLE};
use crate::{Mutation, mutations};

pub(super) const ALL: &[Mutation] = mutations! {
    "all-static": "DH and DHFV spread as SH does" => run: |run| renamed(run, &[(DH, SH), (DHFV, SH)]);
    "none-static": "SH moves bins as DHFV does" => run: |run| renamed(run, &[(SH, DHFV)]);
    "swapped": "DH and DHFV in each other's place" => run: |run| renamed(run, &[(DH, DHFV), (DHFV, DH)]);
    "all-single": "the undivided link in place of SH, DH and DHFV" =>
        run: |run| renamed(run, &[(SH, SINGLE), (DH, SINGLE), (DHFV, SINGLE)]);
    "controller-off": "DH and DHFV look at the queues only after the run" =>
        run: |run| {
            let off = |control: &mut Parameters| control.check_period = Duration::from_secs(3600);
            controlled(run, off)
        };
    "second-bin": "DHFV moves the second largest bin" =>
        run: |run| controlled(run, |control| control.bin = BinChoice::Second);
    "any-bin": "DHFV moves any bin, whatever it is told" =>
        run: |run| controlled(run, |control| control.bin = BinChoice::Random);
    "one-interval": "DH and DHFV look at the queues every 25 ms, whatever they are told" =>
        run: |run| {
            let usual = Parameters::default().check_period;
            controlled(run, |control| control.check_period = usual)
        };
    "no-files": "nobody asks for files by FTP" => run: |run| changed(run, no_files);
    "plain-senders": "Reno's own recovery, whatever senders are told" =>
        run: |run| {
            changed(run, |scenario| {
                scenario.tcp.recovery = Recovery::Reno;
                scenario.tcp.dsack = false;
            })
        };
    "full-load": "as many users at every load as at the highest" => run: |run| changed(run, full_load);
};

/// Another policy in place of that of the run. The undivided link has no sublinks, and none that fails.
fn renamed(run: &Run, pairs: &[(Policy, Policy)]) -> Run {
    let pair = pairs.iter().find(|(from, _)| *from == run.policy);
    let policy = pair.map_or(run.policy, |(_, to)| *to);
    let run = Run {
        policy,
        ..run.clone()
    };
    changed(&run, |scenario| {
        if policy == SINGLE {
            scenario.faults.clear();
        }
    })
}

fn changed(run: &Run, change: impl Fn(&mut Scenario)) -> Run {
    let mut scenario = Scenario::clone(&run.scenario);
    change(&mut scenario);
    Run::new(Arc::new(scenario), run.policy, run.seed, run.point.clone())
}

fn controlled(run: &Run, change: impl Fn(&mut Parameters)) -> Run {
    changed(run, |scenario| {
        if let Network::Trunk(trunk) = &mut scenario.network {
            change(&mut trunk.control);
        }
    })
}

fn full_load(scenario: &mut Scenario) {
    if let Load::Arrivals(plan) = &mut scenario.load
        && let Pattern::Mix(mix) = &mut plan.pattern
    {
        mix.users = mix.users.max(FULL_USERS);
    }
}

fn no_files(scenario: &mut Scenario) {
    if let Load::Arrivals(plan) = &mut scenario.load
        && let Pattern::Mix(mix) = &mut plan.pattern
    {
        mix.classes.retain(|class| class.name != "ftp");
    }
}
