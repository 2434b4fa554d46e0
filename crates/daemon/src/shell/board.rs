//! The line that `systemctl status` shows: what each role does.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::notify::notify;

/// The line of each role, and what the service manager was told last.
#[derive(Debug, Default)]
struct Lines {
    of_roles: Vec<String>,
    /// Set when all roles have started. Before that nothing is shown, because one role's line would look as if all worked.
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

/// The lines of all roles of an instance.
#[derive(Debug, Default, Clone)]
pub(crate) struct Board(Arc<Mutex<Lines>>);

/// A role's line.
#[derive(Debug, Default, Clone)]
pub(crate) struct Place {
    board: Board,
    index: usize,
}

impl Board {
    /// Adds a line for a role.
    pub fn place(&self) -> Place {
        let mut lines = self.lines();
        lines.of_roles.push(String::new());
        Place {
            board: self.clone(),
            index: lines.of_roles.len() - 1,
        }
    }

    /// Begins to notify the service manager.
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
    /// Sets the line, and notifies the service manager if it has changed.
    pub fn tell(&self, line: String) {
        let mut lines = self.board.lines();
        if let Some(own) = lines.of_roles.get_mut(self.index) {
            *own = line;
        }
        lines.tell();
    }
}
