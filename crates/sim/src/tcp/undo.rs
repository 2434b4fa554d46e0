//! A reduction of the window that was in vain is taken back (as Linux does, `tcp_try_undo_dsack`): everything that was resent since
//! turns out to have arrived twice (RFC 2883).

use super::control::Window;

/// What the window was before a loss was found that may have been none.
#[derive(Debug)]
pub(super) struct Undo {
    cwnd: f64,
    ssthresh: f64,
    /// The first outstanding segment at that time.
    una: u32,
    resent: u32,
    duplicates: u32,
}

impl Undo {
    /// The window is about to be reduced.
    pub fn new(window: &Window, una: u32) -> Self {
        Undo {
            cwnd: window.cwnd(),
            ssthresh: window.ssthresh(),
            una,
            resent: 0,
            duplicates: 0,
        }
    }

    /// A segment is sent again.
    pub fn resend(&mut self) {
        self.resent += 1;
    }

    /// `number` arrived twice. Returns whether all that was resent did.
    pub fn hear_duplicate(&mut self, number: u32) -> bool {
        self.duplicates += u32::from(number >= self.una);
        self.resent > 0 && self.duplicates >= self.resent
    }

    /// Gives the window back.
    pub fn restore(&self, window: &mut Window) {
        window.restore(self.cwnd, self.ssthresh);
    }
}
