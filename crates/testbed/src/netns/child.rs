//! Processes that do not outlive the lab.

use std::io;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus};
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::unistd::Pid;

/// A process of the lab: killed on drop, and by the kernel if this process dies first.
#[derive(Debug)]
pub struct Child {
    inner: std::process::Child,
    pidfd: OwnedFd,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// It ended by itself, with this code.
    Code(i32),
    /// This signal ended it.
    Signal(i32),
}

impl From<ExitStatus> for Exit {
    fn from(status: ExitStatus) -> Self {
        match status.code() {
            Some(code) => Exit::Code(code),
            None => Exit::Signal(status.signal().unwrap_or_default()),
        }
    }
}

impl Child {
    pub(super) fn start(mut command: Command) -> io::Result<Self> {
        // Ctrl-C is for this process, which ends the others in its own order.
        command.process_group(0);
        // SAFETY: both are plain system calls; nothing is allocated or locked between fork and exec.
        unsafe {
            command.pre_exec(|| {
                // Signals that this process has blocked would be blocked in that one as well.
                SigSet::all().thread_unblock()?;
                Ok(nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?)
            });
        }
        let inner = spawn_for_good(command)?;
        let pidfd = pidfd_open(inner.id())?;
        Ok(Self { inner, pidfd })
    }

    /// The process id in this process's pid namespace.
    pub fn id(&self) -> u32 {
        self.inner.id()
    }

    /// The pipes, if the command asked for them.
    pub fn pipes(&mut self) -> &mut std::process::Child {
        &mut self.inner
    }

    /// Sends a signal. A process that has ended already is no error.
    pub fn signal(&self, signal: Signal) {
        let _ = kill(Pid::from_raw(self.inner.id().cast_signed()), signal);
    }

    /// Waits for the process to end by itself; `None` if it still runs after `timeout`.
    pub fn wait(&mut self, timeout: Duration) -> io::Result<Option<Exit>> {
        let timeout = PollTimeout::try_from(timeout).unwrap_or(PollTimeout::MAX);
        let mut fds = [PollFd::new(self.pidfd.as_fd(), PollFlags::POLLIN)];
        poll(&mut fds, timeout)?;
        Ok(self.inner.try_wait()?.map(Exit::from))
    }

    /// SIGTERM, then SIGKILL if the process still runs after `grace`.
    pub fn terminate(&mut self, grace: Duration) -> io::Result<Exit> {
        if self.inner.try_wait()?.is_none() {
            self.signal(Signal::SIGTERM);
        }
        if let Some(exit) = self.wait(grace)? {
            return Ok(exit);
        }
        self.inner.kill()?;
        Ok(self.inner.wait()?.into())
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.inner.kill();
        let _ = self.inner.wait();
    }
}

/// Starts the process from a thread that never ends: the kernel sends the parent-death signal when the *thread* that
/// forked ends (prctl(2), PR_SET_PDEATHSIG), and the caller's thread may be short-lived.
fn spawn_for_good(command: Command) -> io::Result<std::process::Child> {
    type Request = (Command, Sender<io::Result<std::process::Child>>);
    static PARENT: OnceLock<Sender<Request>> = OnceLock::new();
    let parent = PARENT.get_or_init(|| {
        let (sender, requests) = channel::<Request>();
        thread::spawn(move || {
            for (mut command, reply) in requests {
                let _ = reply.send(command.spawn());
            }
        });
        sender
    });
    let gone = |_| io::Error::other("the thread that starts processes has ended");
    let (reply, answer) = channel();
    parent
        .send((command, reply))
        .map_err(|_| gone(std::sync::mpsc::RecvError))?;
    answer.recv().map_err(gone)?
}

fn pidfd_open(pid: u32) -> io::Result<OwnedFd> {
    // SAFETY: the call takes two integers and returns a new descriptor or -1.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and owned by nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}
