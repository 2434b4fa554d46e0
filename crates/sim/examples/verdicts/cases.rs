//! What happens to a site, what of it is looked at, and when it was looked for.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anabranch_core::{Event, PathStatus, State, Time};
use anabranch_scenario::{
    Change, Direction, Fault, Load, Loss, Network, Passage, Place, Run, Scenario, ScenarioFile,
    Service,
};
use anabranch_workload::{Arrival, ArrivalPlan, ClassId, Pattern, RemoteServerId, UserId};

/// Many connections a second.
pub fn busy() -> Scenario {
    read(include_str!("busy.toml"))
}

/// Few, for so long.
pub fn quiet(length: Duration) -> Scenario {
    let mut scenario = read(include_str!("quiet.toml"));
    scenario.limit = length;
    if let Load::Arrivals(ArrivalPlan {
        pattern: Pattern::Mix(mix),
        ..
    }) = &mut scenario.load
    {
        mix.duration_s = length.as_secs_f64();
    }
    scenario
}

fn read(text: &str) -> Scenario {
    let file = ScenarioFile::parse(Path::new("verdicts.toml"), text);
    let file = file.unwrap_or_else(|error| panic!("{error}"));
    file.first().as_ref().clone()
}

/// The link that something happens to; the other one has no faults.
const FAULTY: usize = 0;
/// Until then all is well.
const QUIET: Duration = Duration::from_secs(60);
/// Between two looks at what is shown.
const LOOK: Duration = Duration::from_millis(500);
/// What was lost or filtered from the beginning is known by then.
const KNOWN: Duration = Duration::from_secs(120);
/// The server that is dead where one is.
const DEAD: u32 = 7;

/// Something that happens to one link, or to all.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// For whoever holds it to a time.
    pub id: &'static str,
    pub title: &'static str,
    /// Of packets in each direction, all the time.
    loss: f64,
    /// At the end of the quiet; for days from the beginning on.
    change: Option<(Place, Option<Direction>, Change)>,
    /// The change is of all links.
    all: bool,
    /// Nobody sends.
    idle: bool,
    dead_server: bool,
    /// What is to be shown of the link.
    pub shows: Shows,
}

/// What a link is shown as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shows {
    Nothing,
    Down,
    Captive,
    Lossy,
}

const PLAIN: Case = Case {
    id: "",
    title: "",
    loss: 0.0,
    change: None,
    all: false,
    idle: false,
    dead_server: false,
    shows: Shows::Nothing,
};

const fn cut(
    id: &'static str,
    title: &'static str,
    loss: f64,
    direction: Option<Direction>,
) -> Case {
    Case {
        id,
        title,
        loss,
        change: Some((Place::LastMile, direction, Change::Cut)),
        shows: Shows::Down,
        ..PLAIN
    }
}

const fn captive(id: &'static str, title: &'static str, service: Service) -> Case {
    let passage = Change::Passage(Passage::Only(service));
    Case {
        id,
        title,
        change: Some((Place::Beyond, None, passage)),
        shows: Shows::Captive,
        ..PLAIN
    }
}

const fn brown_out(
    id: &'static str,
    title: &'static str,
    probability: f64,
    direction: Option<Direction>,
) -> Case {
    let loss = Change::Loss(Loss::Independent { probability });
    Case {
        id,
        title,
        change: Some((Place::LastMile, direction, loss)),
        shows: Shows::Lossy,
        ..PLAIN
    }
}

/// Each has a verdict, which takes a time.
pub const SUDDEN: [Case; 11] = [
    cut("cut", "silent cut under traffic", 0.0, None),
    cut(
        "cut_up",
        "cut of the way out, under traffic",
        0.0,
        Some(Direction::Up),
    ),
    cut(
        "cut_down",
        "cut of the way in, under traffic",
        0.0,
        Some(Direction::Down),
    ),
    Case {
        idle: true,
        ..cut("idle", "silent cut while nobody sends", 0.0, None)
    },
    cut(
        "cut_5",
        "silent cut of a link that loses 5 % each way, under traffic",
        0.05,
        None,
    ),
    cut(
        "cut_20",
        "silent cut of a link that loses 20 % each way, under traffic",
        0.2,
        None,
    ),
    captive(
        "captive_dns",
        "it begins to answer DNS and to carry nothing else",
        Service::Dns,
    ),
    captive(
        "captive_icmp",
        "it begins to answer pings and to carry nothing else",
        Service::Icmp,
    ),
    brown_out("loss_5", "it begins to lose 5 % each way", 0.05, None),
    brown_out("loss_20", "it begins to lose 20 % each way", 0.2, None),
    brown_out(
        "loss_up",
        "it begins to lose 20 % of the way out",
        0.2,
        Some(Direction::Up),
    ),
];

/// Each goes on for a day, and no link that carries flows is to be shown down or captive.
pub const LASTING: [Case; 8] = [
    brown_out("day_loss_5", "one link loses 5 % each way", 0.05, None),
    brown_out("day_loss_20", "one link loses 20 % each way", 0.2, None),
    brown_out(
        "day_loss_up",
        "one link loses 20 % of the way out",
        0.2,
        Some(Direction::Up),
    ),
    Case {
        id: "day_dead",
        title: "one server of eight is dead",
        dead_server: true,
        ..PLAIN
    },
    Case {
        id: "day_filtered",
        title: "resolvers are filtered on all links",
        change: Some((
            Place::Beyond,
            None,
            Change::Passage(Passage::AllBut(Service::Dns)),
        )),
        all: true,
        ..PLAIN
    },
    captive(
        "day_captive",
        "one link answers DNS and carries nothing else",
        Service::Dns,
    ),
    Case {
        id: "day_jitter",
        title: "packets of one link take up to 200 ms longer",
        change: Some((
            Place::LastMile,
            None,
            Change::Jitter(Duration::from_millis(200)),
        )),
        ..PLAIN
    },
    Case {
        id: "day_mtu",
        title: "one link swallows packets of more than 1400 bytes",
        change: Some((Place::Beyond, None, Change::Mtu(Some(1400)))),
        ..PLAIN
    },
];

/// What one run showed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Seen {
    /// From what happened to the verdict that it deserves; not finite if that never came.
    pub verdict_s: f64,
    /// How often a link that carries flows was shown down or captive.
    pub wrong: f64,
    /// For what part of the time the link was shown lossy, ...
    pub lossy: f64,
    /// ... the other one, ...
    pub other_lossy: f64,
    /// ... and for what part it took new flows.
    pub in_use: f64,
}

impl Case {
    /// The scenario with what happens in this case. So that what happens meets probes and polls at any point of their turns, each
    /// seed has it a little later.
    fn scenario(&self, file: &Scenario, seed: u64) -> Scenario {
        let mut scenario = file.clone();
        let at = self.at(file, seed);
        let Network::Site(site) = &mut scenario.network else {
            return scenario;
        };
        if self.dead_server {
            site.dead_servers = vec![DEAD];
        }
        for (index, link) in site.links.iter_mut().enumerate() {
            if self.loss > 0.0 && index == FAULTY {
                let loss = Loss::Independent {
                    probability: self.loss,
                };
                (link.down.loss, link.up.loss) = (loss, loss);
            }
            let Some((place, direction, change)) = self.change else {
                continue;
            };
            if self.all || index == FAULTY {
                scenario.faults.push(Fault {
                    at,
                    link: link.name.clone(),
                    place,
                    direction,
                    change,
                });
            }
        }
        if let (true, Load::Arrivals(plan)) = (self.idle, &mut scenario.load) {
            // A run ends with its load.
            plan.pattern = Pattern::Rows(vec![Arrival {
                at: scenario.limit - Duration::from_secs(1),
                user: UserId(0),
                server: RemoteServerId(0),
                class: ClassId(0),
                bytes: 1,
                direction: Direction::Down,
            }]);
        }
        scenario
    }

    fn at(&self, file: &Scenario, seed: u64) -> Duration {
        match file.limit > 10 * QUIET {
            true => Duration::from_secs(1),
            false => QUIET + Duration::from_millis(seed * 137 % 1100),
        }
    }

    /// What one seed shows.
    pub fn seen(&self, file: &Scenario, seed: u64) -> Seen {
        let scenario = Arc::new(self.scenario(file, seed));
        let policy = file.policies[0].clone();
        let run = Run::new(scenario, policy, seed, Default::default());
        let begins = Time::ZERO + self.at(file, seed);
        let mut shown = Shown::default();
        let events = anabranch_sim::watch(&run, LOOK, &mut |now, paths| {
            shown.look(now, begins, paths);
        });
        let events = events.unwrap_or_else(|error| panic!("{}: {error}", self.id));
        let verdict = match self.shows {
            Shows::Nothing => None,
            Shows::Lossy => shown.lossy_at,
            Shows::Down | Shows::Captive => {
                let mut verdicts = events.iter().filter(|(_, event)| self.is_due(event));
                verdicts.find(|(at, _)| *at >= begins).map(|(at, _)| *at)
            }
        };
        let is_wrong = |(at, event): &&(Time, Event)| {
            let carries_none = matches!(self.shows, Shows::Down | Shows::Captive) && *at >= begins;
            accused(event).is_some_and(|link| link != FAULTY || !carries_none)
        };
        let share = |looks: u64| looks as f64 / shown.looks.max(1) as f64;
        Seen {
            verdict_s: verdict.map_or(f64::INFINITY, |at| at.since(begins).as_secs_f64()),
            wrong: events.iter().filter(is_wrong).count() as f64,
            lossy: share(shown.lossy),
            other_lossy: share(shown.other_lossy),
            in_use: share(shown.in_use),
        }
    }

    /// Whether the event is the verdict that the link deserves.
    fn is_due(&self, event: &Event) -> bool {
        let is_faulty = accused(event) == Some(FAULTY);
        let shows = match event {
            Event::LinkDown { .. } => Shows::Down,
            Event::Captive { .. } => Shows::Captive,
            _ => Shows::Nothing,
        };
        is_faulty && shows == self.shows
    }
}

/// The link that is shown down or captive from this event on.
fn accused(event: &Event) -> Option<usize> {
    match event {
        Event::LinkDown { link, .. } | Event::Captive { link, .. } => Some(link.index()),
        _ => None,
    }
}

/// What was shown, look by look.
#[derive(Debug, Default)]
struct Shown {
    looks: u64,
    lossy_at: Option<Time>,
    lossy: u64,
    other_lossy: u64,
    in_use: u64,
}

impl Shown {
    fn look(&mut self, now: Time, begins: Time, paths: &[PathStatus]) {
        let [faulty, other] = paths else {
            return;
        };
        if now > begins && faulty.recent.is_lossy() {
            self.lossy_at.get_or_insert(now);
        }
        if now < begins + KNOWN {
            return;
        }
        self.looks += 1;
        self.lossy += u64::from(faulty.recent.is_lossy());
        self.other_lossy += u64::from(other.recent.is_lossy());
        let is_in_use = matches!(faulty.state, State::Up | State::PossiblyDown(_));
        self.in_use += u64::from(is_in_use);
    }
}
