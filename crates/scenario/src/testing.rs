//! Samples for tests of the crates above.

use crate::{Direction, Outcome, RemoteServerId, Transfer, TransferId, UserId};

/// A successful transfer of Peng's file, 50 250 bytes, over `fiber`.
pub fn transfer(user: u32, start_s: f64, duration_s: f64) -> Transfer {
    let bytes = 50_250;
    Transfer {
        id: TransferId(0),
        user: UserId(user),
        group: None,
        source: [192, 168, 100, 1].into(),
        server: RemoteServerId(0),
        class: None,
        direction: Direction::Down,
        round: 0,
        planned_start_s: start_s,
        start_s,
        setup_s: Some(0.001),
        first_byte_s: Some(0.002),
        duration_s,
        bytes_asked: bytes,
        bytes,
        link: Some("fiber".into()),
        outcome: Outcome::Ok,
        syn_retransmits: 0,
    }
}
