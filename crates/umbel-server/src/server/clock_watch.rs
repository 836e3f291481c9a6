//! Logs when the store stops believing the wall clock, and when it believes the clock again.
//!
//! Each change is logged once. The state itself is in the metrics, in `/stats` and in the console.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use umbel_events::ClockState;

use crate::server_context::ServerContext;

/// Interval of the checks.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);
const SECONDS_PER_DAY: u64 = 24 * 60 * 60;

/// Disagreement between store and wall clock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum ClockFault {
    #[default]
    None,
    /// The wall clock jumped ahead; events get the time without the jump.
    Ahead,
    /// The wall clock is years ahead, and the store refuses appends.
    Unknown,
    /// The last event is in the future, and later events get its time.
    Behind,
}

impl ClockFault {
    fn of(state: &ClockState) -> ClockFault {
        match state {
            state if state.refuses_appends => ClockFault::Unknown,
            state if !state.rejected.is_zero() => ClockFault::Ahead,
            state if !state.behind.is_zero() => ClockFault::Behind,
            _ => ClockFault::None,
        }
    }

    /// Logs a change from this state to another one, and returns the other one.
    fn change_to(self, state: &ClockState) -> ClockFault {
        let next = ClockFault::of(state);
        if next == self {
            return next;
        }
        let seconds = state.rejected.max(state.behind).as_secs();
        match next {
            ClockFault::Unknown => tracing::warn!(
                days = seconds / SECONDS_PER_DAY,
                "this machine's clock is years ahead of the time that the store believed last; the \
                 store refuses appends: correct the clock, or start the server once with \
                 --accept-clock"
            ),
            ClockFault::Ahead => tracing::warn!(
                seconds,
                "this machine's clock jumped ahead, and the store does not believe it: events get \
                 the time without the jump; correct the clock, or, after a pause of a virtual \
                 machine, start the server once with --accept-clock"
            ),
            ClockFault::Behind => tracing::warn!(
                seconds,
                "the store's last event is ahead of this machine's clock, and later events get its \
                 time: correct the clock; if it is right, start the server once with --accept-clock"
            ),
            ClockFault::None => tracing::info!("the store believes this machine's clock again"),
        }
        next
    }
}

/// Watches the store's clock until the server stops.
pub async fn watch(service: Arc<ServerContext>, mut stopped: watch::Receiver<bool>) {
    let mut last = ClockFault::default();
    loop {
        last = last.change_to(&service.store.clock_state());
        tokio::select! {
            _ = stopped.wait_for(|stopped| *stopped) => return,
            () = tokio::time::sleep(CHECK_INTERVAL) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_faults_are_distinguished() {
        let second = Duration::from_secs(1);
        let fine = ClockState::default();
        let ahead = ClockState { rejected: second, ..fine };
        let unknown = ClockState { refuses_appends: true, ..ahead };
        let behind = ClockState { behind: second, ..fine };
        let faults = [fine, ahead, unknown, behind].map(|state| ClockFault::of(&state));
        let wanted = [ClockFault::None, ClockFault::Ahead, ClockFault::Unknown, ClockFault::Behind];
        assert_eq!(faults, wanted);
        assert_eq!(ClockFault::Ahead.change_to(&fine), ClockFault::None);
    }
}
