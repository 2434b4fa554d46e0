//! A flood: the generator on a processor of its own, and the sinks that count what leaves the gateway.

use std::ops::Sub;
use std::time::{Duration, Instant};

use aya::maps::{MapData, PerCpuArray};
use aya::programs::tc::TcAttachOptions;
use aya::programs::{LinkOrder, SchedClassifier, TcAttachType, TestRun, TestRunOptions};
use aya::{Ebpf, EbpfLoader, include_bytes_aligned};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use tokio::sync::watch;

use super::frame::{FRAME_BYTES, Plan};
use super::kinds;
use super::site::{HOST_DEVICE, ISP_DEVICE};
use crate::topology::{LabError, Result};
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
}

fn failed<E: std::fmt::Display>(what: &'static str) -> impl FnOnce(E) -> LabError {
    move |error| LabError::Load(format!("the flood's programs: {what}: {error}"))
}

impl Flood {
    /// Loads the programs for frames that leave by the device of this index.
    pub fn load(plan: &Plan, device: u32) -> Result<Self> {
        let mut programs = EbpfLoader::new()
            .override_global("plan", plan, true)
            .override_global("device", &device, true)
            .override_global("lan", &kinds::lan(), true)
            .load(OBJECT)
            .map_err(failed("loading"))?;
        for name in ["generate", "sink", "collude"] {
            let program = program(&mut programs, name)?;
            program.load().map_err(failed(name))?;
        }
        let counters = programs.take_map("counters").ok_or("no such map");
        let counters = counters.map_err(failed("counters"))?;
        let counters = PerCpuArray::try_from(counters).map_err(failed("counters"))?;
        Ok(Self { programs, counters })
    }

    /// Lets what the attack sends end at these routers.
    pub fn sink_at(&mut self, routers: &[Namespace]) -> Result<()> {
        let mut routers = routers.iter();
        routers.try_for_each(|router| self.attach("sink", router, ISP_DEVICE))
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
            make(generator, frames)?;
            let now = Instant::now();
            next += Duration::from_secs_f64(f64::from(frames) / f64::from(rate_pps));
            next = next.max(now.checked_sub(DEBT_MAX).unwrap_or(now));
            std::thread::sleep(next.saturating_duration_since(now));
        }
        Ok(begun.elapsed())
    }
}

fn make(generator: &SchedClassifier, frames: u32) -> Result<()> {
    // What a frame is made of is the plan's: the packet given is room for it.
    let room = [0; FRAME_BYTES];
    for begun in (0..frames).step_by(FRAMES_PER_CALL as usize) {
        let options = TestRunOptions {
            data_in: Some(&room),
            repeat: FRAMES_PER_CALL.min(frames - begun),
            ..TestRunOptions::new()
        };
        generator
            .test_run(options)
            .map_err(failed("making frames"))?;
    }
    Ok(())
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
    let mut set = CpuSet::new();
    set.set(PROCESSOR)?;
    sched_setaffinity(Pid::from_raw(0), &set)?;
    let priority = libc::sched_param { sched_priority: 1 };
    // SAFETY: the call reads one structure, which outlives it.
    match unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &priority) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::frame::{Ends, Range};
    use super::super::kinds::ATTACKS;
    use super::*;

    const TC_ACT_REDIRECT: u32 = 7;
    const LOOPBACK: u32 = 1;

    fn plan(attack: &super::super::Attack) -> Plan {
        let foreign = Range::prefix(kinds::FOREIGN, kinds::FOREIGN_PREFIX_LEN);
        attack.recipe.plan(&Ends {
            macs: [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]],
            source: [10, 80, 6, 66].into(),
            destination: [198, 18, 0, 1].into(),
            sources: kinds::lan(),
            destinations: foreign,
        })
    }

    /// What a program makes of a packet, and what it says.
    fn run(flood: &mut Flood, name: &'static str, packet: &[u8]) -> (Vec<u8>, u32) {
        let mut made = vec![0; FRAME_BYTES];
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

    /// RFC 1071: of what carries its own checksum it is zero.
    fn checksum(bytes: &[u8]) -> u16 {
        let sum: u32 = bytes
            .chunks(2)
            .map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]))
            .sum();
        let sum = (sum & 0xffff) + (sum >> 16);
        !((sum & 0xffff) + (sum >> 16)) as u16
    }

    fn assert_sound(name: &str, frame: &[u8]) {
        let (ip, l4) = (&frame[14..34], &frame[34..58]);
        assert_eq!(checksum(ip), 0, "{name}: {frame:02x?}");
        assert_eq!(u16::from_be_bytes([ip[2], ip[3]]), 44, "{name}");
        let fragment = u16::from_be_bytes([ip[6], ip[7]]) & 0x3fff != 0;
        let mut summed = match ip[9] {
            1 => Vec::new(),
            protocol => [&ip[12..20], &[0, protocol, 0, 24]].concat(),
        };
        summed.extend(l4);
        assert!(fragment || checksum(&summed) == 0, "{name}: {frame:02x?}");
    }

    fn in_a_namespace(work: impl FnOnce() + Send) {
        let namespace = Namespace::create("flood").unwrap();
        namespace.run(work).unwrap();
    }

    #[test]
    fn the_frames_of_every_attack_have_sound_checksums_and_differ() {
        in_a_namespace(|| {
            for attack in &ATTACKS {
                let mut flood = Flood::load(&plan(attack), LOOPBACK).unwrap();
                let room = [0; FRAME_BYTES];
                let [one, other] = [(); 2].map(|()| run(&mut flood, "generate", &room).0);
                assert_sound(attack.name, &one);
                assert_ne!(one, other, "{}", attack.name);
                assert_eq!(flood.counted().unwrap().made, 2);
            }
        });
    }

    #[test]
    fn a_server_that_helps_completes_the_handshake() {
        in_a_namespace(|| {
            let attack = super::super::Attack::named("connections").unwrap();
            let mut flood = Flood::load(&plan(attack), LOOPBACK).unwrap();
            let (syn, _) = run(&mut flood, "generate", &[0; FRAME_BYTES]);
            let (answer, verdict) = run(&mut flood, "sink", &syn);
            assert_eq!(verdict, TC_ACT_REDIRECT);
            assert_sound("SYN/ACK", &answer);
            assert_eq!((answer[47], &answer[26..30]), (0x12, &syn[30..34]));
            let (last, verdict) = run(&mut flood, "collude", &answer);
            assert_eq!(verdict, TC_ACT_REDIRECT);
            assert_sound("ACK", &last);
            assert_eq!((last[47], &last[34..38]), (0x10, &syn[34..38]));
            let next = |bytes: &[u8]| u32::from_be_bytes(bytes.try_into().unwrap()) + 1;
            assert_eq!(last[42..46], next(&answer[38..42]).to_be_bytes());
            let counted = flood.counted().unwrap();
            assert_eq!((counted.arrived, counted.leaked), (1, 1));
        });
    }

    #[test]
    fn what_is_not_of_the_attack_passes_the_sink() {
        in_a_namespace(|| {
            let mut flood = Flood::load(&plan(&ATTACKS[0]), LOOPBACK).unwrap();
            let (mut syn, _) = run(&mut flood, "generate", &[0; FRAME_BYTES]);
            let (_, dropped) = run(&mut flood, "sink", &syn);
            assert_eq!(dropped, 2, "TC_ACT_SHOT");
            syn[30..34].copy_from_slice(&[198, 51, 100, 10]);
            let (_, passed) = run(&mut flood, "sink", &syn);
            assert_eq!(passed.cast_signed(), -1, "TC_ACT_UNSPEC");
            assert_eq!(flood.counted().unwrap().arrived, 1);
        });
    }
}
