//! The file with the learnt shape: no content makes the reader panic, and one that is accepted names a shape within its
//! bounds and survives being written again. Run with `make fuzz FUZZ=kept_shape`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::time::Duration;
use workers::shape::{KeptShape, ServingShape, ShapeBounds, ShapeTerms};

fuzz_target!(|input: &[u8]| {
    let Ok(kept) = KeptShape::read(input) else { return };
    let again = KeptShape::read(kept.text().as_bytes()).expect("what was written can be read");
    assert_eq!((again.at(), again.text()), (kept.at(), kept.text()));
    let bounds = ShapeBounds {
        objective: Duration::from_millis(200),
        percentile: 95,
        workers: (1, 4),
        seats: (1, 64),
        start: ServingShape { workers: 1, seats: 1 },
    };
    let terms = ShapeTerms::new(&"p95 < 200ms", &bounds, false, 4.0, None);
    match kept.for_app("/srv/app", &terms) {
        Ok(learnt) => assert!((1..=4).contains(&learnt.shape.workers) && (1..=64).contains(&learnt.shape.seats)),
        Err(why) => assert!(!why.is_empty() && !why.contains(char::is_control)),
    }
});
