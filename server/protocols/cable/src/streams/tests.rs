//! Streams against a simple model that keeps everything.

use super::*;
use proptest::prelude::*;

const BOUNDS: HistoryBounds = HistoryBounds { time: 60_000, messages: 5, bytes: 1 << 20 };

fn publish(table: &mut StreamTable, name: &str, now: u64) -> u64 {
    table.publish(name, "1".into(), now, &mut |_, _| {})
}

fn offsets(found: Option<Vec<Arc<StreamMessage>>>) -> Option<Vec<u64>> {
    found.map(|messages| messages.iter().map(|message| message.offset).collect())
}

fn at(offset: u64) -> StreamPosition {
    StreamPosition { epoch: "e".to_owned(), offset }
}

#[test]
fn a_position_within_the_history_is_resumed() {
    let mut table = StreamTable::new("e", BOUNDS, 0);
    (1..=7).for_each(|now| _ = publish(&mut table, "room", now));
    assert_eq!(offsets(table.resume("room", Some(&at(7)), None)), Some(vec![]));
    assert_eq!(offsets(table.resume("room", Some(&at(5)), None)), Some(vec![6, 7]));
    assert_eq!(offsets(table.resume("room", Some(&at(2)), None)), Some(vec![3, 4, 5, 6, 7]));
    assert_eq!(offsets(table.resume("room", Some(&at(1)), None)), None, "message 2 is no longer kept");
    assert_eq!(offsets(table.resume("room", Some(&at(8)), None)), None, "never sent");
    let other = StreamPosition { epoch: "f".to_owned(), offset: 7 };
    assert_eq!(offsets(table.resume("room", Some(&other), None)), None);
    assert_eq!(offsets(table.resume("room", None, None)), Some(vec![]));
    assert_eq!(offsets(Some(table.kept("room"))), Some(vec![3, 4, 5, 6, 7]));
    assert_eq!(offsets(Some(table.kept("other"))), Some(vec![]));
}

#[test]
fn a_time_within_the_history_is_resumed() {
    let mut table = StreamTable::new("e", BOUNDS, 10_500);
    (11..=17).for_each(|second| _ = publish(&mut table, "room", second * 1000));
    assert_eq!(offsets(table.resume("room", None, Some(16))), Some(vec![6, 7]));
    assert_eq!(offsets(table.resume("room", None, Some(13))), Some(vec![3, 4, 5, 6, 7]));
    assert_eq!(offsets(table.resume("room", None, Some(12))), None, "message 2 is no longer kept");
    assert_eq!(offsets(table.resume("other", None, Some(11))), Some(vec![]));
    assert_eq!(offsets(table.resume("other", None, Some(10))), None, "before the start");
}

#[test]
fn an_idle_stream_is_forgotten_and_begins_above() {
    let mut table = StreamTable::new("e", BOUNDS, 0);
    assert_eq!(table.listen("room", 0, 0), 0);
    assert_eq!(publish(&mut table, "room", 1), 1);
    table.expire(61_000);
    table.unlisten("room", 0, 61_000);
    table.expire(120_999);
    assert_eq!(offsets(table.resume("room", Some(&at(1)), None)), Some(vec![]), "nothing was missed");
    table.expire(121_000);
    assert!(table.is_empty() && table.bytes() == 0);
    assert_eq!(offsets(table.resume("room", Some(&at(1)), None)), None);
    assert_eq!(publish(&mut table, "other", 122_000), 2);
    assert_eq!(
        offsets(table.resume("other", Some(&at(1)), None)),
        Some(vec![2]),
        "not mistaken for the first"
    );
}

#[test]
fn a_position_is_kept_for_the_time_of_the_history() {
    let mut table = StreamTable::new("e", BOUNDS, 0);
    assert_eq!(table.position("room", 0), 0);
    assert_eq!(publish(&mut table, "room", 1), 1);
    assert_eq!(table.position("room", 50_000), 1);
    table.expire(100_000);
    assert_eq!(offsets(table.resume("room", Some(&at(1)), None)), Some(vec![]), "asked 50 s ago");
    assert_eq!(publish(&mut table, "room", 100_000), 2);
    assert_eq!(offsets(table.resume("room", Some(&at(1)), None)), Some(vec![2]));
    table.expire(160_000);
    table.expire(160_001);
    assert!(table.is_empty() && table.bytes() == 0, "{table:?}");
}

#[test]
fn the_oldest_messages_make_room() {
    let bounds = HistoryBounds { bytes: 10 * (1 + MESSAGE + ENTRY) + 2 * STREAM, messages: 100, ..BOUNDS };
    let mut table = StreamTable::new("e", bounds, 0);
    (0..10).for_each(|now| _ = publish(&mut table, "a", now));
    (10..15).for_each(|now| _ = publish(&mut table, "b", now));
    assert_eq!(offsets(table.resume("a", Some(&at(5)), None)).map(|kept| kept.len()), Some(5));
    assert_eq!(offsets(table.resume("a", Some(&at(4)), None)), None);
    (0..5_000).for_each(|number| _ = publish(&mut table, &format!("s{number}"), 20));
    assert!(
        table.bytes() <= bounds.bytes && table.len() < 20,
        "{} bytes, {} streams",
        table.bytes(),
        table.len()
    );
}

#[test]
fn offsets_from_outside_mean_the_same_on_all_servers() {
    let insert = |table: &mut StreamTable, name: &str, offset: u64| {
        table.insert(name, "1".into(), (offset, offset), offset, &mut |_, _| {})
    };
    let tables = [3, 5].map(|begun| {
        let mut table = StreamTable::new("own", BOUNDS, 0);
        table.begin_epoch("e", begun - 1, begun - 1, begun);
        (begun..=9)
            .for_each(|offset| _ = insert(&mut table, if offset % 2 == 0 { "even" } else { "odd" }, offset));
        table
    });
    for table in &tables {
        assert_eq!(offsets(table.resume("odd", Some(&at(5)), None)), Some(vec![7, 9]));
        assert_eq!(offsets(table.resume("even", Some(&at(8)), None)), Some(vec![]));
        assert_eq!(offsets(table.resume("odd", Some(&at(11)), None)), Some(vec![]), "not arrived yet");
        assert_eq!(offsets(table.resume("none", Some(&at(4)), None)), Some(vec![]));
        let own = StreamPosition { epoch: "own".to_owned(), offset: 5 };
        assert_eq!(offsets(table.resume("odd", Some(&own), None)), None);
    }
    let [early, mut late] = tables;
    assert_eq!(offsets(early.resume("odd", Some(&at(3)), None)), Some(vec![5, 7, 9]));
    assert_eq!(offsets(late.resume("odd", Some(&at(3)), None)), None, "it does not know what was before 5");
    assert_eq!(offsets(late.resume("none", Some(&at(3)), None)), None);
    assert_eq!(late.listen("odd", 0, 10), 9);
    assert!(!insert(&mut late, "odd", 9), "no message twice");
    late.begin_epoch("f", 100, 20, 20);
    assert_eq!(offsets(late.resume("odd", Some(&at(9)), None)), None);
    assert_eq!(offsets(late.resume("odd", None, Some(1))), Some(vec![]), "a second later");
    let mut told = Vec::new();
    assert!(late.insert("odd", "1".into(), (101, 21), 21, &mut |thread, message| {
        told.push((thread, message.offset))
    }));
    assert_eq!(told, [(0, 101)], "listeners stay");
    late.unlisten("odd", 0, 22);
    late.expire(70_000);
    late.expire(140_000);
    assert!(late.is_empty() && late.bytes() == 0);
}

#[test]
fn messages_of_several_streams_in_one_millisecond_have_an_order() {
    let mut old = StreamTable::new("e", BOUNDS, 0);
    for name in ["b", "a", "c", "a", "b"] {
        publish(&mut old, name, 7);
    }
    let order = |table: &StreamTable| {
        let mut all: Vec<_> = ["a", "b", "c"].into_iter().flat_map(|name| table.kept(name)).collect();
        all.sort_by_key(|message| message.number);
        all.iter().map(|message| format!("{}{}", message.stream, message.offset)).collect::<Vec<_>>()
    };
    assert_eq!(order(&old), ["b1", "a1", "c1", "a2", "b2"]);
    let mut new = StreamTable::new("f", BOUNDS, 8);
    assert!(new.adopt(old.record(), 8));
    publish(&mut new, "a", 7);
    assert_eq!(order(&new), ["b1", "a1", "c1", "a2", "b2", "a3"]);
}

#[test]
fn a_table_is_passed_on() {
    let mut old = StreamTable::new("e", BOUNDS, 10_000);
    (1..=7).for_each(|now| _ = publish(&mut old, "room", 10_000 + now));
    publish(&mut old, "other", 10_003);
    old.listen("quiet", 0, 10_004);
    let text = serde_json::to_string(&old.record()).unwrap();
    let mut new = StreamTable::new("f", BOUNDS, 20_000);
    assert!(new.adopt(serde_json::from_str(&text).unwrap(), 20_000));
    assert!(!new.adopt(serde_json::from_str(&text).unwrap(), 20_000), "once");
    for (name, offset) in
        [("room", 7), ("room", 3), ("room", 2), ("room", 1), ("room", 8), ("other", 0), ("other", 1)]
    {
        let resume = |table: &StreamTable| offsets(table.resume(name, Some(&at(offset)), None));
        assert_eq!(resume(&new), resume(&old), "{name} {offset}");
    }
    assert_eq!(offsets(new.resume("room", None, Some(10))), offsets(old.resume("room", None, Some(10))));
    assert_eq!((new.listen("room", 0, 20_001), publish(&mut new, "room", 20_001)), (7, 8));
    let summary = new.busiest(1).remove(0);
    assert_eq!((summary.published, summary.kept), (8, 5));
    let small = HistoryBounds { messages: 2, ..BOUNDS };
    let mut few = StreamTable::new("f", small, 20_000);
    assert!(few.adopt(old.record(), 20_000));
    assert_eq!(offsets(few.resume("room", Some(&at(5)), None)), Some(vec![6, 7]));
    assert_eq!(offsets(few.resume("room", Some(&at(4)), None)), None);
    new.unlisten("room", 0, 20_002);
    for table in [&mut new, &mut few] {
        table.expire(80_002);
        table.expire(140_004);
        assert!(table.is_empty() && table.bytes() == 0, "{table:?}");
    }
}

#[derive(Debug, Clone)]
enum Step {
    Publish(u8),
    Listen(u8, u16),
    Unlisten(u8, u16),
    Wait(u64),
    /// A client that knows a message of this number, counted from the last, resumes.
    Resume(u8, usize),
    Since(u8, u64),
    Position(u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0u8..4).prop_map(Step::Publish),
        1 => (0u8..4, 0u16..3).prop_map(|(name, thread)| Step::Listen(name, thread)),
        1 => (0u8..4, 0u16..3).prop_map(|(name, thread)| Step::Unlisten(name, thread)),
        1 => (0u64..3_000).prop_map(Step::Wait),
        2 => (0u8..4, 0usize..12).prop_map(|(name, back)| Step::Resume(name, back)),
        1 => (0u8..4, 0u64..8).prop_map(|(name, back)| Step::Since(name, back)),
        1 => (0u8..4).prop_map(Step::Position),
    ];
    prop::collection::vec(step, 0..120)
}

proptest! {
    /// Whatever the bounds drop, a resumed client gets exactly the missed messages, or none and the reason; listeners get
    /// each message after they have joined; and all memory is free at the end.
    #[test]
    fn nothing_is_missed_or_doubled(
        steps in steps(), time in 0u64..6_000, messages in 0usize..6, bytes in 0usize..3_000,
    ) {
        let bounds = HistoryBounds { time, messages, bytes };
        let mut table = StreamTable::new("e", bounds, 1_000_000);
        let mut now = 1_000_000;
        let mut sent: Vec<Vec<(u64, u64)>> = vec![Vec::new(); 4];
        let mut listening: HashMap<(u8, u16), u32> = HashMap::new();
        for step in steps {
            match step {
                Step::Publish(name) => {
                    let mut told = Vec::new();
                    let offset =
                        table.publish(&name.to_string(), "1".into(), now, &mut |thread, _| told.push(thread));
                    let model = &mut sent[usize::from(name)];
                    prop_assert!(model.last().is_none_or(|(last, _)| *last < offset));
                    model.push((offset, now));
                    told.sort();
                    let mut expected: Vec<u16> =
                        listening.keys().filter(|(known, _)| *known == name).map(|(_, thread)| *thread).collect();
                    expected.sort();
                    prop_assert_eq!(told, expected);
                }
                Step::Listen(name, thread) => {
                    let offset = table.listen(&name.to_string(), thread, now);
                    prop_assert!(sent[usize::from(name)].last().is_none_or(|(last, _)| *last <= offset));
                    *listening.entry((name, thread)).or_default() += 1;
                }
                Step::Unlisten(name, thread) => {
                    table.unlisten(&name.to_string(), thread, now);
                    if let Some(count) = listening.get_mut(&(name, thread)) {
                        *count -= 1;
                        if *count == 0 {
                            listening.remove(&(name, thread));
                        }
                    }
                }
                Step::Position(name) => {
                    let offset = table.position(&name.to_string(), now);
                    prop_assert!(sent[usize::from(name)].last().is_none_or(|(last, _)| *last <= offset));
                }
                Step::Wait(ms) => {
                    now += ms;
                    table.expire(now);
                }
                Step::Resume(name, back) => {
                    let model = &sent[usize::from(name)];
                    let Some(from) = model.len().checked_sub(back + 1) else { continue };
                    let found = offsets(table.resume(&name.to_string(), Some(&at(model[from].0)), None));
                    let missed: Vec<u64> = model[from + 1..].iter().map(|(offset, _)| *offset).collect();
                    if let Some(found) = found {
                        prop_assert_eq!(found, missed);
                    } else {
                        // Only what a bound has dropped is refused.
                        let fits = missed.len() <= messages && bytes > 2_900;
                        let recent = model[from].1 + time > now;
                        prop_assert!(!(fits && recent && sent.iter().flatten().count() < 8));
                    }
                }
                Step::Since(name, back) => {
                    let since = now / 1000 - back;
                    let model = &sent[usize::from(name)];
                    if let Some(found) = offsets(table.resume(&name.to_string(), None, Some(since))) {
                        let expected: Vec<u64> = model.iter().filter(|(_, at)| *at >= since * 1000).map(|(offset, _)| *offset).collect();
                        prop_assert_eq!(found, expected);
                    }
                }
            }
        }
        listening.iter().for_each(|((name, thread), count)| {
            (0..*count).for_each(|_| table.unlisten(&name.to_string(), *thread, now));
        });
        table.expire(now + time);
        prop_assert!(table.is_empty(), "{table:?}");
        prop_assert_eq!(table.bytes(), 0);
    }
}
