//! Reads Redis streams: replies to XREAD and XRANGE in both versions of the protocol.

use crate::client::RedisClient;
use crate::command;
use crate::error::{Error, ErrorKind};
use crate::value::{Value, ValueSink};
use std::time::Duration;

/// The id of an entry of a stream: milliseconds and a number.
pub type EntryId = (u64, u64);

/// An entry: its id, and its fields with their values.
pub type Entry = (EntryId, Vec<(Vec<u8>, Vec<u8>)>);

/// Runs an XREAD, which may block, on a connection of its own. Returns the entries of all its streams; none if the time of `BLOCK` has passed.
///
/// # Errors
/// Redis cannot be reached, does not answer within `timeout`, or refuses the command.
pub async fn read(
    client: &RedisClient<ValueSink>,
    words: &[&str],
    timeout: Duration,
) -> Result<Vec<Entry>, Error> {
    let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
    let connection = client.dedicated();
    let reply = connection.send(1, false, Some(timeout), |out| {
        command::words(out, &words);
        Ok::<(), Error>(())
    })?;
    let value = reply.await.into_value();
    client.give_back(connection);
    match value {
        Some(Value::Error(error)) => Err(error),
        Some(Value::Null) => Ok(Vec::new()),
        Some(value) => Ok(streams(value).into_iter().flat_map(entries).collect()),
        None => Err(Error::new(ErrorKind::Protocol, "an incomplete reply")),
    }
}

/// Returns the lists of entries in a reply to XREAD: an array of pairs, or a map (RESP3).
fn streams(value: Value) -> Vec<Value> {
    match value {
        Value::Array(streams) => streams
            .into_iter()
            .filter_map(|stream| match stream {
                Value::Array(mut pair) => pair.pop(),
                _ => None,
            })
            .collect(),
        Value::Map(pairs) => pairs.into_iter().map(|(_, entries)| entries).collect(),
        _ => Vec::new(),
    }
}

/// Returns the entries of a stream: pairs of an id and a list of names and values. Entries of another form
/// are left out.
pub fn entries(value: Value) -> Vec<Entry> {
    let Value::Array(entries) = value else { return Vec::new() };
    let entry = |entry: Value| {
        let Value::Array(pair) = entry else { return None };
        let [Value::Text(id), Value::Array(fields)] = <[Value; 2]>::try_from(pair).ok()? else { return None };
        let texts: Vec<Vec<u8>> = fields
            .into_iter()
            .filter_map(|field| if let Value::Text(text) = field { Some(text) } else { None })
            .collect();
        let pairs = texts.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect();
        Some((entry_id(&id)?, pairs))
    };
    entries.into_iter().filter_map(entry).collect()
}

/// Reads the id of an entry.
pub fn entry_id(text: &[u8]) -> Option<EntryId> {
    let (time, number) = std::str::from_utf8(text).ok()?.split_once('-')?;
    Some((time.parse().ok()?, number.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value::Text(text.as_bytes().to_vec())
    }

    #[test]
    fn replies_of_both_protocols_are_read() {
        let entry = || {
            Value::Array(vec![
                text("12-3"),
                Value::Array(vec![text("from"), text("a"), text("order"), text("{}")]),
            ])
        };
        let list = || Value::Array(vec![entry(), text("odd"), Value::Array(vec![text("x"), Value::Null])]);
        let two = Value::Array(vec![Value::Array(vec![text("key"), list()])]);
        let three = Value::Map(vec![(text("key"), list())]);
        for reply in [two, three] {
            let all: Vec<Entry> = streams(reply).into_iter().flat_map(entries).collect();
            assert_eq!(all.len(), 1);
            assert_eq!(all[0].0, (12, 3));
            assert_eq!(all[0].1[1], (b"order".to_vec(), b"{}".to_vec()));
        }
        assert!(entry_id(b"9-10") > entry_id(b"9-9") && entry_id(b"x").is_none());
    }
}
