//! WebSockets that go to the app after all, because one of its channels cannot do without.
//!
//! Why: a channel whose `stream_from` has a block changes each message for each client in Ruby. The block lives in one process, and cannot travel with
//! calls. The app's own Action Cable can run it; the adapter gets the messages for it ([`super::processes`]).
//!
//! Contract:
//! 1. The first answer that asks for it is logged, and its client has to connect again. Its next WebSocket goes to the app, and so do all others that come
//!    from then on, because no handshake says which channels will follow.
//! 2. Clients that the hub has stay with it.
//! 3. The next release, or change of settings, begins with the hub again.

use super::local::LocalHub;
use std::sync::atomic::Ordering;

impl LocalHub {
    /// Whether new WebSockets go to the app.
    pub(super) fn is_handed_back(&self) -> bool {
        self.hub.is_handed_back.load(Ordering::Relaxed)
    }

    /// Lets new WebSockets go to the app.
    pub(super) fn hand_back(&self, why: &str) {
        if !self.hub.is_handed_back.swap(true, Ordering::Relaxed) {
            (self.log)(&format!(
                "hub: {why}: from now until the next reload, new WebSockets of {} go to the app itself, end with its workers, and take their memory (docs/live-pages.md)",
                self.hub.path
            ));
        }
    }

    /// Takes new WebSockets again.
    pub(crate) fn take_again(&self) {
        self.hub.is_handed_back.store(false, Ordering::Relaxed);
    }
}
