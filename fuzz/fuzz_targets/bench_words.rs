//! The words after `firebrick bench`: no URL, rate, duration or condition makes a reader panic or comes out as something that
//! cannot be used. Run with `make fuzz FUZZ=bench_words`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use load::inputs::{self, condition};

fuzz_target!(|text: &str| {
    if let Ok(url) = inputs::url(text) {
        assert!(url.target.starts_with('/') && url.target.bytes().all(|byte| byte.is_ascii_graphic()));
        assert!(url.origin.port > 0 && !url.origin.host.is_empty());
    }
    for stage in inputs::stages(text).unwrap_or_default() {
        assert!(stage.from.is_finite() && stage.from >= 0.0 && stage.to.is_finite() && stage.to >= 0.0);
    }
    if let Ok(condition) = condition::condition(text) {
        assert!(condition.limit.is_finite() && condition.limit >= 0.0);
    }
    let _ = (
        inputs::duration(text),
        inputs::rate(text),
        inputs::size(text),
        inputs::count(text),
        inputs::statuses(text),
    );
});
