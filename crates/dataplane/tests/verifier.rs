//! What the verifier makes of every program: how many instructions it walks, and how deep their stack is.
//!
//! `verifier.tsv` keeps the figures per series of kernels. They may grow by a tenth; beyond that, or beyond the absolute
//! limits, something large is inlined at several places or walked once per packet kind, and an older kernel is the next
//! to refuse it. `make verifier` writes the file anew. With `--measure` the rows are printed and held to nothing.

use std::{
    collections::{BTreeSet, HashMap},
    fmt,
    ops::Range,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anabranch_dataplane::{
    gateway_object, member::member_object, services::service_object, trunk::trunk_object,
    upgrade_object,
};
use anyhow::{Context, bail, ensure};
use aya::{
    EbpfLoader, VerifierLogLevel,
    programs::{Program, ProgramError},
};
use aya_obj::generated::bpf_insn;
use nix::{
    libc::EMFILE,
    mount::{MsFlags, mount},
    sys::{
        resource::{Resource, getrlimit, setrlimit},
        statfs::{BPF_FS_MAGIC, statfs},
        utsname::uname,
    },
};

const NOTED: &str = include_str!("../verifier.tsv");
/// An eighth of what the kernel would walk at most, for two families and the strictest kernel: 6.1 walks a quarter more than 6.18.
const INSTRUCTIONS_MAX: u32 = 125_000;
/// What an upgrade loads stands for seconds.
const INSTRUCTIONS_MAX_UPGRADING: u32 = 150_000;
/// Leaves an eighth of what the kernel allows.
const STACK_MAX: u32 = 448;
/// Leaves one step of a frame.
const STACK_MAX_UPGRADING: u32 = 480;
/// Linux 6.1 adds frames up in steps of so many bytes; later kernels in smaller ones.
const FRAME_STEP: u32 = 32;
/// Three registers, which the kernel adds to the frame of a function that calls `bpf_loop`: after it has held the stack to
/// its limit (`optimize_bpf_loop` in kernel/bpf/verifier.c), but before it tells the frames.
const LOOP_ROOM: u32 = 24;
/// Of `bpf_loop`, in the numbering of the kernel's helpers.
const LOOP: i32 = 181;

/// What one program takes.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Row {
    /// Major and minor version.
    kernel: String,
    program: String,
    instructions: u32,
    /// Bytes of the deepest chain of calls.
    stack: u32,
}

impl Row {
    fn read(line: &str) -> anyhow::Result<Self> {
        let [kernel, program, instructions, stack] = line
            .split('\t')
            .collect::<Vec<_>>()
            .try_into()
            .map_err(|_| anyhow::anyhow!("verifier.tsv: not four columns: {line:?}"))?;
        Ok(Row {
            kernel: kernel.to_owned(),
            program: program.to_owned(),
            instructions: instructions.parse().context(instructions.to_owned())?,
            stack: stack.parse().context(stack.to_owned())?,
        })
    }

    /// What is too much, against an earlier measurement of the same program on the same kernel.
    fn excess(&self, noted: Option<&Row>) -> Vec<String> {
        let mut excess = Vec::new();
        for (what, value, max, noted) in [
            (
                "instructions",
                self.instructions,
                match self.program.ends_with(UPGRADING) {
                    true => INSTRUCTIONS_MAX_UPGRADING,
                    false => INSTRUCTIONS_MAX,
                },
                noted.map(|row| row.instructions),
            ),
            (
                "bytes of stack",
                self.stack,
                match self.program.ends_with(UPGRADING) {
                    true => STACK_MAX_UPGRADING,
                    false => STACK_MAX,
                },
                noted.map(|row| row.stack),
            ),
        ] {
            let program = &self.program;
            if value > max {
                excess.push(format!(
                    "{program}: {value} {what}, no more than {max} are allowed"
                ));
            }
            if let Some(noted) = noted
                && value > noted + noted / 10
            {
                excess.push(format!(
                    "{program}: {value} {what}, more than a tenth above {noted}; if it must be, `make verifier` notes it"
                ));
            }
        }
        excess
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Row {
            kernel,
            program,
            instructions,
            stack,
        } = self;
        write!(f, "{kernel}\t{program}\t{instructions}\t{stack}")
    }
}

fn main() -> anyhow::Result<ExitCode> {
    let (measured, refused) = measure()?;
    for row in &measured {
        println!("{row}");
    }
    for refusal in &refused {
        eprintln!("{refusal:#}");
    }
    if std::env::args().any(|argument| argument == "--measure") {
        return Ok(ExitCode::from(u8::from(!refused.is_empty())));
    }
    let noted: Vec<Row> = NOTED
        .lines()
        .skip(1)
        .map(Row::read)
        .collect::<Result<_, _>>()?;
    let excess: Vec<String> = measured
        .iter()
        .flat_map(|row| {
            let same =
                |noted: &&Row| (&noted.kernel, &noted.program) == (&row.kernel, &row.program);
            row.excess(noted.iter().find(same))
        })
        .collect();
    for line in &excess {
        eprintln!("{line}");
    }
    let is_good = excess.is_empty() && refused.is_empty();
    Ok(ExitCode::from(u8::from(!is_good)))
}

/// What every program takes, and why the others are refused.
fn measure() -> anyhow::Result<(Vec<Row>, Vec<anyhow::Error>)> {
    let release = uname()?.release().to_string_lossy().into_owned();
    let kernel: Vec<&str> = release.split('.').take(2).collect();
    let (mut rows, mut refused) = (Vec::new(), Vec::new());
    for (object, suffix) in [
        (gateway_object(), ""),
        (upgrade_object(), UPGRADING),
        (trunk_object(), ""),
        (service_object(), ""),
        (member_object(), ""),
    ] {
        let chains = Chains::of(&object)?;
        let pins = Pins::new()?;
        let mut bpf = EbpfLoader::new()
            .default_map_pin_directory(&pins.0)
            .verifier_log_level(VerifierLogLevel::STATS)
            .load(&object)?;
        let loaded = bpf.programs_mut();
        for (program, loaded) in loaded.filter(|(program, _)| is_loaded(program, suffix)) {
            match stats_of(loaded).with_context(|| format!("program {program}")) {
                Ok(stats) => rows.push(Row {
                    kernel: kernel.join("."),
                    program: format!("{program}{suffix}"),
                    instructions: stats.instructions,
                    stack: chains.deepest(program, &stats.frames)?,
                }),
                Err(refusal) => refused.push(refusal),
            }
        }
    }
    rows.sort_by(|a, b| a.program.cmp(&b.program));
    Ok((rows, refused))
}

/// After the name of a program as an upgrade loads it.
const UPGRADING: &str = " upgrading";

/// Of an upgrade, those that carry packets and the walk.
fn is_loaded(program: &str, suffix: &str) -> bool {
    suffix.is_empty() || ["lan", "wan", "migrate"].contains(&program)
}

/// A folder for the maps, gone with this value.
struct Pins(PathBuf);

impl Pins {
    fn new() -> anyhow::Result<Self> {
        let root = Path::new("/sys/fs/bpf");
        if !statfs(root).is_ok_and(|fs| fs.filesystem_type() == BPF_FS_MAGIC) {
            mount(
                None::<&str>,
                root,
                Some("bpf"),
                MsFlags::empty(),
                None::<&str>,
            )
            .context("mount the BPF file system: this needs root")?;
        }
        let folder = root.join(format!("anabranch-verifier-{}", std::process::id()));
        std::fs::create_dir(&folder).with_context(|| folder.display().to_string())?;
        Ok(Pins(folder))
    }
}

impl Drop for Pins {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// What the verifier says at the end of its work.
struct Stats {
    instructions: u32,
    /// Bytes of each function's frame, in the order of the functions.
    frames: Vec<u32>,
}

fn stats_of(program: &mut Program) -> anyhow::Result<Stats> {
    without_descriptors(|| match program {
        Program::SchedClassifier(program) => program.load(),
        Program::RawTracePoint(program) => program.load(),
        _ => Ok(()),
    })
}

/// The kernel hands out its log, and aya keeps it, when a load fails: here for want of a descriptor, the last thing that a
/// verified program needs.
fn without_descriptors(load: impl FnOnce() -> Result<(), ProgramError>) -> anyhow::Result<Stats> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, 0, hard)?;
    let loaded = load();
    setrlimit(Resource::RLIMIT_NOFILE, soft, hard)?;
    match loaded {
        Err(ProgramError::LoadError {
            io_error,
            verifier_log,
        }) if io_error.raw_os_error() == Some(EMFILE) => read_stats(&verifier_log.to_string()),
        Err(error) => bail!("refused: {error:#}"),
        Ok(()) => bail!("it was given a descriptor that must not exist"),
    }
}

fn read_stats(log: &str) -> anyhow::Result<Stats> {
    let after = |words: &str| {
        log.lines()
            .find_map(|line| line.strip_prefix(words)?.split(' ').next())
            .with_context(|| format!("no {words:?} in the verifier's log: {log:?}"))
    };
    let frames = after("stack depth ")?.split('+').map(str::parse);
    Ok(Stats {
        instructions: after("processed ")?.parse()?,
        frames: frames.collect::<Result<_, _>>()?,
    })
}

/// What matters to the stack of each program.
struct Chains(HashMap<String, Calls>);

/// Who calls whom in a program, callbacks of helpers included. Places are instructions from its start.
struct Calls {
    /// Places of calls, and of what they call.
    calls: Vec<(usize, usize)>,
    /// Places of loops.
    loops: Vec<usize>,
}

impl Calls {
    fn of(instructions: &[bpf_insn]) -> Self {
        let places = |is: fn(&bpf_insn) -> bool| {
            let instructions = instructions.iter().enumerate();
            instructions.filter(move |(_, instruction)| is(instruction))
        };
        let callee = |(place, instruction): (usize, &bpf_insn)| {
            let callee = place.checked_add_signed(instruction.imm as isize + 1)?;
            Some((place, callee))
        };
        Calls {
            calls: places(is_call).filter_map(callee).collect(),
            loops: places(is_loop).map(|(place, _)| place).collect(),
        }
    }

    /// Of a function from `place`: what its frame takes while the kernel holds the stack to its limit.
    fn frame(&self, function: &Range<usize>, told: u32) -> u32 {
        let loops = self.loops.iter().any(|place| function.contains(place));
        told - if loops { LOOP_ROOM } else { 0 }
    }
}

impl Chains {
    fn of(object: &[u8]) -> anyhow::Result<Self> {
        let mut object = aya_obj::Object::parse(object)?;
        let text = object.functions.keys().map(|(section, _)| *section);
        let text = text.collect();
        object.relocate_calls(&text)?;
        let calls = object.programs.iter().map(|(name, program)| {
            let function = &object.functions[&program.function_key()];
            (name.clone(), Calls::of(&function.instructions))
        });
        Ok(Chains(calls.collect()))
    }

    /// Bytes of the deepest chain of calls from the start of `program`.
    fn deepest(&self, program: &str, frames: &[u32]) -> anyhow::Result<u32> {
        let calls = &self.0[program];
        let callees = calls.calls.iter().map(|(_, callee)| *callee);
        let starts: BTreeSet<usize> = callees.chain([0]).collect();
        let starts: Vec<usize> = starts.into_iter().collect();
        ensure!(
            starts.len() == frames.len(),
            "{program}: {} functions, of which the verifier saw {}",
            starts.len(),
            frames.len()
        );
        Ok(deepest_from(0, calls, &starts, frames))
    }
}

fn deepest_from(function: usize, calls: &Calls, starts: &[usize], frames: &[u32]) -> u32 {
    let end = starts.get(function + 1).copied().unwrap_or(usize::MAX);
    let function_at = starts[function]..end;
    let callees = calls
        .calls
        .iter()
        .filter(|(place, _)| function_at.contains(place));
    let below = callees.map(|(_, callee)| {
        let index = starts.binary_search(callee).expect("a callee is a start");
        deepest_from(index, calls, starts, frames)
    });
    let frame = calls.frame(&function_at, frames[function]);
    frame.max(1).next_multiple_of(FRAME_STEP) + below.max().unwrap_or(0)
}

/// `BPF_JMP | BPF_CALL` of a function of the program; `BPF_LD | BPF_IMM | BPF_DW` of such a function's address.
fn is_call(instruction: &bpf_insn) -> bool {
    const CALL: (u8, u8) = (0x85, 1);
    const ADDRESS: (u8, u8) = (0x18, 4);
    [CALL, ADDRESS].contains(&(instruction.code, instruction.src_reg()))
}

fn is_loop(instruction: &bpf_insn) -> bool {
    const HELPER: (u8, u8) = (0x85, 0);
    (instruction.code, instruction.src_reg()) == HELPER && instruction.imm == LOOP
}
