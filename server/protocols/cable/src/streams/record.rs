//! The streams as a record, by which a program passes them on to the one that takes over from it.
//!
//! Contract: a table that has adopted a record resumes each client as the recorded one would have, and goes on with the same epoch.
//! Messages beyond the new table's bounds are dropped, and known to be.

use super::StreamTable;
use serde::{Deserialize, Serialize};

/// All streams of a table.
#[derive(Debug, Serialize, Deserialize)]
pub struct TableRecord {
    epoch: String,
    floor: u64,
    forgotten_at: u64,
    streams: Vec<StreamRecord>,
}

#[derive(Debug, Serialize, Deserialize)]
struct StreamRecord {
    name: String,
    offset: u64,
    lost: u64,
    lost_at: u64,
    published: u64,
    /// Offset, time and payload of each kept message.
    messages: Vec<(u64, u64, String)>,
    /// The number of each among the messages of all streams; an older program does not name it.
    #[serde(default)]
    numbers: Vec<u64>,
}

impl StreamTable {
    /// Returns a record of all streams, without their listeners.
    pub fn record(&self) -> TableRecord {
        let streams = self.streams.values().map(|stream| StreamRecord {
            name: stream.name.to_string(),
            offset: stream.offset,
            lost: stream.lost,
            lost_at: stream.lost_at,
            published: stream.published,
            messages: stream
                .history
                .iter()
                .map(|message| (message.offset, message.at, message.payload.to_string()))
                .collect(),
            numbers: stream.history.iter().map(|message| message.number).collect(),
        });
        TableRecord {
            epoch: self.epoch.to_string(),
            floor: self.floor,
            forgotten_at: self.forgotten_at,
            streams: streams.collect(),
        }
    }

    /// Goes on with the streams of a record. Returns false, and changes nothing, if there are streams already.
    pub fn adopt(&mut self, record: TableRecord, now: u64) -> bool {
        if !self.is_empty() {
            return false;
        }
        (self.epoch, self.floor) = (record.epoch.into(), record.floor);
        self.forgotten_at = record.forgotten_at;
        let mut messages = Vec::new();
        let mut figures = Vec::new();
        for stream in record.streams {
            let known = self.stream(&stream.name, now);
            (known.lost, known.lost_at) = (stream.lost, stream.lost_at);
            figures.push((known.name.clone(), stream.offset, stream.published));
            let (name, mut numbers) = (&known.name, stream.numbers.into_iter());
            messages.extend(stream.messages.into_iter().map(|(offset, at, payload)| {
                ((numbers.next().unwrap_or(0), at, offset), name.clone(), payload)
            }));
        }
        // The log has the messages of all streams in their order.
        messages.sort_by_key(|(order, ..)| *order);
        for ((_, at, offset), name, payload) in messages {
            self.append(&name, payload.into(), (offset, at), &mut |_, _| {});
        }
        for (name, offset, published) in figures {
            let known = self.stream(&name, now);
            (known.offset, known.published) = (offset, published);
        }
        self.expire(now);
        true
    }
}
