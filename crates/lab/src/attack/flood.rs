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
use super::site::{Cable, HOST_DEVICE, ISP_DEVICE};
use crate::netns::Namespace;
use crate::topology::{LabError, Result};

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
    /// Loads the programs for frames that leave by the near end of `cable`.
    pub fn load(plan: &Plan, cable: &Cable) -> Result<Self> {
        let device = cable
            .near
            .run(|| nix::net::if_::if_nametoindex(cable.device))?;
        let device = device.map_err(failed("finding the attacker's device"))?;
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

    /// Sends at `rate_pps`, or as fast as this machine can, until it is over. Takes the calling thread to the
    /// attacker and to one processor.
    pub fn send(
        &self,
        attacker: &Namespace,
        rate_pps: u32,
        over: &watch::Receiver<bool>,
    ) -> Result<()> {
        let generator = self.programs.program("generate").ok_or("no such program");
        let generator: &SchedClassifier = generator
            .map_err(failed("generator"))?
            .try_into()
            .map_err(failed("generator"))?;
        let _inside = attacker.enter()?;
        claim().map_err(failed("claiming a processor"))?;
        nix::sys::prctl::set_timerslack(1).map_err(failed("setting the timer slack"))?;
        let mut next = Instant::now();
        // The sender gone is the end as well.
        while over.has_changed().is_ok() && !*over.borrow() {
            let frames = (f64::from(rate_pps) * TICK.as_secs_f64()).ceil() as u32;
            make(generator, frames)?;
            let now = Instant::now();
            next += Duration::from_secs_f64(f64::from(frames) / f64::from(rate_pps));
            next = next.max(now.checked_sub(DEBT_MAX).unwrap_or(now));
            std::thread::sleep(next.saturating_duration_since(now));
        }
        Ok(())
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
