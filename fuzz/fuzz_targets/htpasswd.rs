//! htpasswd files: no text makes the reader panic, every mistake names a line that is there in one line of its own, and what was
//! read once is not changed by reading it again. Run with `make fuzz FUZZ=htpasswd`.
#![no_main]

use auth::Users;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let text = String::from_utf8_lossy(input);
    let text = text.trim_start_matches('\u{feff}');
    let lines = text.lines().count();
    match Users::parse(".htpasswd", text) {
        Ok(users) => {
            assert!(users.len() <= lines);
            let twice =
                Users::parse(".htpasswd", &format!("\u{feff}{text}\n{text}")).map(|users| users.len());
            assert_eq!(twice, Ok(users.len()));
        }
        Err(mistakes) => {
            assert!(!mistakes.is_empty() && mistakes.windows(2).all(|pair| pair[0].line < pair[1].line));
            for mistake in mistakes {
                assert!((1..=lines).contains(&mistake.line));
                assert!(!mistake.to_string().contains(char::is_control), "{mistake:?}");
            }
        }
    }
});
