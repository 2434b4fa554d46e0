//! Drops the privileges that the process does not need once the programs are loaded.
//!
//! Loading needs CAP_BPF, CAP_PERFMON, CAP_NET_ADMIN, and CAP_SYS_ADMIN to mount the BPF file system. Running needs
//! only [`KEPT`] and the system calls of [`FILTER_CALLS`], which the `nft` that it starts inherits. No privilege
//! comes back before the next process. System calls that are not allowed fail with ENOSYS, so that libraries use their
//! fallbacks. BPF objects are reached only by pins and open descriptors: nothing is loaded, and nothing is opened by
//! its id.

use std::collections::BTreeMap;
use std::io;

use anyhow::{Context, ensure};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};

/// Attachments, routes, rules, settings, marks (12); probes, RSTs, binding to devices (13); maps, links and test runs (39).
pub const KEPT: [u32; 3] = [CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF];

pub const CAP_NET_ADMIN: u32 = 12;
pub const CAP_NET_RAW: u32 = 13;
pub const CAP_PERFMON: u32 = 38;
pub const CAP_BPF: u32 = 39;

/// linux/capability.h: version 3, of two words.
const CAPABILITY_VERSION: u32 = 0x2008_0522;

/// Drops the privileges for loading. Must be called before there is a second thread, because capabilities belong to a thread.
pub fn drop_loading() -> anyhow::Result<()> {
    let threads = std::fs::read_dir("/proc/self/task").context("count threads")?;
    let threads = threads.count();
    ensure!(
        threads == 1,
        "privileges belong to threads, and there are {threads} already"
    );
    bound()?;
    keep().context("give up capabilities")?;
    let filter = filter().context("make the filter of system calls")?;
    seccompiler::apply_filter(&filter).context("set the filter of system calls")
}

/// Shrinks the bounding set, which limits the privileges of child processes, since these run as root. Without CAP_SETPCAP it cannot
/// be shrunk; then no_new_privs, which the filter sets, restricts them.
fn bound() -> anyhow::Result<()> {
    let last = std::fs::read_to_string("/proc/sys/kernel/cap_last_cap").context("cap_last_cap")?;
    let last: u32 = last.trim().parse().context("cap_last_cap")?;
    for capability in (0..=last).filter(|capability| !KEPT.contains(capability)) {
        // SAFETY: takes and returns integers.
        if unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) } == 0 {
            continue;
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() == Some(libc::EPERM) {
            return Ok(());
        }
        return Err(error).context("shrink the bounding set of capabilities");
    }
    Ok(())
}

#[repr(C)]
struct Header {
    version: u32,
    pid: i32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Word {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

fn keep() -> io::Result<()> {
    let header = Header {
        version: CAPABILITY_VERSION,
        pid: 0,
    };
    let mut words = [Word::default(); 2];
    for capability in KEPT {
        let word = &mut words[capability as usize / 32];
        word.effective |= 1 << (capability % 32);
        word.permitted = word.effective;
    }
    // SAFETY: both structures are as in linux/capability.h and outlive the call.
    match unsafe { libc::syscall(libc::SYS_capset, &header, words.as_ptr()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn filter() -> anyhow::Result<BpfProgram> {
    let calls = FILTER_CALLS.iter().copied().flatten();
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        calls.map(|call| (*call, Vec::new())).collect();
    rules.insert(libc::SYS_bpf, one_of(&BPF_COMMANDS)?);
    rules.insert(libc::SYS_socket, one_of(&ADDRESS_FAMILIES)?);
    rules.insert(libc::SYS_clone, vec![without(NAMESPACES)?]);
    let filter = SeccompFilter::new(
        rules,
        SeccompAction::Errno(libc::ENOSYS as u32),
        SeccompAction::Allow,
        std::env::consts::ARCH.try_into()?,
    )?;
    Ok(filter.try_into()?)
}

/// A condition: the first argument is one of `values`.
fn one_of(values: &[u64]) -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
    values
        .iter()
        .map(|value| first_argument(SeccompCmpOp::Eq, *value))
        .collect()
}

/// A condition: the first argument has none of `bits`.
fn without(bits: u64) -> Result<SeccompRule, seccompiler::BackendError> {
    first_argument(SeccompCmpOp::MaskedEq(bits), 0)
}

fn first_argument(
    compare: SeccompCmpOp,
    value: u64,
) -> Result<SeccompRule, seccompiler::BackendError> {
    let condition = SeccompCondition::new(0, SeccompCmpArgLen::Dword, compare, value)?;
    SeccompRule::new(vec![condition])
}

const NAMESPACES: u64 = (libc::CLONE_NEWUSER
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWCGROUP) as u64;

const ADDRESS_FAMILIES: [u64; 5] = [
    libc::AF_UNIX as u64,
    libc::AF_INET as u64,
    libc::AF_INET6 as u64,
    libc::AF_NETLINK as u64,
    libc::AF_PACKET as u64,
];

/// enum bpf_cmd of linux/bpf.h: elements (1 to 4), pins (6, 7), older attachments (8, 9), test runs (10), what an open
/// object is (15), who is attached (16), elements in batches (21 to 27 without 22 and 23), links (28, 29, 34).
const BPF_COMMANDS: [u64; 19] = [
    1, 2, 3, 4, 6, 7, 8, 9, 10, 15, 16, 21, 24, 25, 26, 27, 28, 29, 34,
];

/// System calls by their names.
macro_rules! calls {
    ($($call:ident)+) => { &[$(libc::$call),+] };
}

/// System calls of this process, tokio, the C library and `nft`, for files, sockets, timers, threads and a child process.
const FILTER_CALLS: &[&[i64]] = &[
    calls! {
        SYS_accept SYS_accept4 SYS_bind SYS_brk SYS_capget SYS_chdir SYS_clock_getres
        SYS_clock_gettime SYS_clock_nanosleep SYS_close SYS_close_range SYS_connect SYS_dup SYS_dup3
        SYS_epoll_create1 SYS_epoll_ctl SYS_epoll_pwait SYS_epoll_pwait2 SYS_eventfd2 SYS_execve
        SYS_exit SYS_exit_group SYS_faccessat SYS_faccessat2 SYS_fchmod SYS_fchmodat SYS_fcntl
        SYS_fdatasync SYS_flock SYS_fstat SYS_fstatfs SYS_fsync SYS_ftruncate SYS_futex SYS_getcwd
        SYS_getdents64 SYS_getegid SYS_geteuid SYS_getgid SYS_getpeername SYS_getpid SYS_getppid
        SYS_getrandom SYS_getrusage SYS_getsockname SYS_getsockopt SYS_gettid SYS_gettimeofday
        SYS_getuid SYS_ioctl SYS_kill SYS_listen SYS_lseek SYS_madvise SYS_membarrier SYS_mkdirat
        SYS_mmap SYS_mprotect SYS_mremap SYS_munmap SYS_nanosleep SYS_newfstatat SYS_openat
        SYS_openat2 SYS_pidfd_open SYS_pidfd_send_signal SYS_pipe2 SYS_ppoll SYS_prctl SYS_pread64
        SYS_preadv SYS_prlimit64 SYS_pselect6 SYS_pwrite64 SYS_pwritev SYS_read SYS_readlinkat
        SYS_readv SYS_recvfrom SYS_recvmmsg SYS_recvmsg SYS_renameat2 SYS_restart_syscall SYS_rseq
        SYS_rt_sigaction SYS_rt_sigprocmask SYS_rt_sigreturn SYS_sched_getaffinity SYS_sched_yield
        SYS_sendmmsg SYS_sendmsg SYS_sendto SYS_set_robust_list SYS_set_tid_address SYS_setsockopt
        SYS_shutdown SYS_sigaltstack SYS_socketpair SYS_statfs SYS_statx SYS_sysinfo SYS_tgkill
        SYS_timerfd_create SYS_timerfd_settime SYS_umask SYS_uname SYS_unlinkat SYS_wait4 SYS_waitid
        SYS_write SYS_writev
        // raise() of musl.
        SYS_tkill
    },
    // rename() where there is no SYS_rename.
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    calls! { SYS_renameat },
    #[cfg(target_arch = "x86_64")]
    calls! {
        SYS_access SYS_arch_prctl SYS_chmod SYS_dup2 SYS_epoll_wait SYS_lstat SYS_mkdir SYS_open
        SYS_pipe SYS_poll SYS_readlink SYS_rename SYS_rmdir SYS_select SYS_stat SYS_unlink SYS_vfork
        // fork() of musl.
        SYS_fork
    },
];

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    /// One function of the C library is one call or another, by architecture, library and version. x86-64 has all of
    /// them; calls that may be refused because the library then uses another (clone3, fchmodat2) are not here.
    #[test]
    fn a_function_is_allowed_whichever_call_it_is() {
        for (function, calls) in [
            (
                "rename",
                &[libc::SYS_rename, libc::SYS_renameat, libc::SYS_renameat2][..],
            ),
            ("fork", &[libc::SYS_fork, libc::SYS_vfork]),
            ("raise", &[libc::SYS_tkill, libc::SYS_tgkill]),
            ("open", &[libc::SYS_open, libc::SYS_openat]),
            (
                "unlink",
                &[libc::SYS_unlink, libc::SYS_rmdir, libc::SYS_unlinkat],
            ),
            ("mkdir", &[libc::SYS_mkdir, libc::SYS_mkdirat]),
            ("readlink", &[libc::SYS_readlink, libc::SYS_readlinkat]),
            ("chmod", &[libc::SYS_chmod, libc::SYS_fchmodat]),
            (
                "access",
                &[libc::SYS_access, libc::SYS_faccessat, libc::SYS_faccessat2],
            ),
            (
                "stat",
                &[
                    libc::SYS_stat,
                    libc::SYS_lstat,
                    libc::SYS_newfstatat,
                    libc::SYS_statx,
                ],
            ),
            ("fstat", &[libc::SYS_fstat, libc::SYS_newfstatat]),
            ("dup2", &[libc::SYS_dup2, libc::SYS_dup3]),
            ("pipe", &[libc::SYS_pipe, libc::SYS_pipe2]),
            ("poll", &[libc::SYS_poll, libc::SYS_ppoll]),
            ("select", &[libc::SYS_select, libc::SYS_pselect6]),
            ("epoll_wait", &[libc::SYS_epoll_wait, libc::SYS_epoll_pwait]),
            (
                "nanosleep",
                &[libc::SYS_nanosleep, libc::SYS_clock_nanosleep],
            ),
            ("waitpid", &[libc::SYS_wait4, libc::SYS_waitid]),
        ] {
            let refused = calls
                .iter()
                .find(|call| FILTER_CALLS.iter().all(|calls| !calls.contains(call)));
            assert_eq!(refused, None, "{function}");
        }
    }
}
