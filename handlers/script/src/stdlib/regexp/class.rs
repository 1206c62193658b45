//! Character classes and escapes: `[a-z&&[^aeiou]]`, `\d`, `[[:alpha:]]`, `\p{Han}`, `\u00e9`.
//!
//! As in Ruby, `\d`, `\w`, `\s` and `\h` are ASCII only, and the bracketed names cover all of Unicode. The
//! output escapes every character with a special meaning in fancy-regex but not in Ruby.

use super::cursor::Cursor;
use std::fmt::Write as _;

/// The meaning of an escape.
pub(super) enum Item {
    Char(char),
    /// The inside of a class.
    Set(String),
}

/// Translates from after `[` up to its `]`.
pub(super) fn bracket(from: &mut Cursor) -> Result<(), String> {
    from.nest()?;
    from.out.push('[');
    if from.eat("^") {
        from.out.push('^');
    }
    let mut first = true;
    loop {
        match from.next() {
            None => return Err(String::from("premature end of char-class")),
            Some(']') if first && !from.chars[from.at..].contains(&']') => {
                return Err(String::from("empty char-class"));
            }
            Some(']') if !first => break,
            Some('[') if from.eat(":") => posix(from)?,
            Some('[') => bracket(from)?,
            Some('&') if from.eat("&") => from.out.push_str("&&"),
            Some('\\') => match escaped(from)? {
                Item::Char(c) => range(from, c)?,
                Item::Set(set) => {
                    let _ = write!(from.out, "[{set}]");
                }
            },
            Some(c) => range(from, c)?,
        }
        first = false;
    }
    from.out.push(']');
    from.depth -= 1;
    Ok(())
}

/// Translates a character of a class, or a range that starts with it.
fn range(from: &mut Cursor, low: char) -> Result<(), String> {
    push(&mut from.out, low);
    let begins = from.peek() == Some('-') && !matches!(from.chars.get(from.at + 1), None | Some(']' | '['));
    if !begins {
        return Ok(());
    }
    from.at += 1;
    let high = match from.next() {
        Some('\\') => match escaped(from)? {
            Item::Char(c) => c,
            // `[a-\d]` is not a range.
            Item::Set(set) => {
                let _ = write!(from.out, r"\x2D[{set}]");
                return Ok(());
            }
        },
        Some(c) => c,
        None => return Err(String::from("premature end of char-class")),
    };
    if high < low {
        return Err(String::from("empty range in char class"));
    }
    from.out.push('-');
    push(&mut from.out, high);
    Ok(())
}

/// Writes a character of a class, escaped if needed.
fn push(out: &mut String, c: char) {
    if c.is_ascii() && !c.is_ascii_alphanumeric() {
        let _ = write!(out, "\\x{:02X}", c as u32);
    } else {
        out.push(c);
    }
}

/// Translates from after `[:`.
fn posix(from: &mut Cursor) -> Result<(), String> {
    let negated = from.eat("^");
    let name = from.until(':', "a POSIX bracket")?;
    let set =
        named(&name).filter(|_| from.eat("]")).ok_or_else(|| format!("unknown POSIX bracket [:{name}:]"))?;
    let _ = write!(from.out, "[{}{set}]", if negated { "^" } else { "" });
    Ok(())
}

/// Returns the inside of a class for a POSIX name.
fn named(name: &str) -> Option<&'static str> {
    Some(match name {
        "alpha" => r"\p{Alphabetic}",
        "digit" => r"\p{Nd}",
        "alnum" => r"\p{Alphabetic}\p{Nd}",
        "upper" => r"\p{Uppercase}",
        "lower" => r"\p{Lowercase}",
        "space" => r"\p{White_Space}",
        "blank" => r"\t\p{Zs}",
        "punct" => r"\p{P}$+<=>\^`|\x7E",
        "cntrl" => r"\p{Cc}",
        "xdigit" => "0-9A-Fa-f",
        "word" => r"\p{Alphabetic}\p{M}\p{Nd}\p{Pc}",
        "graph" => r"[^\p{White_Space}\p{Cc}\p{Cn}]",
        "print" => r"[^\p{White_Space}\p{Cc}\p{Cn}]\p{Zs}",
        "ascii" => r"\x00-\x7F",
        _ => return None,
    })
}

/// Translates from after `\` the escapes with the same meaning inside and outside of classes.
pub(super) fn escaped(from: &mut Cursor) -> Result<Item, String> {
    let Some(next) = from.next() else { return Err(String::from("too short escape sequence")) };
    let set = |text: &str| Ok(Item::Set(String::from(text)));
    match next {
        'd' => set("0-9"),
        'D' => set("^0-9"),
        'w' => set("0-9A-Za-z_"),
        'W' => set("^0-9A-Za-z_"),
        's' => set(r"\t-\r\x20"),
        'S' => set(r"^\t-\r\x20"),
        'h' => set("0-9A-Fa-f"),
        'H' => set("^0-9A-Fa-f"),
        'p' | 'P' => property(from, next == 'P').map(Item::Set),
        _ => character(from, next).map(Item::Char),
    }
}

/// Translates from after `\p`.
fn property(from: &mut Cursor, negated: bool) -> Result<String, String> {
    if !from.eat("{") {
        return Err(String::from(r"invalid character property name {p}: expected \p{...}"));
    }
    let negated = negated ^ from.eat("^");
    let name = from.until('}', r"\p{")?;
    let plain: String = name.chars().filter(|c| !matches!(c, ' ' | '_' | '-')).collect();
    if !plain.chars().all(|c| c.is_ascii_alphanumeric()) || plain.is_empty() {
        return Err(format!("invalid character property name {{{name}}}"));
    }
    let set = named(&plain.to_ascii_lowercase()).map_or_else(|| format!(r"\p{{{name}}}"), String::from);
    Ok(if negated { format!("^{set}") } else { set })
}

fn character(from: &mut Cursor, next: char) -> Result<char, String> {
    Ok(match next {
        't' => '\t',
        'n' => '\n',
        'r' => '\r',
        'f' => '\x0c',
        'v' => '\x0b',
        'a' => '\x07',
        'e' => '\x1b',
        // Only in classes; elsewhere `\b` is a word boundary.
        'b' => '\x08',
        '0'..='7' => {
            from.at -= 1;
            octal(from)?
        }
        'x' => return hexadecimal(from),
        'u' => return unicode(from),
        'c' => return control(from),
        'C' if from.eat("-") => return control(from),
        'M' => return Err(String::from(r"\M- is not supported")),
        other => other,
    })
}

fn control(from: &mut Cursor) -> Result<char, String> {
    let of = from.next().filter(char::is_ascii).ok_or("too short control sequence")?;
    Ok(if of == '?' { '\x7f' } else { char::from(of as u8 & 0x1f) })
}

/// Reads up to three octal digits.
pub(super) fn octal(from: &mut Cursor) -> Result<char, String> {
    let digits: String = from.chars[from.at..].iter().take(3).take_while(|c| c.is_digit(8)).collect();
    from.at += digits.len();
    let value = u8::from_str_radix(&digits, 8).ok().filter(u8::is_ascii);
    value.map(char::from).ok_or_else(|| format!("invalid octal escape \\{digits}"))
}

/// Reads `\x41`, repeated for each byte of the character.
fn hexadecimal(from: &mut Cursor) -> Result<char, String> {
    let mut bytes = Vec::new();
    loop {
        let digits: String =
            from.chars[from.at..].iter().take(2).take_while(|c| c.is_ascii_hexdigit()).collect();
        from.at += digits.len();
        bytes.push(u8::from_str_radix(&digits, 16).map_err(|_| "invalid hex escape")?);
        if let Ok(text) = std::str::from_utf8(&bytes) {
            return text.chars().next().ok_or_else(|| String::from("invalid hex escape"));
        }
        if bytes.len() == 4 || !from.eat("\\x") {
            return Err(String::from("invalid multibyte escape"));
        }
    }
}

/// Reads `\u00e9` or `\u{e9}`.
fn unicode(from: &mut Cursor) -> Result<char, String> {
    let digits = if from.eat("{") {
        from.until('}', r"\u{")?.trim().to_owned()
    } else {
        let digits: String = from.chars[from.at..].iter().take(4).collect();
        from.at += digits.chars().count();
        digits
    };
    let value = u32::from_str_radix(&digits, 16).ok().and_then(char::from_u32);
    value.ok_or_else(|| format!("invalid Unicode escape \\u{{{digits}}}: one character is expected"))
}
