//! Files of journeys, with `make fuzz FUZZ=journey_file`: any text is a journey with steps, or mistakes that name the file and a line of it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use load::inputs::journey_file::journey_file;

fuzz_target!(|text: &str| {
    match journey_file("a.toml", text) {
        Ok(journey) => assert!(!journey.steps.is_empty()),
        Err(mistakes) => {
            assert!(!mistakes.is_empty());
            for mistake in mistakes {
                let line = mistake.strip_prefix("a.toml:").and_then(|rest| rest.split(':').next());
                let line: usize = line.expect("the file").parse().expect("a line");
                assert!((1..=text.lines().count() + 1).contains(&line), "{mistake}");
            }
        }
    }
});
