//! Tests responses: heads, bodies under flow control, priorities.

use crate::support::*;
use bytes::Bytes;
use handler::{Fields, Kept};
use http2::{ErrorCode, Limits, StreamId};
use std::time::Duration;

fn kinds(frames: &[Frame]) -> Vec<(u8, u8, usize)> {
    frames.iter().map(|frame| (frame.kind, frame.flags, frame.payload.len())).collect()
}

fn head(client: &mut Client, stream: http2::StreamId) {
    assert!(client.server.head(stream, 200, &Fields::default(), DATE, None, false));
    client.frames();
}

#[test]
fn small_and_empty_ones() {
    let mut client = Client::new();
    let stream = client.get(1);
    client.server.interim(stream, 103, &Fields::default());
    client.respond(stream, b"hello");
    let frames = client.frames();
    assert_eq!(frames.iter().map(|f| (f.kind, f.flags)).collect::<Vec<_>>(), [(1, 4), (1, 4), (0, 1)]);
    assert_eq!(
        (&frames[0].payload[..], &frames[2].payload[..]),
        (&[8, 3, b'1', b'0', b'3'][..], &b"hello"[..])
    );
    assert!(client.server.is_idle());
    // After the stream has gone, calls do nothing.
    assert!(!client.server.head(stream, 200, &Fields::default(), DATE, None, true));
    client.server.interim(stream, 103, &Fields::default());
    client.server.reset(stream, ErrorCode::CANCEL);
    client.server.ready(stream);
    client.server.credit(stream, 10);
    client.server.trailers(stream, &Fields::default());
    assert!(client.server.data(stream, Bytes::from_static(b"x"), true).is_empty());
    assert!(client.frames().is_empty() && client.server.next_sender().is_none());
    let stream = client.get(3);
    client.respond(stream, b"");
    assert_eq!(client.frames()[0].flags, 5);
}

#[test]
fn long_heads_are_continued() {
    let mut client = Client::new();
    let stream = client.get(1);
    let mut fields = Fields::default();
    fields.push(b"x-long", &[b'x'; 40_000]);
    assert!(client.server.head(stream, 200, &fields, DATE, None, true));
    let frames = client.frames();
    let kinds: Vec<(u8, u8)> = frames.iter().map(|frame| (frame.kind, frame.flags)).collect();
    assert_eq!(kinds, [(1, 1), (9, 0), (9, 4)]);
    assert_eq!(frames.iter().map(|frame| frame.payload.len()).sum::<usize>(), 1 + 8 + 4 + 40_000 + 31);
}

#[test]
fn bodies_stop_at_windows() {
    let mut client = Client::new();
    let stream = client.get(1);
    head(&mut client, stream);
    let body = Bytes::from(vec![7; 100_000]);
    let rest = client.server.data(stream, body, true);
    assert_eq!(rest.len(), 100_000 - 65_535);
    assert_eq!(kinds(&client.frames()), [(0, 0, 16_384), (0, 0, 16_384), (0, 0, 16_384), (0, 0, 16_383)]);
    client.server.ready(stream);
    assert_eq!((client.server.next_sender(), client.server.room(stream)), (None, 0));
    client.window(1, 10_000);
    assert_eq!(client.server.next_sender(), None, "the connection's window");
    client.window(0, 8_000);
    assert_eq!(client.server.next_sender(), Some((stream, 8_000)));
    assert_eq!(client.server.next_sender(), None, "once");
    let rest = client.server.data(stream, rest, true);
    client.server.ready(stream);
    client.window(0, 1 << 20);
    assert_eq!(client.server.next_sender(), Some((stream, 2_000)));
    let rest = client.server.data(stream, rest, true);
    client.window(1, 1 << 20);
    assert!(client.server.data(stream, rest, true).is_empty());
    // 100,000 bytes without 65,535, 8,000, 2,000 and a whole frame.
    assert_eq!(kinds(&client.frames()).last(), Some(&(0, 1, 8_081)));
    assert!(client.server.is_idle());
}

#[test]
fn s6_9_2_windows_become_negative() {
    let mut client = Client::new();
    let stream = client.get(1);
    head(&mut client, stream);
    assert!(client.server.data(stream, vec![1; 100].into(), false).is_empty());
    client.setting(4, 10);
    client.server.ready(stream);
    assert_eq!((client.server.next_sender(), client.server.room(stream)), (None, 0));
    client.window(1, 90);
    assert_eq!(client.server.next_sender(), None, "0");
    client.window(1, 1);
    assert_eq!(client.server.next_sender(), Some((stream, 1)));
    client.server.ready(stream);
    // A queued stream whose window closes waits, and comes back.
    client.setting(4, 0);
    assert_eq!(client.server.next_sender(), None);
    client.setting(4, 1000);
    assert_eq!(client.server.next_sender(), Some((stream, 991)));
    // The end needs no window.
    client.setting(4, 0);
    assert!(client.server.data(stream, Bytes::new(), true).is_empty() && client.server.is_idle());
}

#[test]
fn data_is_written_in_place() {
    let mut client = Client::new();
    let stream = client.get(1);
    head(&mut client, stream);
    let sent = client.server.data_with(stream, usize::MAX, |text, most| {
        assert_eq!(most, 16_384);
        text.extend_from_slice(b"some");
        false
    });
    assert_eq!(sent, 4);
    assert_eq!(client.server.data_with(stream, 10, |_, _| false), 0);
    assert_eq!(
        client.server.data_with(stream, 3, |text, _| {
            text.extend_from_slice(b"too long");
            false
        }),
        3
    );
    assert_eq!(client.server.data_with(stream, 3, |_, _| true), 0);
    assert_eq!(kinds(&client.frames()), [(0, 0, 4), (0, 0, 3), (0, 1, 0)]);
    assert!(client.server.is_idle());
    assert_eq!(client.server.data_with(stream, 3, |_, _| panic!("gone")), 0);
}

/// The stream was ready, but was sent without its turn.
#[test]
fn a_body_that_has_ended_has_no_turn() {
    let mut client = Client::new();
    let stream = client.post(1);
    head(&mut client, stream);
    client.server.ready(stream);
    assert!(client.server.data(stream, Bytes::from_static(b"all"), true).is_empty());
    assert_eq!((client.server.next_sender(), client.server.is_open(stream)), (None, true));
}

#[test]
fn trailers_end_a_response() {
    let mut client = Client::new();
    let stream = client.get(1);
    head(&mut client, stream);
    let mut fields = Fields::default();
    fields.push(b"X-Sum", b"1");
    client.server.trailers(stream, &fields);
    assert_eq!(client.frames(), [Frame { kind: 1, flags: 5, stream: 1, payload: block(&[("x-sum", "1")]) }]);
    assert!(client.server.is_idle());
}

#[test]
fn a_response_may_come_before_the_end_of_the_request() {
    let mut client = Client::new();
    let stream = client.post(1);
    client.respond(stream, b"done");
    assert!(client.server.is_open(stream) && client.server.is_receiving(stream));
    client.data(1, true, b"late");
    assert!(!client.server.is_open(stream));
    let stream = client.post(3);
    client.respond(stream, b"done");
    client.server.reset(stream, ErrorCode::NO_ERROR);
    assert_eq!(client.resets(), [(3, ErrorCode::NO_ERROR)]);
}

/// Responds to a request whose body is not wanted, and takes the output so far.
fn responded(client: &mut Client, number: u32, before: usize) -> StreamId {
    let stream = client.post(number);
    (0..before).for_each(|_| client.data(number, false, &[1; 16 << 10]));
    client.respond(stream, b"done");
    client.frames();
    client.take();
    client.server.discard(stream, client.now);
    stream
}

#[test]
fn s8_1_the_rest_of_a_request_is_dropped_within_bounds() {
    // The request reaches its end: the stream has ended like any other.
    let mut client = Client::new();
    let stream = responded(&mut client, 1, 0);
    client.data(1, false, &[1; 16 << 10]);
    client.data(1, true, &[1; 100]);
    assert!(!client.server.is_open(stream) && client.frames().is_empty() && client.take().is_empty());
    assert_eq!(client.server.deadline(), None);

    // The request is longer than the limit. Frames in flight are then ignored.
    let stream = responded(&mut client, 3, 0);
    (0..16).for_each(|_| client.data(3, false, &[1; 16 << 10]));
    assert!(client.server.is_open(stream) && client.resets().is_empty());
    client.data(3, false, b"one more");
    assert_eq!(client.resets(), [(3, ErrorCode::NO_ERROR)]);
    client.data(3, true, b"late");
    assert!(client.server.is_idle() && client.take().is_empty() && client.result.is_ok());

    // The rest does not arrive.
    let first = responded(&mut client, 5, 0);
    client.check(Duration::from_secs(1));
    responded(&mut client, 7, 0);
    assert_eq!(client.server.deadline(), Some(client.now + Duration::from_secs(1)));
    client.check(Duration::from_secs(1));
    assert_eq!(client.resets(), [(5, ErrorCode::NO_ERROR)]);
    assert!(!client.server.is_open(first) && !client.server.is_drained());
    // The time counts from the response, not from the last bytes; repeated calls do not restart it.
    let late = client.post(9);
    client.now += Duration::from_secs(10);
    client.respond(late, b"done");
    client.frames();
    client.server.discard(late, client.now);
    client.server.discard(late, client.now + Duration::from_secs(1));
    client.check(Duration::from_millis(1900));
    assert_eq!(client.resets(), [(7, ErrorCode::NO_ERROR)]);
    client.check(Duration::from_millis(100));
    assert_eq!(client.resets(), [(9, ErrorCode::NO_ERROR)]);
    responded(&mut client, 11, 0);
    // Nothing is read after GOAWAY.
    client.server.goaway(ErrorCode::NO_ERROR);
    assert_eq!(client.resets(), [(11, ErrorCode::NO_ERROR)]);
    assert!(client.server.is_drained() && client.result.is_ok());
}

#[test]
fn what_is_dropped_opens_the_windows() {
    // No handler took the client's data, and its window is closed.
    let limits = Limits { stream_window: 65_535, connection_window: 100_000, ..Limits::default() };
    let mut client = Client::with(limits);
    let stream = client.post(1);
    (0..3).for_each(|_| client.data(1, false, &[1; 16 << 10]));
    client.data(1, false, &[1; 16_383]);
    assert!(client.frames().is_empty());
    client.respond(stream, b"done");
    client.frames();
    client.server.discard(stream, client.now);
    let updates: Vec<_> =
        client.only(8).iter().map(|update| (update.stream, code(&update.payload).0)).collect();
    assert_eq!(updates, [(1, 256 << 10), (0, 65_535)]);
    // Another stream has all of the connection's window while the rest is dropped.
    (0..10).for_each(|_| client.data(1, false, &[1; 16 << 10]));
    let given: u32 = client.only(8).iter().map(|update| code(&update.payload).0).sum();
    assert!(given >= 100_000, "{given}");
    assert_eq!((client.result, client.resets()), (Ok(()), vec![]));

    // No more than a declared length needs.
    let mut client = Client::with(Limits { stream_window: 65_535, ..Limits::default() });
    client.headers(1, 4, &[&POST[..], &[("content-length", "70000")]].concat());
    let stream = client.streams[0];
    (0..3).for_each(|_| client.data(1, false, &[1; 16 << 10]));
    client.data(1, false, &[1; 16_383]);
    client.respond(stream, b"done");
    client.server.discard(stream, client.now);
    let updates = client.only(8);
    assert_eq!(
        updates.iter().map(|update| (update.stream, code(&update.payload).0)).collect::<Vec<_>>(),
        [(1, 4465)]
    );
    client.data(1, true, &[1; 4465]);
    assert!(client.server.is_idle() && client.result.is_ok());
}

#[test]
fn rfc_9218_order() {
    let mut client = Client::new();
    let update =
        |stream: u32, value: &str| frame(16, 0, 0, &[&stream.to_be_bytes()[..], value.as_bytes()].concat());
    // An update before the stream opens overrides the field.
    client.send(&update(9, "u=0"));
    let priorities = ["", "u=1", "u=5, i", "u=5, i", "u=6"];
    let mut streams = Vec::new();
    for (at, priority) in priorities.iter().enumerate() {
        let fields: Vec<(&str, &str)> = GET.into_iter().chain([("priority", *priority)]).collect();
        client.headers(at as u32 * 2 + 1, 5, &fields);
        streams.push(*client.streams.last().unwrap());
    }
    streams.iter().for_each(|&stream| head(&mut client, stream));
    streams.iter().for_each(|&stream| client.server.ready(stream));
    client.send(&update(1, "u=4"));
    client.send(&update(1, "u=4"));
    let mut order = Vec::new();
    for _ in 0..7 {
        let (stream, room) = client.server.next_sender().unwrap();
        assert_eq!(room, if matches!(stream.number(), 5 | 7) { 16_384 } else { 65_535 });
        order.push(stream.number());
        if order.len() > 3 && order.len() < 6 {
            client.server.ready(stream);
        }
    }
    assert_eq!(order, [9, 3, 1, 5, 7, 5, 7]);
    assert_eq!(client.server.next_sender(), None);
}

#[test]
fn stalled_streams_are_reset() {
    let limits = Limits::default();
    let mut client = Client::with(limits.clone());
    client.setting(4, 0);
    let stream = client.get(1);
    let idle = client.get(3);
    head(&mut client, stream);
    head(&mut client, idle);
    client.server.ready(stream);
    client.take();
    client.check(Duration::from_secs(1));
    // A byte now and then is no progress.
    for _ in 0..10 {
        client.check(limits.stall_timeout / 10);
        client.window(1, 1);
        if let Some((stream, 1)) = client.server.next_sender() {
            assert!(client.server.data(stream, Bytes::from_static(b"x"), false).is_empty());
            client.server.ready(stream);
        }
    }
    client.check(limits.stall_timeout / 10);
    assert_eq!(client.take(), [Seen::Reset { stream: 1, code: ErrorCode::CANCEL, by_client: false }]);
    assert_eq!((client.resets(), client.server.streams()), (vec![(1, ErrorCode::CANCEL)], 1));
}

/// Returns the frames for a kept body, sent by one call or by two.
fn kept_twice(by_one: bool, table_size: Option<u32>) -> (Vec<Frame>, bool) {
    let mut fields = Fields::default();
    fields.push(b"Content-Type", b"text/plain");
    fields.push(b"X-Long", &[b'x'; 300]);
    let (fields, kept) = (fields.freeze(), Kept::new(Bytes::from_static(b"Hello, World")));
    let mut client = Client::new();
    table_size.into_iter().for_each(|size| client.setting(1, size));
    client.frames();
    let mut short = false;
    for id in [1, 3, 5] {
        let stream = client.get(id);
        if by_one && client.server.kept(stream, 200, &fields, &kept, DATE) {
            short = true;
            continue;
        }
        assert!(client.server.head(stream, 200, &fields, DATE, Some(12), false));
        assert!(client.server.data(stream, kept.body().clone(), true).is_empty());
    }
    assert!(client.server.is_idle());
    (client.frames(), short)
}

#[test]
fn a_kept_body_is_sent_as_any_other() {
    let (frames, short) = kept_twice(true, None);
    assert!(short);
    assert_eq!(frames, kept_twice(false, None).0);
    // Without a table the date is a literal each time.
    let (frames, short) = kept_twice(true, Some(0));
    assert!(!short);
    assert_eq!(frames, kept_twice(false, Some(0)).0);
}

#[test]
fn a_kept_body_waits_for_its_window_and_is_sent_once() {
    let mut client = Client::new();
    let (none, kept) = (Fields::default().freeze(), Kept::new(Bytes::from_static(b"Hello, World")));
    client.setting(4, 11);
    let first = client.get(1);
    assert!(client.server.head(first, 200, &none, DATE, None, true));
    let second = client.get(3);
    assert!(!client.server.kept(second, 200, &none, &kept, DATE), "12 bytes do not fit into a window of 11");
    client.setting(4, 12);
    assert!(client.server.kept(second, 200, &none, &kept, DATE));
    assert!(!client.server.kept(second, 200, &none, &kept, DATE), "it is gone");
    let mut more = Fields::default();
    more.push(b"X-Request-Id", b"1");
    let third = client.get(5);
    assert!(!client.server.kept(third, 200, &more, &kept, DATE), "fields of this response alone");
}
