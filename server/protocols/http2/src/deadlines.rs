//! Checks the deadlines of a connection, and frees the memory of an idle one.

use crate::connection::{Connection, Going};
use crate::{ConnectionError, ErrorCode, Event};
use net::Output;
use std::time::{Duration, Instant};

/// How long a drain waits for the answer.
const DRAIN_WAIT: Duration = Duration::from_secs(1);
/// A stream that has sent this many bytes since its window was too small has not stalled.
const PROGRESS: u32 = 1 << 10;
/// The longest time between two checks for stalled streams.
const STALL_CHECK: Duration = Duration::from_secs(1);
/// How long an idle connection keeps memory for streams.
const SPARE_WAIT: Duration = Duration::from_secs(1);

impl Connection {
    /// Checks deadlines: call it a few times a second, or when [`Connection::deadline`] has passed. Stalled
    /// streams are reset (`Event::Reset`). An idle connection frees memory here.
    ///
    /// # Errors
    /// As [`Connection::receive`]: the client was too slow with a frame or an acknowledgement.
    pub fn check(&mut self, now: Instant, events: &mut impl FnMut(Event<'_>)) -> Result<(), ConnectionError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        self.now = now;
        let late = |since: Option<Instant>, most: Duration| {
            since.is_some_and(|since| now.saturating_duration_since(since) >= most)
        };
        if late(self.waiting_since, self.limits.header_timeout) {
            return Err(self.fail(ConnectionError {
                code: ErrorCode::PROTOCOL_ERROR,
                reason: "a frame, a header section or the preface took longer than timeouts.header",
                flood: None,
            }));
        }
        if late(self.settings_sent, self.limits.settings_timeout) {
            return Err(self.fail(ConnectionError {
                code: ErrorCode::SETTINGS_TIMEOUT,
                reason: "SETTINGS were not acknowledged in time",
                flood: None,
            }));
        }
        if let Going::Announced(since) = self.going
            && late(Some(since), DRAIN_WAIT)
        {
            self.send_goaway(ErrorCode::NO_ERROR, "");
        }
        self.reset_stalled(events);
        self.reset_discards(now);
        if self.has_spare_memory() {
            self.shrink();
        }
        Ok(())
    }

    /// Records that the client is still receiving, but may not have received data sent since `since`; `None`:
    /// it has everything. A window that is used up after `since` counts as too small only once the client can
    /// have known: a slow client must not lose its streams for that.
    pub fn behind(&mut self, since: Option<Instant>) {
        self.behind = since;
    }

    fn reset_stalled(&mut self, events: &mut impl FnMut(Event<'_>)) {
        let (now, all_blocked) = (self.now, self.send_window <= 0);
        let is_behind = |since: Instant| self.behind.is_some_and(|behind| since > behind);
        let mut stalled = Vec::new();
        for (name, stream) in self.streams.iter_mut() {
            let blocked = stream.wants && (all_blocked || stream.send_window <= 0);
            let unlooked = std::mem::take(&mut stream.unlooked);
            stream.sent = stream.sent.saturating_add(unlooked);
            stream.unread.sent(unlooked.into(), now);
            let timeout = stream.unread.patience(self.limits.stall_timeout, now);
            match stream.stalled {
                _ if !stream.wants => stream.stalled = None,
                None if blocked => {
                    (stream.stalled, stream.sent, stream.owed) = (Some(now), 0, self.behind.is_some());
                }
                Some(_) if stream.sent >= PROGRESS => {
                    (stream.stalled, stream.sent) = (blocked.then_some(now), 0);
                    stream.owed = self.behind.is_some();
                }
                Some(since) if blocked && stream.owed && !is_behind(since) => {
                    (stream.stalled, stream.owed) = (Some(now), false);
                }
                Some(since) if blocked && !stream.owed && now.saturating_duration_since(since) >= timeout => {
                    stalled.push(name);
                }
                _ => {}
            }
        }
        self.may_stall = self.streams.iter().any(|stream| stream.wants);
        for stream in stalled {
            self.reset(stream, ErrorCode::CANCEL);
            let reason = Some("the client did not open its window in time");
            events(Event::Reset { stream, code: ErrorCode::CANCEL, reason });
        }
    }

    /// Returns when [`Connection::check`] has something to do; `None` if there is no deadline, as after a failure.
    pub fn deadline(&self) -> Option<Instant> {
        if self.failed.is_some() {
            return None;
        }
        let going = if let Going::Announced(since) = self.going { Some(since + DRAIN_WAIT) } else { None };
        [
            self.waiting_since.map(|since| since + self.limits.header_timeout),
            self.settings_sent.map(|since| since + self.limits.settings_timeout),
            going,
            self.discard_deadline(),
            self.may_stall.then(|| self.now + (self.limits.stall_timeout / 4).min(STALL_CHECK)),
            self.has_spare_memory().then(|| self.now + SPARE_WAIT),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Returns whether an idle connection keeps memory that was for many streams.
    fn has_spare_memory(&self) -> bool {
        self.is_idle()
            && (self.streams.has_spare_memory() || self.partial.capacity() > 0 || self.repeat.holds_memory())
    }

    fn shrink(&mut self) {
        self.streams.shrink();
        self.schedule.shrink();
        self.discards.shrink_to_fit();
        self.decoder.shrink();
        self.repeat.shrink();
        self.early_priorities.shrink_to_fit();
        if self.partial.is_empty() {
            self.partial = Vec::new();
        }
        if self.output.is_empty() {
            self.output = Output::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Limits, frame};

    #[test]
    fn a_failed_connection_has_no_deadline() {
        let now = Instant::now();
        let mut connection = Connection::new(Limits::default(), now);
        assert_eq!(connection.receive(&frame::PREFACE[..9], now, &mut |_| {}), Ok(()));
        assert!(connection.deadline().is_some(), "the rest of the preface is awaited");
        let late = now + connection.limits.header_timeout;
        let error = connection.check(late, &mut |_| {}).expect_err("it has not come");
        assert_eq!(connection.deadline(), None);
        assert_eq!(connection.check(late, &mut |_| {}), Err(error));
    }

    /// Returns the checks (seconds, and `behind`'s argument) at which a stream with a used-up window is reset.
    fn resets(checks: &[(u64, Option<u64>)]) -> Vec<u64> {
        let start = Instant::now();
        let at = |second: u64| start + Duration::from_secs(second);
        let mut connection =
            Connection::new(Limits { stall_timeout: Duration::from_secs(10), ..Limits::default() }, start);
        let mut input = frame::PREFACE.to_vec();
        // SETTINGS_INITIAL_WINDOW_SIZE is 0.
        frame::header(&mut input, 6, frame::SETTINGS, 0, 0);
        input.extend_from_slice(&[0, 4, 0, 0, 0, 0]);
        frame::header(&mut input, 0, frame::SETTINGS, frame::ACK, 0);
        frame::header(&mut input, 6, frame::HEADERS, 5, 1);
        input.extend_from_slice(&[0x82, 0x87, 0x84, 0x41, 1, b'x']);
        let mut stream = None;
        let mut events = |event: Event<'_>| {
            if let Event::Request { stream: name, .. } = event {
                stream = Some(name);
            }
        };
        assert_eq!(connection.receive(&input, start, &mut events), Ok(()));
        let stream = stream.expect("a request");
        assert!(connection.head(stream, 200, &handler::Fields::default(), b"", None, false));
        connection.ready(stream);
        let mut resets = Vec::new();
        for (second, behind) in checks {
            connection.behind(behind.map(at));
            let mut events = |event: Event<'_>| {
                if let Event::Reset { .. } = event {
                    resets.push(*second);
                }
            };
            assert_eq!(connection.check(at(*second), &mut events), Ok(()));
        }
        resets
    }

    #[test]
    fn a_window_that_stays_too_small_ends_its_stream() {
        assert_eq!(resets(&[(0, None), (9, None), (10, None)]), [10]);
    }

    #[test]
    fn a_client_that_is_still_receiving_has_its_time_from_when_it_can_know() {
        // At 2 s the window is too small, but data sent since 1 s has not arrived; at 30 s, all data until 20 s has.
        assert_eq!(
            resets(&[(2, Some(1)), (12, Some(1)), (30, Some(20)), (39, Some(35)), (40, Some(36))]),
            [40]
        );
        assert_eq!(resets(&[(2, Some(1)), (12, None), (21, None), (22, None)]), [22]);
    }

    /// An idle connection with TLS may hold 16 KiB. This is the engine's part, without the client's header
    /// table of up to 6 KiB.
    #[test]
    fn an_idle_connection_is_small() {
        assert!(size_of::<Connection>() <= 1536, "{}", size_of::<Connection>());
        let now = Instant::now();
        let mut connection = Connection::new(Limits::default(), now);
        let mut input = frame::PREFACE.to_vec();
        frame::header(&mut input, 0, frame::SETTINGS, 0, 0);
        frame::header(&mut input, 0, frame::SETTINGS, frame::ACK, 0);
        for id in 0..100 {
            // GET, https, /, and x as the authority.
            frame::header(&mut input, 6, frame::HEADERS, 5, 2 * id + 1);
            input.extend_from_slice(&[0x82, 0x87, 0x84, 0x41, 1, b'x']);
        }
        let mut streams = Vec::new();
        let mut events = |event: Event<'_>| {
            if let Event::Request { stream, .. } = event {
                streams.push(stream);
            }
        };
        assert_eq!(connection.receive(&input, now, &mut events), Ok(()));
        assert_eq!((streams.len(), connection.deadline()), (100, None));
        streams.into_iter().for_each(|stream| connection.reset(stream, ErrorCode::CANCEL));
        connection.output.clear();
        assert_eq!(connection.deadline(), Some(now + SPARE_WAIT));
        assert_eq!(connection.check(now + SPARE_WAIT, &mut |_| {}), Ok(()));
        assert!(connection.deadline().is_none() && connection.output.capacity() == 0);
    }
}
