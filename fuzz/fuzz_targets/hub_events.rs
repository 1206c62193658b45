//! Ids, queries, tokens, updates and questions of clients that listen: no bytes make the parsers panic; an id that is read is written alike; and no message begins
//! an event of its own.
#![no_main]

use cable::connection_token;
use cable::event;
use cable::event_id::{EventId, StreamSet};
use cable::event_query::EventQuery;
use cable::jwt::TokenKey;
use cable::mercure::{MercureQuery, MercureUpdate};
use cable::position_query::PositionQuery;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    if let Ok(query) = EventQuery::parse(input, 8) {
        assert!((1..=8).contains(&query.streams.len()));
    }
    for input in [input.to_vec(), [b"POSITION 20\n", input].concat(), [b"POSITION ", input].concat()] {
        if let Ok(Some(query)) = PositionQuery::parse(&input)
            && input.len() >= query.length()
            && let Ok(set) = query.streams(&input)
        {
            assert!(!set.names().is_empty());
            let offsets = vec![u64::MAX; set.names().len()];
            let text = EventId::text("e", &set, &offsets);
            let read = EventId::parse(&text).expect("it was written");
            assert_eq!(read.positions(&set).expect("it is of these streams").len(), offsets.len());
        }
    }
    let _ = MercureQuery::parse(input, 8);
    let _ = connection_token::in_query(input, b"jid");
    let _ = connection_token::in_protocols(input);
    if let Ok(update) = MercureUpdate::parse(input, "urn:uuid:1") {
        let payload = update.payload();
        assert!(MercureUpdate::has_id(&payload, &update.id));
        assert_eq!(MercureUpdate::of_payload(&payload).as_ref(), Some(&update));
        assert!(update.event().ends_with(b"\n\n"));
    }
    let Ok(text) = std::str::from_utf8(input) else { return };
    let key = TokenKey::new("secret");
    assert!(key.rights(text, 0).is_err() && key.identifiers(text, 0).is_err(), "no input knows the secret");
    if let Some(id) = EventId::parse(text) {
        let _ = id.positions(&StreamSet::new(["a".into()]));
    }
    let sent = event::event("e:00000000:1", None, &event::data(text));
    let sent = std::str::from_utf8(&sent).expect("it is made of texts");
    let body = sent.strip_prefix("id: e:00000000:1\n").and_then(|body| body.strip_suffix("\n\n")).expect("one event");
    assert!(body.split('\n').all(|line| line.starts_with("data: ") && !line.contains('\r')));
});
