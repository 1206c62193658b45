//! Whispers of clients to the others of a stream ([`cable::whisper`]): signs of typing, pointers, all that is worth nothing a moment later.
//!
//! Contract:
//! 1. The app allows them for a stream of a channel (`stream_from …, whisper: true`), or `hub.pubsub_whispers` for all streams of the channel
//!    `$pubsub`. A whisper of another subscription is a violation, and has no effect.
//! 2. Only subscriptions that may whisper to the stream themselves get its whispers: pages that show its messages as HTML, as Turbo does, never show
//!    one that a client has written.
//! 3. The app learns nothing of them. They are not kept, not repeated, and lost for a client that reads slowly.
//! 4. A client waits for [`pause`] after each, so that one client cannot make the server send without bound; meanwhile its other commands wait.

use super::local::HubClient;
use super::session::HubSubscription;
use super::socket::CableSocket;
use super::{DeskOrder, Mail, SharedHub, count};
use cable::whisper::Whisper;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// The least time between two whispers of a client: once, and once more for so many listeners.
const PAUSE: Duration = Duration::from_millis(20);
const LISTENERS: u32 = 1_000;
/// The most bytes in a second that the server sends to all listeners for one client.
const BYTES: u32 = 16 << 20;

/// Returns how long a client waits after a whisper of so many bytes to so many listeners.
fn pause(bytes: usize, listeners: u32) -> Duration {
    let sending = bytes as f64 * f64::from(listeners) / f64::from(BYTES);
    (PAUSE * (1 + listeners / LISTENERS)).max(Duration::from_secs_f64(sending))
}

impl CableSocket {
    /// Passes a client's whisper on.
    pub(super) async fn whisper(&self, identifier: &str, message: &str) {
        let stream = {
            let mut session = self.session.borrow_mut();
            let streams = session.subscription(identifier).into_iter().flat_map(|known| &known.streams);
            streams.filter(|stream| stream.takes_whispers).map(|stream| stream.name.clone()).next()
        };
        let hub = &self.local.hub;
        let whisper = stream.and_then(|stream| Whisper::new(&stream, self.session_id(), message).ok());
        let Some(whisper) = whisper else { return count(&hub.counts.violations) };
        hub.caught_up().await;
        let listeners = hub.whisper(&Arc::new(whisper));
        tokio::time::sleep(pause(message.len(), listeners)).await;
    }

    /// Lets a subscription whisper to this one of its streams, and to no other.
    pub(super) fn allow_whispers(&self, known: &mut HubSubscription, name: &str) {
        let (client, identifier) = (self.client.get(), known.identifier.clone());
        for stream in &mut known.streams {
            let is_meant = *stream.name == *name;
            if std::mem::replace(&mut stream.takes_whispers, is_meant) == is_meant {
                continue;
            }
            if is_meant {
                let mut whisperers = self.local.whisperers.borrow_mut();
                whisperers.join(name, &identifier, self.protocol, client, || 0);
            } else {
                self.stop_whispers(&stream.name, &identifier);
            }
        }
    }

    /// Lets a subscription get no more whispers of a stream.
    pub(super) fn stop_whispers(&self, name: &str, identifier: &Rc<str>) {
        self.local.whisperers.borrow_mut().leave(name, identifier, self.protocol, self.client.get());
    }
}

impl SharedHub {
    /// Passes a client's whisper on, here and to other servers. Returns the number of the stream's listeners here.
    fn whisper(&self, whisper: &Arc<Whisper>) -> u32 {
        count(&self.counts.whispers);
        if self.is_shared {
            // Without the task that publishes, the server is about to end.
            let _ = self.orders.send(DeskOrder::Whisper(whisper.clone()));
        }
        self.whisper_here(whisper)
    }

    /// Puts a whisper into the mailboxes of the threads with listeners of its stream. Returns their number.
    pub(super) fn whisper_here(&self, whisper: &Arc<Whisper>) -> u32 {
        let streams = self.streams();
        let listeners = streams.listeners(&whisper.stream);
        for (thread, _) in listeners {
            // Processes of the app hold no client that may whisper.
            if let Some(mailbox) = self.mailboxes.get(usize::from(*thread)) {
                self.post(mailbox, Mail::Whisper(whisper.clone()));
            }
        }
        listeners.iter().map(|(_, listeners)| listeners).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_waits_for_what_it_makes_the_server_send() {
        let waits = |bytes, listeners| pause(bytes, listeners).as_millis();
        assert_eq!([waits(60, 0), waits(60, 3), waits(60, 999), waits(60, 1_000)], [20, 20, 20, 40]);
        assert_eq!([waits(60, 10_000), waits(64 << 10, 100), waits(64 << 10, 10_000)], [220, 390, 39_062]);
    }
}
