//! Measures of servers: what a service knows of each at the end of a window ([`Served`]).

use std::time::Duration;

use super::{Better, Distance, Measure, Taken};
use crate::link::RateNeed;

const fn of_servers(
    name: &'static str,
    taken: Taken,
    meaning: &'static str,
    state: &'static str,
) -> Measure {
    Measure {
        name,
        distance: Distance::Node,
        better: Better::Less,
        taken,
        rates: RateNeed::None,
        by_rate: false,
        meaning,
        state,
    }
}

/// Connections open as the window ended (Zhang 2002 §2.3, CONN: frozen between polls).
pub static OPEN_THEN: Measure = Measure {
    distance: Distance::Local,
    ..of_servers(
        "open-then",
        Taken::EveryWindow(|served| served.open),
        "connections open as the last window ended",
        "two counters, read every window",
    )
};

/// Bytes sent in the window (Zhang 2002 §2.3, XSIZE).
pub static SENT: Measure = of_servers(
    "sent",
    Taken::EveryWindow(|served| served.sent_bytes),
    "bytes that each server has sent in the last window",
    "a counter for each processor, read every window",
);

/// Mean time from a request to the first byte of its answer in the window (Zhang 2002 §2.3, RT). Who was asked nothing is worth a try.
pub static ANSWER_TIME: Measure = of_servers(
    "answer-time",
    Taken::EveryWindow(|served| served.answer_time.map_or(0, nanoseconds)),
    "mean time from a request to its answer in the last window",
    "the time of a request for each connection, and two counters",
);

/// The same with a memory: a slower answer counts at once, a faster one by and by.
pub static PEAK: Measure = of_servers(
    "peak-answer-time",
    Taken::EveryWindow(|served| nanoseconds(served.peak)),
    "time from a request to its answer, which rises at once and falls slowly",
    "the time of a request for each connection, two counters, and a mean",
);

/// Time that the last check took (Zhang 2002 §2.3, probing). A server whose check failed comes last.
pub static CHECK_TIME: Measure = of_servers(
    "check-time",
    Taken::ByCheck(|served| served.check_time.map_or(u64::MAX / 2, nanoseconds)),
    "time that the last check of each server took",
    "the time of the last check",
);

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX / 2)
}
