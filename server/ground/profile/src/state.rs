//! The state of a thread at a sample.

use serde::{Deserialize, Serialize};
use wire::profile::SampledState;

/// The state of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It ran Ruby, or a function in C.
    Runs,
    /// It collected garbage.
    Gc,
    /// It waited for the GVL, because another thread ran.
    Gvl,
    /// It waited in a lock, a queue, or for another thread to end.
    Lock,
    /// It waited for a socket, a file or a child process.
    Io,
    /// It slept.
    Sleep,
}

impl State {
    pub const ALL: [State; 6] = [State::Runs, State::Gc, State::Gvl, State::Lock, State::Io, State::Sleep];

    /// Returns the state in words.
    pub fn name(self) -> &'static str {
        match self {
            State::Runs => "runs",
            State::Gc => "collects garbage",
            State::Gvl => "waits for the GVL",
            State::Lock => "waits in a lock",
            State::Io => "waits for I/O",
            State::Sleep => "sleeps",
        }
    }

    /// Decides the state by what was seen and the innermost frames: whether the innermost is a function in C, its label, and that of the frame that has
    /// called it. Labels have no class.
    ///
    /// A thread that waits for another one, without a function that waits on top of its stack, waits for the GVL.
    pub(crate) fn of(seen: SampledState, native: bool, label: &str, caller: &str) -> State {
        match seen {
            SampledState::Runs => State::Runs,
            SampledState::Collects => State::Gc,
            SampledState::WaitsForGvl => State::Gvl,
            SampledState::Sleeps => State::Sleep,
            _ if native && label == "sleep" => {
                // ConditionVariable#wait sleeps in its mutex.
                if matches!(caller, "wait" | "wait_for_cond" | "wait_while" | "wait_until") {
                    State::Lock
                } else {
                    State::Sleep
                }
            }
            _ if native && LOCKS.contains(&label) => State::Lock,
            SampledState::WaitsInLock => State::Lock,
            SampledState::WaitsForThread => State::Gvl,
            SampledState::Waits => State::Io,
        }
    }
}

/// Functions in C that wait for another thread.
const LOCKS: [&str; 14] = [
    "lock",
    "synchronize",
    "enter",
    "mon_enter",
    "mon_synchronize",
    "wait_for_cond",
    "pop",
    "shift",
    "deq",
    "push",
    "<<",
    "enq",
    "join",
    "value",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_function_on_top_decides_what_a_thread_waits_for() {
        let cases = [
            (SampledState::Runs, true, "sleep", "", State::Runs),
            (SampledState::Collects, false, "new", "", State::Gc),
            (SampledState::Waits, true, "sleep", "call", State::Sleep),
            (SampledState::WaitsForThread, true, "sleep", "wait", State::Lock),
            (SampledState::WaitsForThread, true, "synchronize", "call", State::Lock),
            (SampledState::Waits, true, "pop", "call", State::Lock),
            (SampledState::WaitsForThread, false, "pop", "call", State::Gvl),
            (SampledState::WaitsForThread, true, "deflate", "call", State::Gvl),
            (SampledState::WaitsInLock, false, "call", "", State::Lock),
            (SampledState::WaitsForGvl, true, "pop", "", State::Gvl),
            (SampledState::Waits, true, "wait_readable", "read", State::Io),
        ];
        for (seen, native, label, caller, state) in cases {
            assert_eq!(State::of(seen, native, label, caller), state, "{seen:?} {label}");
        }
    }
}
