//! Estimates the width of a text. The reader's font is unknown, so this assumes a wide sans-serif font.

/// Returns the width in units of the drawing.
pub(crate) fn width(text: &str, font: f64) -> f64 {
    text.chars().map(share).sum::<f64>() * font
}

/// Returns the text, truncated with an ellipsis if it is wider than `room`.
pub(crate) fn fit(text: &str, room: f64, font: f64) -> String {
    if width(text, font) <= room {
        return text.to_owned();
    }
    let mut left = room - width("…", font);
    let kept: String = text
        .chars()
        .take_while(|&c| {
            left -= share(c) * font;
            left >= 0.0
        })
        .collect();
    if kept.is_empty() { String::new() } else { format!("{}…", kept.trim_end()) }
}

/// Wraps the text at spaces into at most `most` lines no wider than `room`; words that are too long are truncated.
pub(crate) fn wrap(text: &str, room: f64, font: f64, most: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut words = text.split_whitespace().peekable();
    while let Some(word) = words.next() {
        let mut line = word.to_owned();
        while let Some(next) = words.next_if(|next| width(&format!("{line} {next}"), font) <= room) {
            line = format!("{line} {next}");
        }
        if lines.len() + 1 == most {
            let rest = words.by_ref().fold(line, |rest, word| format!("{rest} {word}"));
            lines.push(fit(&rest, room, font));
        } else {
            lines.push(fit(&line, room, font));
        }
    }
    lines
}

/// Returns the width of a character as a share of the font size.
fn share(c: char) -> f64 {
    match c {
        'i' | 'j' | 'l' | '|' | '\'' | '.' | ',' | ':' | ';' | ' ' | 'I' | '!' => 0.34,
        'f' | 'r' | 't' | '(' | ')' | '[' | ']' | '/' | '-' => 0.42,
        'm' | 'w' | 'M' | 'W' | '@' | '%' | '—' | '…' => 0.98,
        'A'..='Z' | '−' | '+' | '=' | '<' | '>' => 0.76,
        ' '..='~' | '–' | 'µ' => 0.64,
        // Characters of unknown scripts may be as wide as high.
        _ => 1.05,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn truncated_text_fits(text in ".{0,60}", room in 0f64..400.0) {
            prop_assert!(width(&fit(&text, room, 12.0), 12.0) <= room);
        }

        #[test]
        fn wrapped_lines_fit(text in "[a-zé ]{0,200}", room in 30f64..400.0, most in 1usize..4) {
            let lines = wrap(&text, room, 12.0, most);
            prop_assert!(lines.len() <= most);
            prop_assert!(lines.iter().all(|line| width(line, 12.0) <= room));
        }
    }
}
