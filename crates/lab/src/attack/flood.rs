//! A flood: the generator on a processor of its own, and the sinks that count what leaves the gateway.

use std::io::ErrorKind;
use std::ops::Sub;
use std::time::{Duration, Instant};

use aya::maps::{MapData, PerCpuArray};
use aya::programs::tc::TcAttachOptions;
use aya::programs::{
    LinkOrder, ProgramError, SchedClassifier, TcAttachType, TestRun, TestRunOptions,
};
use aya::{Ebpf, EbpfLoader, include_bytes_aligned};
use tokio::sync::watch;

use anabranch_scenario::Family;

use super::frame::Plan;
use super::ranges;
use super::site::{HOST_DEVICE, ISP_DEVICE};
use crate::topology::{LabError, Result};
use anabranch_testbed::cpus;
use anabranch_testbed::netns::Namespace;

static OBJECT: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/flood.bpf.o"));

/// The generator sends so often; what a busy machine delays further than [`DEBT_MAX`] is not sent later.
const TICK: Duration = Duration::from_millis(1);
const DEBT_MAX: Duration = Duration::from_millis(20);
/// Fewer than a virtual cable holds (256): the kernel carries them on when a call ends.
const FRAMES_PER_CALL: u32 = 128;
const PROCESSOR: usize = 0;

/// What the programs counted, frames and packets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counted {
    pub made: u64,
    /// At the ISPs' devices.
    pub arrived: u64,
    /// Of these with a source of the LAN.
    pub leaked: u64,
}

impl Sub for Counted {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            made: self.made - before.made,
            arrived: self.arrived - before.arrived,
            leaked: self.leaked - before.leaked,
        }
    }
}

/// The loaded programs; sinks are detached with the value.
pub(super) struct Flood {
    programs: Ebpf,
    counters: PerCpuArray<MapData, u64>,
    /// What a frame is made of is the plan's: the packet given is room for it.
    room: Vec<u8>,
}

fn failed<E: std::fmt::Display>(what: &'static str) -> impl FnOnce(E) -> LabError {
    move |error| LabError::Load(format!("the flood's programs: {what}: {error}"))
}

impl Flood {
    /// Loads the programs for frames of a family that leave by the device of this index.
    pub fn load(plan: &Plan, family: Family, device: u32) -> Result<Self> {
        let mut programs = EbpfLoader::new()
            .override_global("plan", plan, true)
            .override_global("device", &device, true)
            .override_global("lan", &ranges::lan(family), true)
            .load(OBJECT)
            .map_err(failed("loading"))?;
        for name in ["generate", "sink", "serve", "collude"] {
            let program = program(&mut programs, name)?;
            program.load().map_err(failed(name))?;
        }
        let counters = programs.take_map("counters").ok_or("no such map");
        let counters = counters.map_err(failed("counters"))?;
        let counters = PerCpuArray::try_from(counters).map_err(failed("counters"))?;
        Ok(Self {
            programs,
            counters,
            room: plan.room(),
        })
    }

    /// Lets what the attack sends end at these routers.
    pub fn sink_at(&mut self, routers: &[Namespace]) -> Result<()> {
        let mut routers = routers.iter();
        routers.try_for_each(|router| self.attach("sink", router, ISP_DEVICE))
    }

    /// Lets a server behind the gateway answer what the attack sends it.
    pub fn serve_at(&mut self, server: &Namespace) -> Result<()> {
        self.attach("serve", server, HOST_DEVICE)
    }

    /// Lets what comes back from there end, or be answered, at the attacker on the LAN.
    pub fn collude_at(&mut self, attacker: &Namespace) -> Result<()> {
        self.attach("collude", attacker, HOST_DEVICE)
    }

    fn attach(&mut self, name: &'static str, at: &Namespace, device: &str) -> Result<()> {
        let program = program(&mut self.programs, name)?;
        let options = TcAttachOptions::TcxOrder(LinkOrder::default());
        at.run(|| program.attach_with_options(device, TcAttachType::Ingress, options))?
            .map_err(failed("attaching"))?;
        Ok(())
    }

    pub fn counted(&self) -> Result<Counted> {
        let total = |counter| -> Result<u64> {
            let values = self.counters.get(&counter, 0);
            Ok(values.map_err(failed("counters"))?.iter().sum())
        };
        Ok(Counted {
            made: total(0)?,
            arrived: total(1)?,
            leaked: total(2)?,
        })
    }

    /// Sends at `rate_pps`, or as fast as this machine can, until it is over, and returns how long it sent: from the
    /// first tick's beginning to the last one's end, so that never more than `rate_pps` are made. Takes the calling
    /// thread to the attacker and to one processor.
    pub fn send(
        &self,
        attacker: &Namespace,
        rate_pps: u32,
        over: &watch::Receiver<bool>,
    ) -> Result<Duration> {
        let generator = self.programs.program("generate").ok_or("no such program");
        let generator: &SchedClassifier = generator
            .map_err(failed("generator"))?
            .try_into()
            .map_err(failed("generator"))?;
        let _inside = attacker.enter()?;
        claim().map_err(failed("claiming a processor"))?;
        nix::sys::prctl::set_timerslack(1).map_err(failed("setting the timer slack"))?;
        let begun = Instant::now();
        let mut next = begun;
        // The sender gone is the end as well.
        while over.has_changed().is_ok() && !*over.borrow() {
            let frames = (f64::from(rate_pps) * TICK.as_secs_f64()).ceil() as u32;
            self.make(generator, frames)?;
            let now = Instant::now();
            let due = f64::from(frames) / f64::from(rate_pps.max(1));
            next += Duration::from_secs_f64(due).max(TICK);
            next = next.max(now.checked_sub(DEBT_MAX).unwrap_or(now));
            std::thread::sleep(next.saturating_duration_since(now));
        }
        Ok(begun.elapsed())
    }

    fn make(&self, generator: &SchedClassifier, frames: u32) -> Result<()> {
        for begun in (0..frames).step_by(FRAMES_PER_CALL as usize) {
            let options = TestRunOptions {
                data_in: Some(&self.room),
                repeat: FRAMES_PER_CALL.min(frames - begun),
                ..TestRunOptions::new()
            };
            let made = generator.test_run(options);
            // A signal cuts a call short: fewer frames, never more than the rate.
            if !made.as_ref().is_err_and(is_interrupted) {
                made.map_err(failed("making frames"))?;
            }
        }
        Ok(())
    }
}

fn is_interrupted(error: &ProgramError) -> bool {
    matches!(error, ProgramError::SyscallError(error) if error.io_error.kind() == ErrorKind::Interrupted)
}

fn program<'a>(programs: &'a mut Ebpf, name: &'static str) -> Result<&'a mut SchedClassifier> {
    let program = programs.program_mut(name).ok_or("no such program");
    program
        .map_err(failed(name))?
        .try_into()
        .map_err(failed(name))
}

/// Keeps this thread on its processor, and before other programs there: a flood does not wait for whom it meets.
fn claim() -> std::io::Result<()> {
    cpus::pin(cpus::THIS_THREAD, PROCESSOR)?;
    let priority = libc::sched_param { sched_priority: 1 };
    // SAFETY: the call reads one structure, which outlives it.
    match unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &priority) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

    use super::super::{ATTACKS, Attack, Subject};
    use super::*;
    use anabranch_frames::Seen;

    const TC_ACT_REDIRECT: u32 = 7;
    const LOOPBACK: u32 = 1;

    fn flood(attack: &Attack, family: Family) -> Flood {
        let external: IpAddr = match family {
            Family::V4 => Ipv4Addr::new(100, 64, 0, 2).into(),
            Family::V6 => Ipv6Addr::new(0x2001, 0xdb8, 0x64, 0, 0, 0, 0, 2).into(),
        };
        let macs = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];
        let plan = attack.plan_between(macs, family, external);
        Flood::load(&plan, family, LOOPBACK).unwrap()
    }

    /// What a program makes of a packet, and what it says.
    fn run(flood: &mut Flood, name: &'static str, packet: &[u8]) -> (Vec<u8>, u32) {
        let mut made = vec![0; packet.len()];
        let options = TestRunOptions {
            data_in: Some(packet),
            data_out: Some(&mut made),
            repeat: 1,
            ..TestRunOptions::new()
        };
        let program = program(&mut flood.programs, name).unwrap();
        let verdict = program.test_run(options).unwrap().return_value;
        (made, verdict)
    }

    fn generate(flood: &mut Flood) -> Vec<u8> {
        let room = flood.room.clone();
        run(flood, "generate", &room).0
    }

    /// What is sent, behind tags if there are any, with all checksums right.
    fn read(frame: &[u8]) -> Seen {
        match frame[12..14] {
            [0x81, 0] => read(&frame[4..]),
            _ => anabranch_frames::read(frame),
        }
    }

    fn in_a_namespace(work: impl Fn(Family) + Send + Sync) {
        let namespace = Namespace::create("flood").unwrap();
        let both = || Family::ALL.into_iter().for_each(&work);
        namespace.run(both).unwrap();
    }

    #[test]
    fn the_frames_of_every_attack_have_sound_checksums_and_differ() {
        in_a_namespace(|family| {
            let concern = |attack: &&Attack| attack.concerns(Subject::Anabranch, family);
            for attack in ATTACKS.iter().filter(concern) {
                let mut flood = flood(attack, family);
                // Of eight hosts some follow themselves.
                let frames = [(); 16].map(|()| generate(&mut flood));
                for frame in &frames {
                    read(frame);
                }
                let differs = frames.iter().any(|frame| *frame != frames[0]);
                assert!(differs, "{}", attack.name);
                assert_eq!(flood.counted().unwrap().made, 16);
            }
        });
    }

    #[test]
    fn a_server_that_helps_completes_the_handshake() {
        in_a_namespace(|family| {
            let attack = Attack::named("connections").unwrap();
            let mut flood = flood(attack, family);
            let syn = generate(&mut flood);
            let (answer, verdict) = run(&mut flood, "sink", &syn);
            assert_eq!(verdict, TC_ACT_REDIRECT);
            let (last, verdict) = run(&mut flood, "collude", &answer);
            assert_eq!(verdict, TC_ACT_REDIRECT);
            let [syn, answer, last] = [&syn, &answer, &last].map(|frame| read(frame));
            assert!(answer.tcp().syn && answer.tcp().ack);
            assert_eq!((answer.src(), answer.dst()), (syn.dst(), syn.src()));
            assert!(last.tcp().ack && !last.tcp().syn);
            assert_eq!((last.src(), last.dst()), (syn.src(), syn.dst()));
            let next = answer.tcp().sequence_number.wrapping_add(1);
            assert_eq!(last.tcp().acknowledgment_number, next);
            let counted = flood.counted().unwrap();
            assert_eq!((counted.arrived, counted.leaked), (1, 1));
        });
    }

    const ASKER: [u8; 6] = [2, 0, 0, 0, 0, 7];

    /// The gateway asks whose an address is: by ARP, or by a neighbour solicitation.
    fn who_has(asked: IpAddr) -> Vec<u8> {
        match asked {
            IpAddr::V4(asked) => [
                &[0xff; 6][..],
                &ASKER,
                &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1],
                &ASKER,
                &[10, 80, 0, 1, 0, 0, 0, 0, 0, 0],
                &asked.octets(),
            ]
            .concat(),
            IpAddr::V6(asked) => {
                let gateway = Ipv6Addr::new(0xfd00, 0x80, 0, 0, 0, 0, 0, 1);
                [
                    &[0x33, 0x33, 0xff, 0, 0, 9][..],
                    &ASKER,
                    &[0x86, 0xdd, 0x60, 0, 0, 0, 0, 32, 58, 255],
                    &gateway.octets(),
                    &Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00, 9).octets(),
                    &[135, 0, 0, 0, 0, 0, 0, 0],
                    &asked.octets(),
                    &[1, 1],
                    &ASKER,
                ]
                .concat()
            }
        }
    }

    #[test]
    fn an_attacker_says_of_invented_addresses_that_they_are_its_own() {
        in_a_namespace(|family| {
            let attack = Attack::named("neighbours-answered").unwrap();
            let mut flood = flood(attack, family);
            let echo = generate(&mut flood);
            let (own, is_ipv6) = (&echo[6..12], family == Family::V6);
            let question = who_has(read(&echo).ip.source);
            let (answer, verdict) = run(&mut flood, "collude", &question);
            assert_eq!(verdict, TC_ACT_REDIRECT);
            assert_eq!((&answer[..6], &answer[6..12]), (&ASKER[..], own));
            if is_ipv6 {
                read(&answer);
                assert_eq!((answer[54], &answer[22..38]), (136, &question[62..78]));
                assert_eq!((&answer[62..78], &answer[80..]), (&question[62..78], own));
            } else {
                assert_eq!((answer[21], &answer[22..28]), (2, own));
                assert_eq!(
                    (&answer[28..32], &answer[32..]),
                    (&question[38..], &question[22..32])
                );
            }
            let of_another = who_has(crate::topology::CLIENTS.address(family, 0));
            let (untouched, verdict) = run(&mut flood, "collude", &of_another);
            assert_eq!(
                (untouched, verdict.cast_signed()),
                (of_another, -1),
                "TC_ACT_UNSPEC"
            );
        });
    }

    #[test]
    fn what_is_not_of_the_attack_passes_the_sink() {
        in_a_namespace(|family| {
            let mut flood = flood(&ATTACKS[0], family);
            let mut syn = generate(&mut flood);
            let (_, dropped) = run(&mut flood, "sink", &syn);
            assert_eq!(dropped, 2, "TC_ACT_SHOT");
            // The first bytes of its destination.
            let at = if family == Family::V6 { 38 } else { 30 };
            syn[at] ^= 0x40;
            let (_, passed) = run(&mut flood, "sink", &syn);
            assert_eq!(passed.cast_signed(), -1, "TC_ACT_UNSPEC");
            assert_eq!(flood.counted().unwrap().arrived, 1);
        });
    }
}
