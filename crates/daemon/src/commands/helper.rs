//! The process that runs commands.
//!
//! It shares only one socket with the daemon: it has no other descriptor, no capability, and runs as another user, [`USER`] if this
//! host has it, else `nobody`. It cannot gain privileges by what it starts (no_new_privs), and other processes of the same user
//! cannot trace it. But it has the system calls that the daemon gives up, because commands may be any programs.
//!
//! Each command is the leader of a process group of its own, which is killed when the command ends or reaches its time limit. Its
//! output is read to the end, and only the first line is kept. The helper ends when the daemon does, and then kills all groups.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream as Socket;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;

use anabranch_core::checks::Outcome;
use anyhow::{Context, ensure};
use nix::sys::prctl::{set_dumpable, set_no_new_privs};
use nix::sys::signal::{SigSet, Signal, killpg};
use nix::unistd::{
    ForkResult, Gid, Pid, Uid, User, chdir, fork, initgroups, setgroups, setresgid, setresuid,
    setsid,
};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::process::{Child, Command};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;

use super::{Done, Order, line};

/// Commands run as this user, if there is one.
pub const USER: &str = "anabranch-check";
const NOBODY: &str = "nobody";
const NOBODY_ID: u32 = 65_534;
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Maximum number of running commands, including those that were killed and have not ended yet.
const RUNNING_MAX: usize = 64;
/// This many bytes of a command's output are kept.
const SAID_BYTES_MAX: usize = 200;
const LINE_BYTES_MAX: u64 = 64 << 10;

/// Forks the helper. There must be no second thread, because the child continues with only this one.
pub(super) fn start() -> anyhow::Result<(Socket, Pid)> {
    let threads = std::fs::read_dir("/proc/self/task").context("count threads")?;
    ensure!(threads.count() == 1, "there are several threads already");
    let (ours, theirs) = Socket::pair()?;
    // SAFETY: there is no other thread that could hold a lock, and the child never returns from here.
    match unsafe { fork() }? {
        ForkResult::Parent { child } => Ok((ours, child)),
        ForkResult::Child => {
            drop(ours);
            let ended = std::panic::catch_unwind(|| live(theirs));
            let is_well = matches!(ended, Ok(Ok(())));
            // SAFETY: ends the process without the exit handlers of the daemon.
            unsafe { libc::_exit(i32::from(!is_well)) }
        }
    }
}

fn live(socket: Socket) -> anyhow::Result<()> {
    // The helper notices the daemon's end by its socket. Commands must have no blocked signals.
    let mut signals = SigSet::empty();
    signals.extend([Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP]);
    signals.thread_block()?;
    // A terminal's signals do not reach it.
    setsid()?;
    chdir("/")?;
    let socket = Socket::from(alone_with(socket.into())?);
    let user = give_up_all();
    socket.set_nonblocking(true)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async { serve(UnixStream::from_std(socket)?, user).await })
}

/// Closes all descriptors except the standard streams and this one.
fn alone_with(kept: OwnedFd) -> io::Result<OwnedFd> {
    let number = kept.as_raw_fd() as u32;
    for (first, last) in [(3, number - 1), (number + 1, u32::MAX)] {
        // SAFETY: nothing in this process uses them any more.
        if first <= last && unsafe { libc::close_range(first, last, 0) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(kept)
}

/// Becomes another user, without any privileges.
fn give_up_all() -> Result<(), String> {
    let known = [USER, NOBODY].into_iter();
    let mut known = known.filter_map(|name| User::from_name(name).ok().flatten());
    let user = known.next();
    let (uid, gid, name) = match &user {
        Some(user) => (user.uid, user.gid, user.name.as_str()),
        None => (Uid::from_raw(NOBODY_ID), Gid::from_raw(NOBODY_ID), NOBODY),
    };
    let become_it = || {
        match std::ffi::CString::new(name) {
            Ok(known) if name == USER => initgroups(&known, gid)?,
            _ => setgroups(&[])?,
        }
        setresgid(gid, gid, gid)?;
        setresuid(uid, uid, uid)?;
        set_no_new_privs()?;
        set_dumpable(false)
    };
    become_it().map_err(|error| format!("commands are not run: cannot become user {name}: {error}"))
}

/// Runs until the daemon ends. If it could not become its user, it runs no commands.
async fn serve(stream: UnixStream, user: Result<(), String>) -> anyhow::Result<()> {
    let (read, mut write) = stream.into_split();
    let (done, mut to_tell) = mpsc::channel::<Done>(RUNNING_MAX);
    tokio::spawn(async move {
        while let Some(done) = to_tell.recv().await {
            write.write_all(&line(&done)?).await?;
        }
        anyhow::Ok(())
    });
    let room = Arc::new(Semaphore::new(RUNNING_MAX));
    let mut read = BufReader::new(read);
    let mut text = Vec::new();
    loop {
        text.clear();
        let mut bounded = (&mut read).take(LINE_BYTES_MAX);
        if bounded.read_until(b'\n', &mut text).await? == 0 {
            return Ok(());
        }
        let order: Order = serde_json::from_slice(&text)?;
        let refused = match (&user, Arc::clone(&room).try_acquire_owned()) {
            (Err(why), _) => why.clone(),
            (Ok(()), Err(_)) => {
                format!("commands are not run: {RUNNING_MAX} of them do not end")
            }
            (Ok(()), Ok(permit)) => {
                let done = done.clone();
                tokio::spawn(async move {
                    run(order, &done).await;
                    drop(permit);
                });
                continue;
            }
        };
        let (id, outcome) = (order.id, Outcome::Inconclusive(refused));
        done.send(Done { id, outcome }).await?;
    }
}

/// All processes that a command has started and that are in its group.
struct Group(Pid);

impl Drop for Group {
    fn drop(&mut self) {
        // The group may have ended.
        let _ = killpg(self.0, Signal::SIGKILL);
    }
}

/// Runs a command, reports the result, and returns when its first process has ended.
async fn run(order: Order, done: &mpsc::Sender<Done>) {
    let (id, program) = (order.id, &order.words[0]);
    let tell = async |outcome| {
        // The daemon may have ended.
        let _ = done.send(Done { id, outcome }).await;
    };
    let not_run = |error: io::Error| Outcome::Inconclusive(format!("{program}: {error}"));
    let child = Command::new(program)
        .args(&order.words[1..])
        .env_clear()
        .env("PATH", PATH)
        .envs(&order.about)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn();
    let mut child = match child {
        Ok(child) => child,
        Err(error) => return tell(not_run(error)).await,
    };
    let group = child.id().map(|id| Group(Pid::from_raw(id as i32)));
    let mut said = Vec::new();
    let ended = timeout(order.limit, follow(&mut child, &mut said)).await;
    drop(group);
    let limit = order.limit;
    tell(match ended {
        Ok(Ok(status)) => judge(status, &said),
        Ok(Err(error)) => not_run(error),
        Err(_) => Outcome::Failure(and_said(format!("it had not ended after {limit:?}"), &said)),
    })
    .await;
    let _ = child.wait().await;
}

/// Waits until the command's first process ends, even if others still have its output open. Keeps the beginning of the output.
async fn follow(child: &mut Child, said: &mut Vec<u8>) -> io::Result<ExitStatus> {
    let mut output = child.stdout.take();
    let mut chunk = [0; 4096];
    loop {
        let read = async {
            match &mut output {
                Some(output) => output.read(&mut chunk).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            read = read => match read {
                Ok(length @ 1..) => {
                    let room = SAID_BYTES_MAX - said.len();
                    said.extend_from_slice(&chunk[..length.min(room)]);
                }
                Ok(0) | Err(_) => output = None,
            },
            status = child.wait() => return status,
        }
    }
}

fn judge(status: ExitStatus, said: &[u8]) -> Outcome {
    match (status.code(), status.signal()) {
        (Some(0), _) => Outcome::Success,
        (Some(code), _) => Outcome::Failure(and_said(format!("exit code {code}"), said)),
        (None, signal) => {
            let number = signal.unwrap_or_default();
            Outcome::Failure(and_said(format!("ended by signal {number}"), said))
        }
    }
}

/// Appends the first line of the output, if it is text.
fn and_said(what: String, said: &[u8]) -> String {
    let text = String::from_utf8_lossy(said);
    let line = text.trim_start().lines().next().unwrap_or_default();
    let line: String = line.chars().filter(|char| !char.is_control()).collect();
    match line.trim() {
        "" => what,
        line => format!("{what}: {line}"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    async fn outcome_of(script: &str, limit: Duration) -> Outcome {
        let (done, mut outcomes) = mpsc::channel(1);
        let order = Order {
            id: 1,
            words: ["/bin/sh", "-c", script].map(str::to_owned).into(),
            about: [("ANABRANCH_LINK".to_owned(), "fiber".to_owned())].into(),
            limit,
        };
        let (_, done) = tokio::join!(run(order, &done), outcomes.recv());
        done.unwrap().outcome
    }

    const AMPLE: Duration = Duration::from_secs(20);
    const SHORT: Duration = Duration::from_millis(200);

    #[tokio::test]
    async fn exit_code_0_is_a_success_and_everything_else_a_failure_with_the_first_line() {
        let failure = |words: &str| Outcome::Failure(words.to_owned());
        for (script, outcome) in [
            ("exit 0", Outcome::Success),
            ("echo fine; exit 0", Outcome::Success),
            ("exit 3", failure("exit code 3")),
            (
                "echo no carrier; echo more; exit 1",
                failure("exit code 1: no carrier"),
            ),
            ("echo no; kill -9 $$", failure("ended by signal 9: no")),
            (
                "test \"$ANABRANCH_LINK\" = fiber && test -z \"$HOME\"",
                Outcome::Success,
            ),
        ] {
            assert_eq!(outcome_of(script, AMPLE).await, outcome, "{script}");
        }
    }

    #[tokio::test]
    async fn garbage_is_read_to_its_end_and_told_as_text() {
        let Outcome::Failure(words) =
            outcome_of(r"head -c 1000000 /dev/urandom; exit 1", AMPLE).await
        else {
            panic!("a failure")
        };
        assert!(words.starts_with("exit code 1"), "{words}");
        assert!(
            !words.chars().any(char::is_control) && words.len() < 1000,
            "{words:?}"
        );
    }

    #[tokio::test]
    async fn a_command_that_does_not_end_is_ended_with_all_its_group() {
        for script in [
            "sleep 1000",
            "yes",
            "trap '' TERM INT HUP; while :; do sleep 1; done",
        ] {
            let outcome = outcome_of(script, SHORT).await;
            let late = Outcome::Failure("it had not ended after 200ms".to_owned());
            match script {
                "yes" => assert!(matches!(outcome, Outcome::Failure(_))),
                _ => assert_eq!(outcome, late),
            }
        }
    }

    #[tokio::test]
    async fn what_a_command_leaves_behind_keeps_nobody_waiting_and_ends() {
        let folder = tempfile::tempdir().unwrap();
        let left = folder.path().join("left");
        let script = format!("sleep 1000 & echo $! >{}; exit 0", left.display());
        assert_eq!(outcome_of(&script, AMPLE).await, Outcome::Success);
        let process = std::fs::read_to_string(left).unwrap();
        let status = format!("/proc/{}/stat", process.trim());
        let deadline = std::time::Instant::now() + AMPLE;
        let is_there = || {
            let stat = std::fs::read_to_string(&status).unwrap_or_default();
            !stat.is_empty() && !stat.contains(") Z ")
        };
        while is_there() {
            assert!(std::time::Instant::now() < deadline, "{status} goes on");
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn what_cannot_be_started_proves_nothing() {
        let (done, mut outcomes) = mpsc::channel(1);
        let order = Order {
            id: 1,
            words: ["/nowhere".to_owned()].into(),
            about: Default::default(),
            limit: AMPLE,
        };
        run(order, &done).await;
        let outcome = outcomes.recv().await.unwrap().outcome;
        let Outcome::Inconclusive(words) = outcome else {
            panic!("{outcome:?}")
        };
        assert!(words.starts_with("/nowhere: No such file"), "{words}");
    }
}
