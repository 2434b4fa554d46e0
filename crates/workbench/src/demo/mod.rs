//! The product's main job, shown: a gateway over three links, and one of them dies.
//!
//! The demo is a scenario like any other (`scenarios/demo.toml`), carried out in the laboratory with `anabranch run` ([`plan`]): clients keep all links loaded with downloads, and half way through one line turns into
//! a blackhole, its carrier stays, its packets vanish. What is new here is the picture that is drawn of it while it goes
//! on ([`screen`]), and what is told of it in the end ([`outcome`]). What the clients received, not what the gateway
//! claims, makes the figures.
//!
//! Nothing here measures or judges by itself: the record comes from `lab`, figures from `results`, plots from `report`. An
//! interrupt ends the run early and everything is taken down the same way.

mod outcome;
mod plan;
mod screen;

use std::path::PathBuf;

use anabranch_console::output::print;
use anabranch_lab::scenario::{LinkNow, Moment, Setup};
use anabranch_results::{ResultsDir, write_json};
use anyhow::Context;

use crate::args::DemoArgs;
use crate::interrupt::{self, Interrupted};
use crate::preconditions::{self, unusable};
use outcome::Evidence;
use plan::Plan;
use screen::Screen;

pub fn run(args: &DemoArgs) -> anyhow::Result<()> {
    let plan = Plan::new(args.policy.clone(), args.family, args.seconds)?;
    let binary = preconditions::laboratory()?;
    let results = ResultsDir::open(&args.out).map_err(|error| unusable(&error))?;
    let evidence = play(plan, binary)?;
    let result = evidence.result();
    let page = evidence.report(&result).write(results.path())?;
    if let Some(path) = &args.json {
        write_json(path, &result)?;
    }
    print(format!(
        "{}report: {}\n",
        evidence.summary(&result),
        page.display()
    ))
}

/// Carries the plan out and shows it.
fn play(plan: Plan, binary: PathBuf) -> anyhow::Result<Evidence> {
    let setup = Setup {
        binary,
        stop: interrupt::stop()?,
    };
    let mut show = Show::new(&plan);
    let record =
        anabranch_lab::scenario::run_site(&plan.run, &setup, &mut |moment| show.look(moment));
    let links = show.end()?;
    if setup.stop.is_ordered() {
        let kept = "nothing is kept".to_owned();
        return Err(Interrupted { kept }.into());
    }
    let record = record.context("running the demo")?;
    Ok(Evidence {
        plan,
        links,
        record,
    })
}

/// The picture, from the first moment on.
struct Show<'a> {
    plan: &'a Plan,
    screen: Option<Screen>,
    /// The links at the last moment.
    links: Vec<LinkNow>,
    /// The first thing that could not be shown.
    failure: Option<anyhow::Error>,
}

impl<'a> Show<'a> {
    fn new(plan: &'a Plan) -> Self {
        Self {
            plan,
            screen: None,
            links: Vec::new(),
            failure: None,
        }
    }

    fn look(&mut self, moment: &Moment) {
        self.links = moment.links.iter().copied().cloned().collect();
        if self.failure.is_none() {
            self.failure = self.draw(moment).err();
        }
    }

    fn draw(&mut self, moment: &Moment) -> anyhow::Result<()> {
        let screen = match &mut self.screen {
            Some(screen) => screen,
            None => {
                print(self.plan.introduction())?;
                self.screen.insert(Screen::new(self.plan))
            }
        };
        for event in moment.news {
            screen.tell(event)?;
        }
        screen.draw(moment)
    }

    fn end(self) -> anyhow::Result<Vec<LinkNow>> {
        if let Some(screen) = &self.screen {
            screen.finish()?;
        }
        match self.failure {
            Some(failure) => Err(failure),
            None => Ok(self.links),
        }
    }
}
