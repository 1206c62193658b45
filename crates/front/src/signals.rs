//! Signals, as one stream of actions.

use std::future::poll_fn;
use std::io;
use std::task::Poll;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// What a signal means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SignalAction {
    /// Finish requests and end (TERM, QUIT).
    Stop,
    /// Finish requests and end; the second time, end at once (INT).
    Interrupt,
    /// Reopen the logs (HUP).
    ReopenLogs,
    /// One worker more (TTIN).
    AddWorker,
    /// One worker fewer (TTOU).
    RemoveWorker,
    /// Load new code (USR1).
    Reload,
    /// Start a new program that takes over (USR2).
    Upgrade,
}

/// All signals that we listen to.
pub(crate) struct Signals {
    all: Vec<(Signal, SignalAction)>,
}

impl Signals {
    /// Takes the signals over from their defaults.
    ///
    /// # Errors
    /// The system refuses a handler.
    pub(crate) fn listen() -> io::Result<Signals> {
        let actions = [
            (SignalKind::terminate(), SignalAction::Stop),
            (SignalKind::quit(), SignalAction::Stop),
            (SignalKind::interrupt(), SignalAction::Interrupt),
            (SignalKind::hangup(), SignalAction::ReopenLogs),
            (SignalKind::from_raw(rustix::process::Signal::TTIN.as_raw()), SignalAction::AddWorker),
            (SignalKind::from_raw(rustix::process::Signal::TTOU.as_raw()), SignalAction::RemoveWorker),
            (SignalKind::user_defined1(), SignalAction::Reload),
            (SignalKind::user_defined2(), SignalAction::Upgrade),
        ];
        let all = actions
            .into_iter()
            .map(|(kind, action)| Ok((signal(kind)?, action)))
            .collect::<io::Result<_>>()?;
        Ok(Signals { all })
    }

    /// The next action. Safe to drop and call again.
    pub(crate) async fn next(&mut self) -> SignalAction {
        poll_fn(|cx| {
            for (signal, action) in &mut self.all {
                if signal.poll_recv(cx).is_ready() {
                    return Poll::Ready(*action);
                }
            }
            Poll::Pending
        })
        .await
    }
}
