//! Files of URLs: no text makes the reader panic, every mistake names a line that is there, and what is taken can be sent. Run
//! with `make fuzz FUZZ=urls_file`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use load::inputs::urls_file::{Resolver, urls_file};

fuzz_target!(|input: &[u8]| {
    let text = String::from_utf8_lossy(input);
    let lines = text.trim_start_matches('\u{feff}').lines().count();
    let mut file = |name: &str| {
        if name.len() % 2 == 0 { Ok(name.as_bytes().to_vec()) } else { Err(format!("{name}: no such file")) }
    };
    let variable = |name: &str| (name == "HOME").then(|| "http://localhost:1/$(HOME)".to_owned());
    match urls_file("urls.txt", &text, &mut Resolver { file: &mut file, variable: &variable }) {
        Ok(read) => {
            assert!(!read.is_empty());
            for line in read {
                assert!((1..=lines).contains(&line.line) && line.weight > 0);
                assert!(
                    line.url.target.starts_with('/')
                        && line.url.target.bytes().all(|byte| byte.is_ascii_graphic())
                );
            }
        }
        Err(mistakes) => assert!(!mistakes.is_empty() && mistakes.len() <= lines.max(1)),
    }
});
