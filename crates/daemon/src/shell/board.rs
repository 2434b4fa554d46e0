//! The line that `systemctl status` shows: what each role is doing.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::notify::notify;

/// A line of each role, and what the service manager was told.
#[derive(Debug, Default)]
struct Lines {
    of_roles: Vec<String>,
    /// All have started: whoever reads of one has no other to wait for.
    is_open: bool,
    told: String,
}

impl Lines {
    fn tell(&mut self) {
        let whole = self.of_roles.join("; ");
        if self.is_open && whole != self.told && notify(&format!("STATUS={whole}")) {
            self.told = whole;
        }
    }
}

/// Where the roles of an instance write what they do.
#[derive(Debug, Default, Clone)]
pub(crate) struct Board(Arc<Mutex<Lines>>);

/// A role's line.
#[derive(Debug, Default, Clone)]
pub(crate) struct Place {
    board: Board,
    index: usize,
}

impl Board {
    /// For one more role.
    pub fn place(&self) -> Place {
        let mut lines = self.lines();
        lines.of_roles.push(String::new());
        Place {
            board: self.clone(),
            index: lines.of_roles.len() - 1,
        }
    }

    /// From here on the service manager is told.
    pub fn open(&self) {
        let mut lines = self.lines();
        lines.is_open = true;
        lines.tell();
    }

    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// Tells the service manager if it is something new.
    pub fn tell(&self, line: String) {
        let mut lines = self.board.lines();
        if let Some(own) = lines.of_roles.get_mut(self.index) {
            *own = line;
        }
        lines.tell();
    }
}
