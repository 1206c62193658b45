//! Orders of `firebrick set` over the control socket: read or refused, and what is read is bounded.
//! Run with `make fuzz FUZZ=change_orders`.
#![no_main]

use control::changes::{ChangeList, NewChange, SetOrder, UndoOrder};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut list: ChangeList = serde_json::from_slice(bytes).unwrap_or_default();
    if let Ok(order) = serde_json::from_slice::<SetOrder>(bytes)
        && let Ok(order) = order.check()
    {
        assert!(!order.values.is_empty() && order.values.len() <= 100);
        assert!(order.values.iter().all(|(key, value)| !key.is_empty() && !value.contains(char::is_control)));
        let new = NewChange { order, by: "fuzz".to_owned(), now_ms: 1, text: String::new() };
        let number = list.set(new).expect("the list is empty");
        assert_eq!(list.undo(None, "fuzz", 2), Ok(number));
    }
    if let Ok(order) = serde_json::from_slice::<UndoOrder>(bytes) {
        let _ = list.undo(order.change, "fuzz", 3);
    }
    let _ = list.expire(u64::MAX);
});
