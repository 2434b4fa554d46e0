//! Calls that the kernel gives up when the calling thread is sent a signal.

use std::io::{self, ErrorKind};

use aya::programs::ProgramError;

/// More signals than this in one call are no accident.
const ATTEMPTS: u32 = 16;

/// Calls again while a signal interrupts the call: the verifier gives up with `EAGAIN`, a run that repeats a program with `EINTR`.
/// What a program that was interrupted has done so far stays done.
pub fn despite_signals<T>(
    mut call: impl FnMut() -> Result<T, ProgramError>,
) -> Result<T, ProgramError> {
    for _ in 1..ATTEMPTS {
        match call() {
            Err(error) if is_interrupted(&error) => {}
            ended => return ended,
        }
    }
    call()
}

fn is_interrupted(error: &ProgramError) -> bool {
    let of_signals =
        |error: &io::Error| matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock);
    match error {
        ProgramError::LoadError { io_error, .. } => of_signals(io_error),
        ProgramError::SyscallError(error) => of_signals(&error.io_error),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use aya::sys::SyscallError;

    use super::*;

    fn error(number: i32) -> ProgramError {
        ProgramError::SyscallError(SyscallError {
            call: "bpf_prog_test_run",
            io_error: io::Error::from_raw_os_error(number),
        })
    }

    #[test]
    fn a_call_is_made_again_until_no_signal_interrupts_it() {
        let mut interruptions = vec![libc::EINTR, libc::EAGAIN];
        let ended = despite_signals(|| match interruptions.pop() {
            Some(number) => Err(error(number)),
            None => Ok("ran"),
        });
        assert_eq!(ended.unwrap(), "ran");
    }

    #[test]
    fn other_errors_and_endless_signals_are_told() {
        for (number, expected) in [(libc::EPERM, 1), (libc::EINTR, ATTEMPTS)] {
            let mut calls = 0;
            let ended: Result<(), _> = despite_signals(|| {
                calls += 1;
                Err(error(number))
            });
            assert!(ended.is_err());
            assert_eq!(calls, expected);
        }
    }
}
