//! Handles frames about streams and the connection (RFC 9113 sections 6.3 to 6.9, RFC 9218 section 7).

use crate::connection::{Connection, DRAIN_PING};
use crate::frame::{self, Header, MAX_PAYLOAD, MAX_WINDOW, number};
use crate::receive::{error, frame_size, protocol};
use crate::streams::Closed;
use crate::{ConnectionError, ErrorCode, Event, StreamId};
use fieldcode::Flood;
use fieldcode::Priority;

/// The most PRIORITY_UPDATE frames that are kept for streams which are not open yet.
const EARLY_PRIORITIES: usize = 32;
/// Entries of a SETTINGS frame that cost as much as the frame.
const ENTRIES: usize = 8;

impl Connection {
    /// Checks a PRIORITY frame, then ignores it.
    pub(crate) fn priority(
        &mut self,
        header: Header,
        payload: &[u8],
        events: &mut impl FnMut(Event<'_>),
    ) -> Result<(), ConnectionError> {
        if header.stream == 0 {
            return Err(protocol("PRIORITY on stream 0"));
        }
        self.budget.spend(Flood::Priorities, 1)?;
        let (code, reason) = if payload.len() != 5 {
            (ErrorCode::FRAME_SIZE_ERROR, "PRIORITY has 5 bytes")
        } else if number(payload) & MAX_WINDOW == header.stream {
            (ErrorCode::PROTOCOL_ERROR, "a stream that depends on itself")
        } else {
            return Ok(());
        };
        match self.streams.find(header.stream) {
            Some(stream) => self.stream_error(stream, code, reason, events),
            // A stream that is not open cannot be reset.
            None => Err(error(code, reason)),
        }
    }

    pub(crate) fn rst_stream(
        &mut self,
        header: Header,
        payload: &[u8],
        events: &mut impl FnMut(Event<'_>),
    ) -> Result<(), ConnectionError> {
        if payload.len() != 4 {
            return Err(frame_size("RST_STREAM has 4 bytes"));
        }
        if header.stream == 0 || self.is_idle_stream(header.stream) {
            return Err(protocol("RST_STREAM on an idle stream"));
        }
        let Some(stream) = self.streams.find(header.stream) else {
            // Both sides have reset it: a later frame of the client was not in flight when it learned of the
            // server's reset.
            self.streams.reset_by_client(header.stream);
            return Ok(self.budget.spend(Flood::Ignored, 1)?);
        };
        self.close(stream, Closed::ByClient);
        events(Event::Reset { stream, code: ErrorCode(number(payload)), reason: None });
        Ok(self.budget.spend(Flood::Resets, 1)?)
    }

    pub(crate) fn settings(&mut self, header: Header, payload: &[u8]) -> Result<(), ConnectionError> {
        if header.stream != 0 {
            return Err(protocol("SETTINGS on a stream"));
        }
        if header.has(frame::ACK) {
            if !payload.is_empty() {
                return Err(frame_size("an acknowledgement of SETTINGS has no payload"));
            }
            self.settings_sent = None;
            return Ok(self.budget.spend(Flood::Settings, 1)?);
        }
        let (entries, rest) = payload.as_chunks::<6>();
        if !rest.is_empty() {
            return Err(frame_size("an entry of SETTINGS has 6 bytes"));
        }
        self.budget.spend(Flood::Settings, 1 + (entries.len() / ENTRIES) as u32)?;
        for &[n0, n1, v0, v1, v2, v3] in entries {
            self.setting(u16::from_be_bytes([n0, n1]), u32::from_be_bytes([v0, v1, v2, v3]))?;
        }
        self.is_in_preface = false;
        self.budget.spend(Flood::Unread, 1)?;
        self.control(frame::SETTINGS, frame::ACK, 0, &[]);
        Ok(())
    }

    fn setting(&mut self, name: u16, value: u32) -> Result<(), ConnectionError> {
        match name {
            frame::SETTING_HEADER_TABLE_SIZE => self.encoder.set_table_size(value),
            frame::SETTING_ENABLE_PUSH if value > 1 => {
                return Err(protocol("SETTINGS_ENABLE_PUSH is 0 or 1"));
            }
            frame::SETTING_INITIAL_WINDOW_SIZE => self.set_initial_window(value)?,
            frame::SETTING_MAX_FRAME_SIZE if !(MAX_PAYLOAD as u32..1 << 24).contains(&value) => {
                return Err(protocol("SETTINGS_MAX_FRAME_SIZE is 16,384 to 16,777,215"));
            }
            frame::SETTING_NO_RFC7540_PRIORITIES if value > 1 => {
                return Err(protocol("SETTINGS_NO_RFC7540_PRIORITIES is 0 or 1"));
            }
            // The other settings are about pushes, or about features that the server does not use, or unknown.
            _ => {}
        }
        Ok(())
    }

    /// Changes the windows of all streams by the difference (RFC 9113 section 6.9.2).
    fn set_initial_window(&mut self, size: u32) -> Result<(), ConnectionError> {
        const TOO_LARGE: &str = "a window larger than 2^31-1";
        if size > MAX_WINDOW {
            return Err(error(ErrorCode::FLOW_CONTROL_ERROR, TOO_LARGE));
        }
        let difference = i64::from(size) - i64::from(self.initial_window);
        self.initial_window = size;
        if difference == 0 {
            return Ok(());
        }
        let mut opened = Vec::new();
        for (name, stream) in self.streams.iter_mut() {
            let window = i32::try_from(i64::from(stream.send_window) + difference);
            stream.send_window = window.map_err(|_| error(ErrorCode::FLOW_CONTROL_ERROR, TOO_LARGE))?;
            if stream.wants && !stream.queued && stream.send_window > 0 {
                opened.push(name);
            }
        }
        opened.into_iter().for_each(|stream| self.enqueue(stream));
        Ok(())
    }

    pub(crate) fn ping(&mut self, header: Header, payload: &[u8]) -> Result<(), ConnectionError> {
        if header.stream != 0 {
            return Err(protocol("PING on a stream"));
        }
        if payload.len() != 8 {
            return Err(frame_size("PING has 8 bytes"));
        }
        self.budget.spend(Flood::Pings, 1)?;
        if header.has(frame::ACK) {
            if payload == DRAIN_PING {
                self.drained();
            }
            return Ok(());
        }
        self.budget.spend(Flood::Unread, 1)?;
        self.control(frame::PING, frame::ACK, 0, payload);
        Ok(())
    }

    pub(crate) fn goaway_frame(
        &mut self,
        header: Header,
        payload: &[u8],
        events: &mut impl FnMut(Event<'_>),
    ) -> Result<(), ConnectionError> {
        if header.stream != 0 {
            return Err(protocol("GOAWAY on a stream"));
        }
        let Some(code) = payload.get(4..8) else { return Err(frame_size("GOAWAY has at least 8 bytes")) };
        self.budget.spend(Flood::Settings, 1)?;
        self.client_going = true;
        events(Event::GoAway { code: ErrorCode(number(code)) });
        Ok(())
    }

    pub(crate) fn window_update(
        &mut self,
        header: Header,
        payload: &[u8],
        events: &mut impl FnMut(Event<'_>),
    ) -> Result<(), ConnectionError> {
        if payload.len() != 4 {
            return Err(frame_size("WINDOW_UPDATE has 4 bytes"));
        }
        self.budget.spend(Flood::WindowUpdates, 1)?;
        // The first bit is reserved.
        let more = (number(payload) & MAX_WINDOW) as i32;
        if header.stream == 0 {
            if more == 0 {
                return Err(protocol("a WINDOW_UPDATE by 0"));
            }
            let window = self.send_window.checked_add(more);
            self.send_window = window
                .ok_or(error(ErrorCode::FLOW_CONTROL_ERROR, "the connection's window grows beyond 2^31-1"))?;
            return Ok(());
        }
        if self.is_idle_stream(header.stream) {
            return Err(protocol("WINDOW_UPDATE on an idle stream"));
        }
        let Some(name) = self.streams.find(header.stream) else {
            return Ok(self.budget.spend(Flood::Ignored, 1)?);
        };
        let Some(stream) = self.streams.get_mut(name) else { return Ok(()) };
        if more == 0 {
            return self.stream_error(name, ErrorCode::PROTOCOL_ERROR, "a WINDOW_UPDATE by 0", events);
        }
        let Some(window) = stream.send_window.checked_add(more) else {
            let reason = "the stream's window grows beyond 2^31-1";
            return self.stream_error(name, ErrorCode::FLOW_CONTROL_ERROR, reason, events);
        };
        stream.send_window = window;
        self.enqueue(name);
        Ok(())
    }

    pub(crate) fn priority_update(&mut self, header: Header, payload: &[u8]) -> Result<(), ConnectionError> {
        if header.stream != 0 {
            return Err(protocol("PRIORITY_UPDATE on a stream"));
        }
        let Some((id, value)) = payload.split_at_checked(4) else {
            return Err(frame_size("PRIORITY_UPDATE has at least 4 bytes"));
        };
        self.budget.spend(Flood::Priorities, 1)?;
        let id = number(id) & MAX_WINDOW;
        if id.is_multiple_of(2) {
            return Err(protocol("PRIORITY_UPDATE for a stream that clients cannot open"));
        }
        let priority = Priority::parse(value);
        if let Some(stream) = self.streams.find(id) {
            self.prioritize(stream, priority);
        } else if self.is_idle_stream(id) {
            let seen = self.streams.seen;
            self.early_priorities.retain(|&(early, _)| early != id && early > seen);
            if self.early_priorities.len() == EARLY_PRIORITIES {
                self.early_priorities.remove(0);
            }
            self.early_priorities.push((id, priority));
        }
        Ok(())
    }

    /// Moves a stream to its place for another priority.
    fn prioritize(&mut self, name: StreamId, priority: Priority) {
        let Some(stream) = self.streams.get_mut(name) else { return };
        let before = std::mem::replace(&mut stream.priority, priority);
        if stream.queued && before != priority {
            self.schedule.remove(name, before);
            self.schedule.push(name, priority);
        }
    }
}
