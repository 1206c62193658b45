//! Signals, as one stream of wishes.

use std::future::poll_fn;
use std::io;
use std::task::Poll;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// What a signal asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wish {
    /// Finish and end (TERM, QUIT).
    Stop,
    /// Finish and end; the second time, end at once (INT).
    Interrupt,
    /// Reopen the logs (HUP).
    Reopen,
    /// One worker more (TTIN).
    More,
    /// One worker fewer (TTOU).
    Fewer,
    /// Restart in place (USR1, USR2 to other servers); not ours yet, and must not kill us.
    Restart,
}

/// All signals that we listen to.
pub(crate) struct Signals {
    all: Vec<(Signal, Wish)>,
}

impl Signals {
    /// Takes the signals over from their defaults.
    ///
    /// # Errors
    /// The system refuses a handler.
    pub(crate) fn listen() -> io::Result<Signals> {
        let wishes = [
            (SignalKind::terminate(), Wish::Stop),
            (SignalKind::quit(), Wish::Stop),
            (SignalKind::interrupt(), Wish::Interrupt),
            (SignalKind::hangup(), Wish::Reopen),
            (SignalKind::from_raw(rustix::process::Signal::TTIN.as_raw()), Wish::More),
            (SignalKind::from_raw(rustix::process::Signal::TTOU.as_raw()), Wish::Fewer),
            (SignalKind::user_defined1(), Wish::Restart),
            (SignalKind::user_defined2(), Wish::Restart),
        ];
        let all =
            wishes.into_iter().map(|(kind, wish)| Ok((signal(kind)?, wish))).collect::<io::Result<_>>()?;
        Ok(Signals { all })
    }

    /// The next wish. Safe to drop and call again.
    pub(crate) async fn next(&mut self) -> Wish {
        poll_fn(|cx| {
            for (signal, wish) in &mut self.all {
                if signal.poll_recv(cx).is_ready() {
                    return Poll::Ready(*wish);
                }
            }
            Poll::Pending
        })
        .await
    }
}
