//! Tests of the orders, and of the list of changes against a simple model.

use super::*;
use proptest::prelude::*;

fn order(values: &[&str]) -> SetOrder {
    SetOrder { values: values.iter().map(|&value| value.to_owned()).collect(), ..SetOrder::default() }
}

fn change(key: &str, value: u64, time: Option<u64>, now_ms: u64) -> NewChange {
    let order = CheckedSet {
        values: vec![(key.to_owned(), value.to_string())],
        time: time.map(Duration::from_millis),
        why: None,
        dry_run: false,
    };
    NewChange { order, by: "root".to_owned(), now_ms, text: String::new() }
}

#[test]
fn an_order_names_what_is_wrong() {
    let good = SetOrder {
        time: Some("10m".to_owned()),
        why: Some(" large uploads ".to_owned()),
        ..order(&["limits.max_body = 20MiB", "cache.status=a=b"])
    };
    let checked = good.check().unwrap();
    assert_eq!(checked.values[0], ("limits.max_body".to_owned(), "20MiB".to_owned()));
    assert_eq!(checked.values[1], ("cache.status".to_owned(), "a=b".to_owned()));
    assert_eq!(
        (checked.time, checked.why.as_deref()),
        (Some(Duration::from_secs(600)), Some("large uploads"))
    );
    let long = format!("a={}", "x".repeat(5000));
    let many: Vec<String> = (0..10_000).map(|number| format!("k{number}=1")).collect();
    let much: Vec<String> = (0..10).map(|number| format!("k{number}={}", "x".repeat(4000))).collect();
    for (wrong, problem) in [
        (order(&[]), "no setting is named"),
        (order(&["limits.max_body"]), "limits.max_body: expected KEY=VALUE"),
        (order(&["=1"]), "=1: expected KEY=VALUE"),
        (order(&["a=1", "a=2"]), "a: the key is there twice"),
        (order(&["a=1\0"]), "a=1\\0: expected text without control characters"),
        (order(&[&long]), "a setting has at most 4096 bytes"),
        (SetOrder { values: many, ..SetOrder::default() }, "at most 100 settings, not 10000"),
        (SetOrder { values: much, ..SetOrder::default() }, "and a change 16384"),
        (SetOrder { time: Some("0".to_owned()), ..order(&["a=1"]) }, "for: 0: expected a time"),
        (SetOrder { time: Some("2y".to_owned()), ..order(&["a=1"]) }, "for: 2y: expected a time"),
        (SetOrder { time: Some("366d".to_owned()), ..order(&["a=1"]) }, "for: 366d: expected a time"),
        (SetOrder { why: Some("x".repeat(201)), ..order(&["a=1"]) }, "why: expected at most 200"),
        (SetOrder { why: Some("a\nb".to_owned()), ..order(&["a=1"]) }, "why: expected at most 200"),
    ] {
        let told = wrong.check().unwrap_err();
        assert!(told.contains(problem), "{problem}: {told}");
    }
}

#[test]
fn an_undo_names_what_is_in_force() {
    let mut list = ChangeList::default();
    let why = |result: Result<u64, String>| result.unwrap_err();
    assert_eq!(why(list.undo(None, "root", 0)), "no change is in force");
    list.set(change("a", 1, None, 0)).unwrap();
    list.set(change("a", 2, None, 1)).unwrap();
    assert_eq!(why(list.undo(Some(7), "root", 2)), "there is no change 7; in force: 1, 2");
    assert_eq!(list.undo(Some(1), "amy", 2), Ok(1));
    assert_eq!(why(list.undo(Some(1), "root", 3)), "change 1 has ended: undone by amy; in force: 2");
    assert_eq!((list.winner("a"), list.undo(None, "root", 4)), (Some(2), Ok(2)));
}

#[test]
fn the_list_is_bounded_and_tells_what_was_replaced() {
    let mut list = ChangeList::default();
    for number in 0..500 {
        list.set(change("a", number, None, number)).unwrap();
        assert_eq!(list.winner("a"), Some(number + 1));
        assert!(list.records().count() <= KEPT && list.in_force().count() <= MOST_IN_FORCE);
    }
    assert_eq!((list.records().count(), list.in_force().count()), (KEPT, MOST_IN_FORCE));
    let first = list.records().next().unwrap();
    assert_eq!((first.number, first.end.as_ref().unwrap().how.as_str()), (401, "replaced by change 451"));
    let mut list = ChangeList::default();
    for number in 0..MOST_IN_FORCE as u64 {
        list.set(change(&format!("k{number}"), 1, None, number)).unwrap();
    }
    let before = list.clone();
    assert!(list.set(change("other", 1, None, 99)).unwrap_err().starts_with("50 changes are in force"));
    assert_eq!(list, before, "a refused change leaves nothing");
}

#[test]
fn long_values_are_cut_for_display_only() {
    let mut list = ChangeList::default();
    let number = list.set(change("a", 1, None, 0)).unwrap();
    list.describe(number, vec![ChangedValue { new: "ü".repeat(4000), ..ChangedValue::default() }]);
    assert_eq!(list.get(number).unwrap().values[0].new, format!("{}…", "ü".repeat(LONGEST_SHOWN)));
}

#[derive(Debug, Clone)]
enum Act {
    Set { key: u8, time: Option<u64> },
    Undo(Option<u64>),
    Wait(u64),
    HandOver,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => (0..4_u8, prop::option::of(1..50_u64)).prop_map(|(key, time)| Act::Set { key, time }),
        2 => prop::option::of(0..60_u64).prop_map(Act::Undo),
        2 => (0..40_u64).prop_map(Act::Wait),
        1 => Just(Act::HandOver),
    ]
}

/// The model: number, key, value and end of the changes in force, oldest first.
type Model = Vec<(u64, String, String, Option<u64>)>;

proptest! {
    #[test]
    fn the_latest_change_in_force_wins(acts in prop::collection::vec(act(), 0..200)) {
        let (mut list, mut model, mut now, mut made) = (ChangeList::default(), Model::new(), 0, 0);
        for act in acts {
            match act {
                Act::Set { key, time } => {
                    made += 1;
                    let key = format!("k{key}");
                    prop_assert_eq!(list.set(change(&key, made, time, now)), Ok(made));
                    model.push((made, key, made.to_string(), time.map(|time| now + time)));
                    if model.len() > MOST_IN_FORCE {
                        let hidden = |(index, one): (usize, &(u64, String, String, Option<u64>))| {
                            model[index + 1..].iter().any(|later| later.1 == one.1)
                        };
                        let hidden = model.iter().enumerate().position(hidden).unwrap();
                        model.remove(hidden);
                    }
                }
                Act::Undo(number) => {
                    let wanted = number.or_else(|| model.last().map(|one| one.0));
                    let at = model.iter().position(|one| Some(one.0) == wanted);
                    prop_assert_eq!(list.undo(number, "x", now).ok(), at.map(|at| model.remove(at).0));
                }
                Act::Wait(time) => {
                    now += time;
                    let over: Vec<u64> =
                        model.iter().filter(|one| one.3.is_some_and(|end| end <= now)).map(|one| one.0).collect();
                    model.retain(|one| !over.contains(&one.0));
                    prop_assert_eq!(list.expire(now), over);
                }
                Act::HandOver => {
                    let written = serde_json::to_string(&list).unwrap();
                    list = serde_json::from_str(&written).unwrap();
                }
            }
            for key in 0..4 {
                let key = format!("k{key}");
                let wins = model.iter().rev().find(|one| one.1 == key).map(|one| one.0);
                prop_assert_eq!(list.winner(&key), wins, "{}", key);
            }
            let numbers: Vec<u64> = list.in_force().map(|kept| kept.record.number).collect();
            prop_assert_eq!(numbers, model.iter().map(|one| one.0).collect::<Vec<_>>());
            prop_assert_eq!(list.next_end_ms(), model.iter().filter_map(|one| one.3).min());
            prop_assert!(list.records().count() <= KEPT);
            prop_assert!(list.records().all(|record| record.end.is_none() || record.number <= made));
        }
    }

    #[test]
    fn any_order_is_read_or_refused(json in "[{}\\[\\]\":,a-z0-9/= ]{0,60}") {
        let _ = serde_json::from_str::<SetOrder>(&json).map(|order| order.check());
        let _ = serde_json::from_str::<UndoOrder>(&json);
        let _ = serde_json::from_str::<ChangeList>(&json);
    }

    #[test]
    fn a_checked_order_has_each_key_once(values in prop::collection::vec("[a-c]{0,2}=?\\PC{0,5}", 0..6)) {
        if let Ok(checked) = (SetOrder { values, ..SetOrder::default() }).check() {
            let mut keys: Vec<_> = checked.values.iter().map(|(key, _)| key).collect();
            keys.sort_unstable();
            keys.dedup();
            prop_assert_eq!(keys.len(), checked.values.len());
        }
    }
}
