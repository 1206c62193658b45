//! Turns signals into a single stream of actions.

use std::future::poll_fn;
use std::io;
use std::task::Poll;
use tokio::signal::unix::{Signal, SignalKind, signal};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SignalAction {
    /// Finish requests, then exit (TERM, QUIT).
    Stop,
    /// Finish requests, then exit; the second time, exit at once (INT).
    Interrupt,
    /// Reopen the logs (HUP).
    ReopenLogs,
    /// Add a worker (TTIN).
    AddWorker,
    /// Remove a worker (TTOU).
    RemoveWorker,
    /// Load new code (USR1).
    Reload,
    /// Start a new program that takes over (USR2).
    Upgrade,
    /// A signal with a meaning in other servers but none here.
    Nothing,
}

pub(crate) struct Signals {
    all: Vec<(Signal, &'static str, SignalAction)>,
}

impl Signals {
    /// Installs handlers for the signals.
    ///
    /// # Errors
    /// The system refuses a handler.
    pub(crate) fn listen() -> io::Result<Signals> {
        let raw = |signal: rustix::process::Signal| SignalKind::from_raw(signal.as_raw());
        let actions = [
            (SignalKind::terminate(), "TERM", SignalAction::Stop),
            (SignalKind::quit(), "QUIT", SignalAction::Stop),
            (SignalKind::interrupt(), "INT", SignalAction::Interrupt),
            (SignalKind::hangup(), "HUP", SignalAction::ReopenLogs),
            (raw(rustix::process::Signal::TTIN), "TTIN", SignalAction::AddWorker),
            (raw(rustix::process::Signal::TTOU), "TTOU", SignalAction::RemoveWorker),
            (SignalKind::user_defined1(), "USR1", SignalAction::Reload),
            (SignalKind::user_defined2(), "USR2", SignalAction::Upgrade),
            (SignalKind::window_change(), "WINCH", SignalAction::Nothing),
            #[cfg(target_os = "linux")]
            (raw(rustix::process::Signal::POWER), "PWR", SignalAction::Nothing),
        ];
        let all = actions
            .into_iter()
            .map(|(kind, name, action)| Ok((signal(kind)?, name, action)))
            .collect::<io::Result<_>>()?;
        Ok(Signals { all })
    }

    /// Waits for the next signal. Returns its name and action. Cancel-safe.
    pub(crate) async fn next(&mut self) -> (&'static str, SignalAction) {
        poll_fn(|cx| {
            for (signal, name, action) in &mut self.all {
                if signal.poll_recv(cx).is_ready() {
                    return Poll::Ready((*name, *action));
                }
            }
            Poll::Pending
        })
        .await
    }
}
