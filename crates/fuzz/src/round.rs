//! A round: some thousand packets for a gateway that begins with nothing, every one judged.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anabranch_policy::splitmix::GAMMA;
use anyhow::{Context, Result};

use crate::check::{self, Verdict};
use crate::generate::Generator;
use crate::memory::{Memory, stream};
use crate::read::Ip;
use crate::rig::{Action, Outcome, Rig};
use crate::script::{Script, Shot};
use crate::site::{BARE_LINK, Port, Told, link_of};

/// The seed of a round: those of one seed have nothing in common with those of the next.
pub fn seed_of(seed: u64, round: u64) -> u64 {
    seed.wrapping_add(round.wrapping_mul(GAMMA))
}

/// Packets of a round: state is forgotten between rounds, so that a replay is short.
pub const PACKETS: u64 = 10_000;
const BETWEEN_LOOKS: usize = 256;
/// A look costs as much as there are flows.
const ENTRIES_PER_PACKET: usize = 8;
const SHRINK_FOR: Duration = Duration::from_secs(30);

/// What must not be.
#[derive(Clone, Debug)]
pub struct Violation {
    /// What is wrong, for people.
    pub words: String,
    /// The packets that lead to it, the last one last.
    pub script: Script,
    /// What became of each when it was seen: what does not repeat cannot be asked again. None for a script that repeats.
    pub became: Vec<String>,
}

/// How often packets left for each reason.
#[derive(Clone, Debug)]
pub struct Tally(pub Vec<u64>);

impl Default for Tally {
    fn default() -> Self {
        Tally(vec![0; anabranch_policy::reasons().len()])
    }
}

impl Violation {
    fn seen(words: String, script: Script, became: &[Outcome]) -> Self {
        Violation {
            words,
            script,
            became: became.iter().map(Outcome::to_string).collect(),
        }
    }

    /// Of a script that leads to it again and again.
    pub fn repeating(words: String, script: Script) -> Self {
        Violation {
            words,
            script,
            became: Vec::new(),
        }
    }

    /// Writes the packets to a file of `folder`, and tells its name.
    pub fn keep(&self, folder: &Path) -> Result<PathBuf> {
        fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        let free = |number: &u32| !folder.join(format!("violation-{number}.hex")).exists();
        let number = (0..).find(free).unwrap_or_default();
        let path = folder.join(format!("violation-{number}.hex"));
        fs::write(&path, self.script.print(&self.words, &self.became))
            .with_context(|| path.display().to_string())?;
        Ok(path)
    }
}

impl Tally {
    fn add(&mut self, outcome: &Outcome) {
        for &reason in &outcome.reasons {
            self.0[reason] += 1;
        }
    }

    /// Adds another's counts.
    pub fn merge(&mut self, other: &Tally) {
        for (sum, count) in self.0.iter_mut().zip(&other.0) {
            *sum += count;
        }
    }
}

/// Every script of a folder, by name.
fn scripts(folder: &Path) -> Result<Vec<(PathBuf, Script)>> {
    let entries = fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let mut paths: Vec<_> = entries
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_>>()?;
    paths.sort();
    let script = |path: PathBuf| Ok((path.clone(), Script::read(&path)?));
    paths.into_iter().map(script).collect()
}

/// A rig that judges.
pub struct Arena {
    rig: Rig,
    memory: Memory,
    /// Of everything since it was made.
    pub tally: Tally,
    since_look: usize,
}

impl Arena {
    /// With a gateway of its own.
    pub fn new() -> Result<Self> {
        Ok(Arena {
            rig: Rig::new()?,
            memory: Memory::default(),
            tally: Tally::default(),
            since_look: 0,
        })
    }

    /// What the last round was told.
    pub fn told(&self) -> &Told {
        &self.rig.told
    }

    /// Plays every script of a folder. The first violation, its file named.
    pub fn corpus(&mut self, folder: &Path) -> Result<Option<Violation>> {
        for (path, script) in scripts(folder)? {
            if let Some((_, words)) = self.play(&script, |_, _| {})? {
                let words = format!("{}: {words}", path.display());
                return Ok(Some(Violation::repeating(words, script)));
            }
        }
        Ok(None)
    }

    /// Plays a round of its own drawing, and hands every packet and what became of it to `meet`.
    pub fn round(
        &mut self,
        seed: u64,
        packets: u64,
        mut meet: impl FnMut(&Shot, &Outcome),
    ) -> Result<Option<Violation>> {
        let (mut generator, told) = Generator::new(seed);
        self.reset(&told)?;
        let mut script = Script {
            told,
            shots: Vec::new(),
        };
        let mut became = Vec::new();
        for _ in 0..packets {
            let shot = generator.next_shot();
            let (outcome, verdict) = self.take(&shot)?;
            generator.learn(&shot, &outcome);
            meet(&shot, &outcome);
            script.shots.push(shot);
            became.push(outcome);
            if let Err(words) = verdict {
                return Ok(Some(Violation::seen(words, script, &became)));
            }
        }
        let last = self.look()?;
        Ok(last
            .err()
            .map(|words| Violation::seen(words, script, &became)))
    }

    /// Plays a script. The place of the packet at which the first violation was seen, and its words.
    pub fn play(
        &mut self,
        script: &Script,
        mut meet: impl FnMut(&Shot, &Outcome),
    ) -> Result<Option<(usize, String)>> {
        self.reset(&script.told)?;
        let few = script.shots.len() <= BETWEEN_LOOKS;
        for (place, shot) in script.shots.iter().enumerate() {
            let (outcome, verdict) = self.take(shot)?;
            meet(shot, &outcome);
            let verdict = match few {
                true => verdict.and(self.look()?),
                false => verdict,
            };
            if let Err(words) = verdict {
                return Ok(Some((place, words)));
            }
        }
        let last = self.look()?;
        Ok(last
            .err()
            .map(|words| (script.shots.len().max(1) - 1, words)))
    }

    /// Whether one of three replays shows it again.
    pub fn repeats(&mut self, violation: &Violation) -> Result<bool> {
        for _ in 0..3 {
            if self.play(&violation.script, |_, _| {})?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Leaves out packets that the violation does not need.
    pub fn shrink(&mut self, violation: Violation) -> Result<Violation> {
        let mut words = None;
        let script = self.fewest(violation.script.clone(), |arena, script| {
            let found = arena.play(script, |_, _| {})?;
            Ok(found.map(|(place, found)| {
                words = Some(found);
                place
            }))
        })?;
        Ok(words.map_or(violation, |words| Violation::repeating(words, script)))
    }

    /// Leaves packets out as long as `still` names the place of one that matters; those after it are not needed.
    pub fn fewest(
        &mut self,
        script: Script,
        mut still: impl FnMut(&mut Arena, &Script) -> Result<Option<usize>>,
    ) -> Result<Script> {
        let until = Instant::now() + SHRINK_FOR;
        let mut best = script;
        let mut size = best.shots.len();
        while size > 0 && Instant::now() < until {
            let mut from = 0;
            while from < best.shots.len() && Instant::now() < until {
                let mut fewer = best.clone();
                let to = (from + size).min(fewer.shots.len());
                fewer.shots.drain(from..to);
                match still(self, &fewer)? {
                    Some(place) => {
                        fewer.shots.truncate(place + 1);
                        best = fewer;
                    }
                    None => from += size,
                }
            }
            size /= 2;
        }
        Ok(best)
    }

    fn reset(&mut self, told: &Told) -> Result<()> {
        self.memory = Memory::default();
        self.since_look = 0;
        self.rig.reset(told)
    }

    fn judge(&mut self, port: Port, frame: &[u8], outcome: &Outcome) -> Verdict {
        self.tally.add(outcome);
        check::check(&self.rig, &mut self.memory, port, frame, outcome)
    }

    fn take(&mut self, shot: &Shot) -> Result<(Outcome, Verdict)> {
        let outcome = self.rig.arrive(shot)?;
        let mut verdict = self.judge(shot.port, &shot.frame, &outcome);
        if let Some(port) = turned_at(&outcome) {
            let back = self.rig.come_back(port, &outcome.frame)?;
            verdict = verdict.and(self.judge(port, &outcome.frame, &back));
        }
        if outcome
            .reason()
            .is_some_and(|reason| reason.name == "FORWARD_IN")
        {
            let header = shot.port.header().min(shot.frame.len());
            if let Some(ip) = Ip::of(&shot.frame[header..]) {
                self.rig.forward(&ip)?;
            }
        }
        if let Some((port, link)) = self.released_at(shot, &outcome) {
            let sent = self.rig.release(port, &outcome.frame, link)?;
            verdict = verdict.and(self.judge(port, &outcome.frame, &sent));
        }
        self.since_look += 1;
        let often = BETWEEN_LOOKS.max(self.rig.tables.entries() / ENTRIES_PER_PACKET);
        if self.since_look >= often {
            verdict = verdict.and(self.look()?);
        }
        Ok((outcome, verdict))
    }

    /// Where the SYN arrives that the answer to its probe has become, and the link that it is to take.
    fn released_at(&self, answer: &Shot, outcome: &Outcome) -> Option<(Port, u16)> {
        let is_released =
            outcome.action == Action::Redirect && outcome.reason()?.name == "PROBE_ANSWERED";
        let syn = Ip::of_frame(&outcome.frame).filter(|_| is_released)?;
        let (port, _) = self.memory.held(stream(&syn)?)?;
        match answer.port {
            Port::Link(link) => Some((port, link)),
            Port::Lan(_) => None,
        }
    }

    /// At the flow tables, and at what was sent beside the packets themselves.
    fn look(&mut self) -> Result<Verdict> {
        self.since_look = 0;
        let mut clones = Vec::new();
        self.rig
            .capture
            .drain(|index, frame| clones.push((index, frame.to_vec())))?;
        for (index, frame) in clones {
            let Some(port) = self.rig.port_of(index) else {
                continue;
            };
            let verdict = check::check_clone(port, &frame);
            if verdict.is_err() {
                return Ok(verdict);
            }
        }
        self.rig.look()
    }
}

/// The link by whose ingress a packet between LAN hosts comes back.
fn turned_at(outcome: &Outcome) -> Option<Port> {
    let is_hairpinned = outcome.action == Action::Redirect && outcome.reason()?.name == "HAIRPIN";
    let link = link_of(Ip::of_frame(&outcome.frame)?.dst())?;
    (is_hairpinned && link != BARE_LINK).then_some(Port::Link(link))
}
