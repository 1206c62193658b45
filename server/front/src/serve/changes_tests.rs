//! Tests the changes on releases of a folder without an app.

use super::*;
use crate::release::tests::releases_of;
use control::changes::SetOrder;
use settings::{Bind, ErrorLog as Target, LogFormat, Settings};
use std::path::Path;

const CALLER: ControlCaller = ControlCaller::User(Some(4_000_000_001));

fn changes() -> (SettingChanges, Rc<Releases>) {
    let mut settings = Settings::defaults(Path::new("/"));
    settings.binds = vec![Bind::tcp("127.0.0.1", 0)];
    let releases = Rc::new(releases_of(Rc::new(RefCell::new(settings))));
    let log = Arc::new(ErrorLog::open(&Target::Stderr, LogFormat::Combined).unwrap());
    (SettingChanges::new(&releases, &log), releases)
}

fn order(value: &str, time: Option<&str>, dry_run: bool) -> CheckedSet {
    let values = vec![format!("limits.max_body={value}")];
    SetOrder { values, time: time.map(str::to_owned), why: Some("because".to_owned()), dry_run }
        .check()
        .unwrap()
}

#[test]
fn changes_are_tried_made_and_taken_back() {
    let (changes, releases) = changes();
    let body = || releases.settings().limits.max_body;
    let before = body();
    let tried = changes.set(order("7MiB", None, true), CALLER).unwrap();
    assert_eq!(
        (tried.change.values[0].new.as_str(), tried.change.values[0].old_source.as_str()),
        ("7MiB", "default")
    );
    assert!(changes.report().changes.is_empty() && body() == before, "a dry run changes nothing");
    assert!(
        matches!(changes.set(order("much", None, false), CALLER), Err(OrderError::Invalid(why)) if why.contains("max_body=much"))
    );
    assert!(changes.report().changes.is_empty());
    changes.set(order("7MiB", None, false), CALLER).unwrap();
    let second = changes.set(order("8MiB", Some("1h"), false), CALLER).unwrap();
    assert!(second.change.values[0].old_source.starts_with("set by uid 4000000001 at 20"));
    assert_eq!((body(), changes.described().len()), (Some(8 << 20), 2));
    changes.undo(&UndoOrder { change: Some(1), dry_run: true }, CALLER).unwrap();
    assert_eq!(changes.described().len(), 2);
    changes.undo(&UndoOrder { change: Some(1), dry_run: false }, CALLER).unwrap();
    assert_eq!(body(), Some(8 << 20), "the other change stays in force");
    let undone = changes.undo(&UndoOrder::default(), CALLER).unwrap();
    assert_eq!((undone.restored[0].old.as_str(), body()), ("8MiB", before));
    assert!(matches!(changes.undo(&UndoOrder::default(), CALLER), Err(OrderError::Conflict(_))));
}

#[test]
fn another_process_takes_the_changes_over_but_not_those_that_do_not_fit() {
    let (old, _) = changes();
    old.set(order("7MiB", None, false), CALLER).unwrap();
    old.set(order("8MiB", Some("1s"), false), CALLER).unwrap();
    let written = serde_json::to_string(&old.list()).unwrap();
    let (new, releases) = changes();
    new.adopt(serde_json::from_str(&written).unwrap());
    assert_eq!((releases.settings().limits.max_body, new.list()), (Some(8 << 20), old.list()));
    let (other, releases) = changes();
    other.adopt(serde_json::from_str(&written.replace("8MiB", "much")).unwrap());
    assert_eq!(releases.settings().limits.max_body, Some(7 << 20));
    let ended = other.report().changes[1].end.clone().unwrap();
    assert!(ended.how.contains("limits.max_body=much"), "{}", ended.how);
}

#[test]
fn a_change_ends_when_its_time_is_over() {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build_local(Default::default()).unwrap();
    runtime.block_on(async {
        let (changes, releases) = changes();
        let mut settings = releases.watch_settings();
        let before = releases.settings().limits.max_body;
        let task = net::task::spawn_local(changes.clone().follow_time());
        changes.set(order("7MiB", Some("1s"), false), CALLER).unwrap();
        let restored = settings.wait_for(|settings| settings.limits.max_body == before);
        assert!(tokio::time::timeout(Duration::from_millis(100), restored).await.is_err(), "it lasts");
        let restored = settings.wait_for(|settings| settings.limits.max_body == before);
        tokio::time::timeout(Duration::from_secs(30), restored).await.unwrap().unwrap();
        let record = changes.report().changes.remove(0);
        assert_eq!(record.end.map(|end| end.how).as_deref(), Some("expired"));
        task.abort();
    });
}
