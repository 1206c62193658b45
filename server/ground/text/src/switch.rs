//! Switches: `true`, `on`, `yes`, `1`; `false`, `off`, `no`, `0`.

const WORDS: [(&str, bool); 8] = [
    ("true", true),
    ("false", false),
    ("on", true),
    ("off", false),
    ("yes", true),
    ("no", false),
    ("1", true),
    ("0", false),
];

/// Reads a switch; case does not matter.
pub fn parse(text: &str) -> Option<bool> {
    let text = text.trim();
    WORDS.iter().find(|(word, _)| word.eq_ignore_ascii_case(text)).map(|(_, on)| *on)
}

#[cfg(test)]
mod tests {
    #[test]
    fn words_of_other_servers() {
        assert_eq!(["true", "On", "YES", "1"].map(super::parse), [Some(true); 4]);
        assert_eq!(["false", "off", " no", "0"].map(super::parse), [Some(false); 4]);
        assert_eq!(["", "y", "2", "enabled", "auto"].map(super::parse), [None; 5]);
        for on in [true, false] {
            assert_eq!(super::parse(&on.to_string()), Some(on));
        }
    }
}
