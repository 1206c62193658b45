//! Members against a simple model that keeps each session with its time.

use super::*;
use proptest::prelude::*;

const BOUNDS: PresenceBounds = PresenceBounds { expiry: 15_000, members: 3, bytes: 1 << 20 };

fn table() -> PresenceTable {
    PresenceTable::new(BOUNDS)
}

fn joining(id: &str, session: SessionKey) -> PresenceJoin {
    PresenceJoin { stream: "room".into(), id: id.into(), info: "{}".into(), session, is_vouched: true }
}

/// The events, in short.
#[derive(Default)]
struct Told(Vec<String>);

impl Told {
    fn hear(&mut self, stream: &str, payload: &str) {
        let event: serde_json::Value =
            serde_json::from_str(presence_event::event_of(payload).unwrap()).unwrap();
        self.0.push(format!(
            "{stream} {} {}",
            event["type"].as_str().unwrap(),
            event["id"].as_str().unwrap()
        ));
    }

    fn join(&mut self, table: &mut PresenceTable, id: &str, session: SessionKey) -> Result<(), JoinRefusal> {
        table.join(&joining(id, session), &mut |stream, payload| self.hear(stream, &payload))
    }

    fn leave(&mut self, table: &mut PresenceTable, session: SessionKey) -> bool {
        table.leave("room", session, &mut |stream, payload| self.hear(stream, &payload))
    }

    fn lose(&mut self, table: &mut PresenceTable, session: SessionKey, now: u64) {
        table.lose("room", session, now, &mut |stream, payload| self.hear(stream, &payload));
    }

    fn expire(&mut self, table: &mut PresenceTable, now: u64) {
        table.expire(now, &mut |stream, payload| self.hear(stream, &payload));
    }

    fn taken(&mut self) -> Vec<String> {
        std::mem::take(&mut self.0)
    }
}

#[test]
fn two_sessions_are_one_member() {
    let (mut table, mut told) = (table(), Told::default());
    told.join(&mut table, "ann", 1).unwrap();
    told.join(&mut table, "ann", 2).unwrap();
    told.join(&mut table, "ann", 2).unwrap();
    assert_eq!((table.total("room"), table.len()), (1, 1));
    assert!(told.leave(&mut table, 1));
    assert!(!told.leave(&mut table, 1));
    assert_eq!(told.taken(), ["room join ann"]);
    assert!(told.leave(&mut table, 2));
    assert_eq!(told.taken(), ["room leave ann"]);
    assert!(table.is_empty() && table.bytes == 0 && table.streams.is_empty());
}

#[test]
fn a_lost_session_stays_for_a_while() {
    let (mut table, mut told) = (table(), Told::default());
    told.join(&mut table, "ann", 1).unwrap();
    told.lose(&mut table, 1, 1_000);
    assert!(!table.is_due(15_999));
    told.expire(&mut table, 15_999);
    assert_eq!((told.taken(), table.total("room")), (vec!["room join ann".to_owned()], 1));
    told.join(&mut table, "ann", 2).unwrap();
    told.expire(&mut table, 16_000);
    assert_eq!((told.taken(), table.total("room")), (vec![], 1), "the new session has taken its place");
    // So it leaves at once when it says so.
    assert!(told.leave(&mut table, 2));
    assert_eq!(told.taken(), ["room leave ann"]);
    told.join(&mut table, "ann", 3).unwrap();
    told.lose(&mut table, 3, 20_000);
    told.join(&mut table, "ann", 3).unwrap();
    told.lose(&mut table, 3, 30_000);
    told.expire(&mut table, 44_999);
    assert_eq!(told.taken(), ["room join ann"], "lost again since");
    told.expire(&mut table, 45_000);
    assert_eq!(told.taken(), ["room leave ann"]);
    assert!(table.is_empty() && table.bytes == 0 && table.due.is_empty());
}

#[test]
fn a_session_is_one_member_of_a_stream() {
    let (mut table, mut told) = (table(), Told::default());
    for (id, session) in [("ann", 1), ("bob", 2), ("eve", 3)] {
        told.join(&mut table, id, session).unwrap();
    }
    told.taken();
    assert_eq!(told.join(&mut table, "zed", 4), Err(JoinRefusal::Full(3)));
    told.join(&mut table, "zed", 3).unwrap();
    assert_eq!(told.taken(), ["room leave eve", "room join zed"], "there is room, because it leaves");
    assert_eq!(table.members("room").map(|(id, _)| id).collect::<Vec<_>>(), ["ann", "bob", "zed"]);
}

#[test]
fn bounds_refuse_and_change_nothing() {
    let (mut table, mut told) = (table(), Told::default());
    let mut refusal = |join: PresenceJoin| {
        let refused = table.join(&join, &mut |stream, payload| told.hear(stream, &payload));
        assert!(table.bytes == 0 && table.streams.is_empty());
        refused.unwrap_err()
    };
    let usual = joining("ann", 1);
    assert_eq!(refusal(PresenceJoin { stream: "".into(), ..usual.clone() }), JoinRefusal::Name);
    assert_eq!(refusal(PresenceJoin { id: "".into(), ..usual.clone() }), JoinRefusal::Id);
    assert_eq!(refusal(PresenceJoin { id: "x".repeat(257).into(), ..usual.clone() }), JoinRefusal::Id);
    assert_eq!(refusal(PresenceJoin { info: "1".repeat(4097).into(), ..usual.clone() }), JoinRefusal::Info);
    let mut small = PresenceTable::new(PresenceBounds { bytes: 1_000, ..BOUNDS });
    told.join(&mut small, "ann", 1).unwrap();
    let before = small.bytes;
    let big = PresenceJoin { info: "1".repeat(900).into(), ..joining("bob", 2) };
    assert_eq!(small.join(&big, &mut |_, _| panic!("refused")), Err(JoinRefusal::Memory));
    let big = PresenceJoin { info: "1".repeat(900).into(), ..joining("ann", 1) };
    assert_eq!(small.join(&big, &mut |_, _| panic!("refused")), Err(JoinRefusal::Memory));
    assert_eq!((small.bytes, small.total("room")), (before, 1));
    let mut none = PresenceTable::new(PresenceBounds { members: 0, ..BOUNDS });
    assert_eq!(told.join(&mut none, "ann", 1), Err(JoinRefusal::Full(0)));
}

#[test]
fn a_claim_does_not_become_a_vouched_member() {
    let (mut table, mut told) = (table(), Told::default());
    told.join(&mut table, "ann", 1).unwrap();
    let claim = |session| PresenceJoin { is_vouched: false, info: "\"x\"".into(), ..joining("ann", session) };
    assert_eq!(table.join(&claim(2), &mut |_, _| {}), Err(JoinRefusal::Taken));
    table.join(&claim(1), &mut |_, _| {}).unwrap();
    assert_eq!(table.members("room").collect::<Vec<_>>(), [("ann", "{}")], "the app's info stays");
    let other = PresenceJoin { id: "bob".into(), ..claim(3) };
    table.join(&other, &mut |_, _| {}).unwrap();
    told.join(&mut table, "bob", 4).unwrap();
    assert_eq!(table.members("room").nth(1), Some(("bob", "{}")), "the app's word is stronger");
    assert_eq!(table.join(&PresenceJoin { session: 5, ..other }, &mut |_, _| {}), Err(JoinRefusal::Taken));
}

#[test]
fn lost_sessions_are_bounded() {
    let (mut table, mut told) = (table(), Told::default());
    told.join(&mut table, "ann", 0).unwrap();
    // Sessions that are there at the same time, and are lost together.
    (1..=100).for_each(|session| told.join(&mut table, "ann", session).unwrap());
    (1..=100).for_each(|session| told.lose(&mut table, session, session));
    assert_eq!(table.streams["room"].ids.len(), 1 + MOST_LOST);
    told.lose(&mut table, 0, 101);
    told.expire(&mut table, 15_100);
    assert_eq!(table.total("room"), 1);
    told.expire(&mut table, 15_101);
    assert_eq!(told.taken(), ["room join ann", "room leave ann"]);
    assert_eq!(table.bytes, 0);
}

#[test]
fn a_record_goes_on() {
    let (mut old, mut told) = (table(), Told::default());
    told.join(&mut old, "ann", 1).unwrap();
    told.join(&mut old, "ann", 2).unwrap();
    told.join(&mut old, "bob", 3).unwrap();
    told.taken();
    let text = serde_json::to_string(&old.record()).unwrap();
    let mut new = PresenceTable::new(PresenceBounds { expiry: 0, ..BOUNDS });
    new.adopt(serde_json::from_str(&text).unwrap(), 100);
    assert_eq!(new.members("room").map(|(id, _)| id).collect::<Vec<_>>(), ["ann", "bob"]);
    told.join(&mut new, "ann", 2).unwrap();
    told.expire(&mut new, 10_099);
    assert_eq!(told.taken(), Vec::<String>::new(), "clients have time to come along");
    told.expire(&mut new, 10_100);
    assert_eq!(told.taken(), ["room leave bob"]);
    assert!(told.leave(&mut new, 2));
    assert!(new.is_empty() && new.bytes == 0);
}

#[derive(Debug, Clone)]
enum Step {
    Join(u8, u64),
    Leave(u64),
    Lose(u64),
    Wait(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (0u8..5, 0u64..8).prop_map(|(id, session)| Step::Join(id, session)),
        1 => (0u64..8).prop_map(Step::Leave),
        2 => (0u64..8).prop_map(Step::Lose),
        2 => (1u64..9_000).prop_map(Step::Wait),
    ];
    prop::collection::vec(step, 0..60)
}

proptest! {
    /// The events alone give the members; they alternate; and each session that is there, or was lost a moment ago, keeps its member.
    #[test]
    fn events_and_members_agree(steps in steps()) {
        let (mut table, mut told, mut now) = (table(), Told::default(), 0);
        let mut seen = std::collections::BTreeSet::new();
        // Sessions that are there, with their member.
        let mut there: HashMap<u64, String> = HashMap::new();
        for step in steps {
            match step {
                Step::Join(id, session) => {
                    let id = format!("m{id}");
                    if told.join(&mut table, &id, session).is_ok() {
                        there.insert(session, id);
                    }
                }
                Step::Leave(session) => {
                    told.leave(&mut table, session);
                    there.remove(&session);
                }
                Step::Lose(session) => {
                    told.lose(&mut table, session, now);
                    there.remove(&session);
                }
                Step::Wait(time) => {
                    now += time;
                    told.expire(&mut table, now);
                }
            }
            for event in told.taken() {
                let mut words = event.split(' ').skip(1);
                let (kind, id) = (words.next().unwrap(), words.next().unwrap().to_owned());
                prop_assert!(if kind == "join" { seen.insert(id) } else { seen.remove(&id) }, "{}", event);
            }
            let members: std::collections::BTreeSet<String> =
                table.members("room").map(|(id, _)| id.to_owned()).collect();
            prop_assert_eq!(&members, &seen);
            prop_assert!(members.len() <= BOUNDS.members);
            prop_assert!(there.values().all(|id| members.contains(id)), "{:?} {:?}", there, members);
        }
        let live: std::collections::BTreeSet<String> = there.values().cloned().collect();
        told.expire(&mut table, now + BOUNDS.expiry);
        prop_assert_eq!(live, table.members("room").map(|(id, _)| id.to_owned()).collect());
        for session in 0..8 {
            told.leave(&mut table, session);
        }
        prop_assert_eq!((table.bytes, table.len(), table.due.len()), (0, 0, 0));
    }
}
