//! Translates Onigmo's syntax, which Ruby uses, to that of fancy-regex.
//!
//! Contract: a translated pattern has the same meaning. Groups lose their names (numbers refer to them), and
//! patterns with `x` lose their blanks; the flags `m` and `i` become groups. Constructs without an equivalent
//! are errors with a reason.

use super::class;
use super::cursor::Cursor;

/// The largest count of a repetition.
const MAX_COUNT: u32 = 100_000;

/// The flags `i`, `m` and `x`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Flags {
    pub(crate) ignore_case: bool,
    pub(crate) dot_all: bool,
    pub(crate) extended: bool,
}

/// A pattern for fancy-regex.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Translated {
    /// The pattern, which must be compiled with multi-line anchors.
    pub(crate) pattern: String,
    /// Names with the numbers of their groups, in the order of the groups.
    pub(crate) names: Vec<(String, usize)>,
    pub(crate) groups: usize,
    /// Whether the pattern has `^`, which does not match at the end of a text.
    pub(crate) has_line_start: bool,
}

/// Translates a pattern.
///
/// # Errors
/// The pattern is not supported; the message says why.
pub(crate) fn translate(source: &str, flags: Flags) -> Result<Translated, String> {
    let chars: Vec<char> = source.chars().collect();
    let groups = Groups::of(&chars, flags.extended);
    let cursor = Cursor::new(chars);
    let mut translator = Translator { cursor, groups, opened: 0, has_line_start: false };
    translator.alternatives(flags)?;
    if translator.cursor.peek().is_some() {
        return Err(String::from("unmatched close parenthesis"));
    }
    Ok(Translated {
        pattern: translator.cursor.out,
        names: translator.groups.names,
        groups: translator.opened,
        has_line_start: translator.has_line_start,
    })
}

/// Facts about the whole pattern that are needed before its parts are translated.
struct Groups {
    names: Vec<(String, usize)>,
    count: usize,
}

impl Groups {
    fn of(chars: &[char], extended: bool) -> Groups {
        let (mut names, mut plain) = (Vec::new(), 0);
        let (mut at, mut class) = (0, 0_usize);
        while at < chars.len() {
            let until = |end: char| chars[at..].iter().take_while(|c| **c != end).count();
            match chars[at] {
                '\\' => at += 1,
                '#' if extended && class == 0 => at += until('\n'),
                '(' if class == 0 && chars[at + 1..].starts_with(&['?', '#']) => at += until(')'),
                '[' => class += 1,
                ']' => class = class.saturating_sub(1),
                '(' if class == 0 => match (chars.get(at + 1), chars.get(at + 2), chars.get(at + 3)) {
                    (Some('?'), Some('<'), Some('=' | '!')) => {}
                    (Some('?'), Some(quote @ ('<' | '\'')), _) => {
                        let close = if *quote == '<' { '>' } else { '\'' };
                        let name: String = chars[at + 3..].iter().take_while(|c| **c != close).collect();
                        names.push((name, names.len() + 1));
                    }
                    (Some('?'), ..) => {}
                    _ => plain += 1,
                },
                _ => {}
            }
            at += 1;
        }
        let count = if names.is_empty() { plain } else { names.len() };
        Groups { names, count }
    }
}

struct Translator {
    cursor: Cursor,
    groups: Groups,
    opened: usize,
    has_line_start: bool,
}

impl Translator {
    /// Translates up to the end, or to the `)` that ends the group.
    fn alternatives(&mut self, flags: Flags) -> Result<(), String> {
        self.cursor.nest()?;
        while let Some(next) = self.cursor.peek() {
            match next {
                ')' => break,
                '|' => {
                    self.cursor.at += 1;
                    self.cursor.out.push('|');
                }
                _ if flags.extended && self.blank() => {}
                _ => {
                    let start = self.cursor.out.len();
                    if self.atom(flags)? {
                        self.repetitions(flags, start)?;
                    }
                }
            }
        }
        self.cursor.depth -= 1;
        Ok(())
    }

    /// Skips a blank or comment of an extended pattern.
    fn blank(&mut self) -> bool {
        match self.cursor.peek() {
            Some(c) if c.is_ascii_whitespace() || c == '\x0b' => self.cursor.at += 1,
            Some('#') => while self.cursor.next().is_some_and(|c| c != '\n') {},
            _ => return false,
        }
        true
    }

    /// Translates one item. Returns whether it may be repeated.
    fn atom(&mut self, flags: Flags) -> Result<bool, String> {
        let Some(next) = self.cursor.next() else { return Ok(false) };
        match next {
            '(' => return self.group(flags),
            '[' => class::bracket(&mut self.cursor)?,
            '.' => self.cursor.out.push_str(if flags.dot_all { "(?s:.)" } else { "." }),
            '^' => {
                self.has_line_start = true;
                self.cursor.out.push('^');
            }
            '$' => self.cursor.out.push('$'),
            '\\' => return self.escape(),
            '*' | '+' | '?' => return Err(String::from("target of repeat operator is not specified")),
            '{' => {
                self.cursor.at -= 1;
                if self.count().is_some() {
                    return Err(String::from("target of repeat operator is not specified"));
                }
                self.cursor.at += 1;
                self.literal('{');
            }
            other => self.literal(other),
        }
        Ok(true)
    }

    fn literal(&mut self, c: char) {
        if matches!(c, '\\' | '.' | '+' | '*' | '?' | '(' | ')' | '|' | '[' | ']' | '{' | '}' | '^' | '$') {
            self.cursor.out.push('\\');
        }
        self.cursor.out.push(c);
    }

    /// Translates from after `(`.
    fn group(&mut self, flags: Flags) -> Result<bool, String> {
        if !self.cursor.eat("?") {
            // If there are named groups, unnamed ones do not capture.
            let captures = self.groups.names.is_empty();
            self.opened += usize::from(captures);
            return self.rest_of_group(if captures { "(" } else { "(?:" }, flags);
        }
        if self.cursor.eat("#") {
            return self.cursor.until(')', "a comment").map(|_| false);
        }
        for open in ["<=", "<!", ":", "=", "!", ">"] {
            if self.cursor.eat(open) {
                return self.rest_of_group(&format!("(?{open}"), flags);
            }
        }
        for (open, close) in [("<", '>'), ("'", '\'')] {
            if self.cursor.eat(open) {
                let name = self.cursor.until(close, "a group's name")?;
                if !name.chars().next().is_some_and(|c| c == '_' || c.is_alphabetic()) {
                    return Err(format!("invalid group name <{name}>"));
                }
                self.opened += 1;
                return self.rest_of_group("(", flags);
            }
        }
        if self.cursor.eat("(") {
            return self.conditional(flags);
        }
        self.options(flags)
    }

    fn rest_of_group(&mut self, open: &str, flags: Flags) -> Result<bool, String> {
        self.cursor.out.push_str(open);
        self.alternatives(flags)?;
        if !self.cursor.eat(")") {
            return Err(String::from("end pattern with unmatched parenthesis"));
        }
        self.cursor.out.push(')');
        Ok(true)
    }

    /// Translates from after `(?(`.
    fn conditional(&mut self, flags: Flags) -> Result<bool, String> {
        let condition = self.cursor.until(')', "a condition")?;
        let name = condition.trim_matches(['<', '>', '\'']);
        let number = self.number_of(name)?;
        self.rest_of_group(&format!("(?({number})"), flags)
    }

    /// Translates from after `(?`: flags for the rest of the group, or for a group of their own.
    fn options(&mut self, outer: Flags) -> Result<bool, String> {
        let mut flags = outer;
        let mut on = true;
        loop {
            match self.cursor.next() {
                Some('-') => on = false,
                Some('i') => flags.ignore_case = on,
                Some('m') => flags.dot_all = on,
                Some('x') => flags.extended = on,
                Some('d') => {}
                Some('a' | 'u') => {
                    return Err(String::from(
                        "the options (?a) and (?u) are not supported: name the characters",
                    ));
                }
                Some(end @ (')' | ':')) => {
                    let open = match (outer.ignore_case, flags.ignore_case) {
                        (false, true) => "(?i:",
                        (true, false) => "(?-i:",
                        _ => "(?:",
                    };
                    if end == ':' {
                        return self.rest_of_group(open, flags);
                    }
                    // The flags apply until the enclosing group ends, across its `|`.
                    self.cursor.out.push_str(open);
                    self.alternatives(flags)?;
                    self.cursor.out.push(')');
                    return Ok(false);
                }
                _ => return Err(String::from("undefined group option")),
            }
        }
    }

    /// Translates repetitions of the item at `start` of the output.
    fn repetitions(&mut self, flags: Flags, start: usize) -> Result<(), String> {
        let mut repeated = false;
        loop {
            while (flags.extended && self.blank()) || self.comment()? {}
            let (mark, counted) = match self.cursor.peek() {
                Some(mark @ ('*' | '+' | '?')) => {
                    self.cursor.at += 1;
                    (String::from(mark), None)
                }
                Some('{') => match self.count() {
                    Some((least, most)) => {
                        check_count(least, most)?;
                        (written_count(least, most), Some((least, most)))
                    }
                    None => return Ok(()),
                },
                _ => return Ok(()),
            };
            if repeated {
                self.wrap(start);
            }
            self.cursor.out.push_str(&mark);
            repeated = true;
            match (self.cursor.peek(), counted) {
                // In Ruby `{n}?` is optional and `{n,m}+` is repeated; only the short forms are possessive.
                (Some('?'), Some((least, Some(most)))) if least == most => {}
                (Some('+'), Some(_)) => {}
                (Some(kind @ ('?' | '+')), _) => {
                    self.cursor.at += 1;
                    self.cursor.out.push(kind);
                }
                _ => {}
            }
        }
    }

    /// Skips `(?#...)`.
    fn comment(&mut self) -> Result<bool, String> {
        if !self.cursor.eat("(?#") {
            return Ok(false);
        }
        self.cursor.until(')', "a comment").map(|_| true)
    }

    fn wrap(&mut self, start: usize) {
        self.cursor.out.insert_str(start, "(?:");
        self.cursor.out.push(')');
    }

    /// Reads `{n}`, `{n,}`, `{,m}` or `{n,m}`; does not consume anything else.
    fn count(&mut self) -> Option<(u32, Option<u32>)> {
        let close = self.cursor.chars[self.cursor.at..].iter().take(16).position(|c| *c == '}')?;
        let inner: String = self.cursor.chars[self.cursor.at + 1..self.cursor.at + close].iter().collect();
        let number = |text: &str| text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok())?;
        let counts = match inner.split_once(',') {
            None => number(&inner).map(|n| (n, Some(n))),
            Some(("", most)) => number(most).map(|most| (0, Some(most))),
            Some((least, "")) => number(least).map(|least| (least, None)),
            Some((least, most)) => number(least).zip(number(most)).map(|(least, most)| (least, Some(most))),
        };
        self.cursor.at += if counts.is_some() { close + 1 } else { 0 };
        counts
    }

    /// Translates from after `\`.
    fn escape(&mut self) -> Result<bool, String> {
        let Some(next) = self.cursor.next() else { return Err(String::from("too short escape sequence")) };
        match next {
            'A' => self.cursor.out.push_str(r"\A"),
            'z' => self.cursor.out.push_str(r"\z"),
            'Z' => self.cursor.out.push_str(r"(?=\n?\z)"),
            'b' => self.cursor.out.push_str(r"\b"),
            'B' => self.cursor.out.push_str(r"\B"),
            'G' => self.cursor.out.push_str(r"\G"),
            'K' => self.cursor.out.push_str(r"\K"),
            'R' => self.cursor.out.push_str(r"(?>\r\n|[\n-\r\x{85}\x{2028}\x{2029}])"),
            'X' => return Err(String::from(r"\X is not supported")),
            'k' => {
                let number = self.referred()?;
                self.back_reference(number)?;
            }
            'g' => {
                let number = self.referred()?;
                self.cursor.out.push_str(&format!("(?:\\g<{number}>)"));
            }
            '1'..='9' => return self.numbered().map(|()| true),
            _ => {
                self.cursor.at -= 1;
                match class::escaped(&mut self.cursor)? {
                    class::Item::Char(c) => self.literal(c),
                    class::Item::Set(set) => self.cursor.out.push_str(&format!("[{set}]")),
                }
            }
        }
        Ok(true)
    }

    fn back_reference(&mut self, number: usize) -> Result<(), String> {
        if number == 0 || number > self.groups.count {
            return Err(format!("invalid backref number/name: {number}"));
        }
        // In a group of its own, because a digit may follow.
        self.cursor.out.push_str(&format!("(?:\\{number})"));
        Ok(())
    }

    /// Translates `\1`: a group, or an octal number if there are fewer groups.
    fn numbered(&mut self) -> Result<(), String> {
        self.cursor.at -= 1;
        let digits: String =
            self.cursor.chars[self.cursor.at..].iter().take_while(|c| c.is_ascii_digit()).collect();
        let number: usize = digits.parse().unwrap_or(usize::MAX);
        if number <= self.groups.count || digits.len() == 1 {
            if !self.groups.names.is_empty() {
                return Err(String::from("numbered backref/call is not allowed. (use name)"));
            }
            self.cursor.at += digits.len();
            return self.back_reference(number);
        }
        let c = class::octal(&mut self.cursor)?;
        self.literal(c);
        Ok(())
    }

    /// Returns the group of `<name>`, `'name'`, `<1>` or `<-1>`.
    fn referred(&mut self) -> Result<usize, String> {
        let close = match self.cursor.next() {
            Some('<') => '>',
            Some('\'') => '\'',
            _ => return Err(String::from("invalid backref number/name")),
        };
        let name = self.cursor.until(close, "a group's name")?;
        self.number_of(&name)
    }

    fn number_of(&self, name: &str) -> Result<usize, String> {
        if let Some(back) = name.strip_prefix('-').and_then(|back| back.parse::<usize>().ok()) {
            let number = (self.opened + 1).checked_sub(back).filter(|number| *number > 0);
            return number.ok_or_else(|| format!("invalid backref number/name: {name}"));
        }
        if let Ok(number) = name.parse::<usize>() {
            let there = number <= self.groups.count;
            return there.then_some(number).ok_or_else(|| format!("invalid backref number/name: {name}"));
        }
        let mut named = self.groups.names.iter().filter(|(known, _)| known == name);
        match (named.next(), named.next()) {
            (Some((_, number)), None) => Ok(*number),
            (Some(_), Some(_)) => Err(format!("reference to the name <{name}>, which several groups have")),
            _ => Err(format!("undefined name <{name}> reference")),
        }
    }
}

fn check_count(least: u32, most: Option<u32>) -> Result<(), String> {
    if least > MAX_COUNT || most.is_some_and(|most| most > MAX_COUNT) {
        return Err(String::from("too big number for repeat range"));
    }
    match most {
        Some(most) if most < least => Err(String::from("repeat range with more at least than at most")),
        _ => Ok(()),
    }
}

fn written_count(least: u32, most: Option<u32>) -> String {
    match most {
        Some(most) if most == least => format!("{{{least}}}"),
        Some(most) => format!("{{{least},{most}}}"),
        None => format!("{{{least},}}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(source: &str) -> String {
        translate(source, Flags::default()).unwrap().pattern
    }

    fn refused(source: &str) -> String {
        translate(source, Flags::default()).unwrap_err()
    }

    #[test]
    fn what_differs_is_rewritten() {
        let table = [
            (r"\h+", "[0-9A-Fa-f]+"),
            (r"a\Z", r"a(?=\n?\z)"),
            ("a{,3}", "a{0,3}"),
            ("a{2}+", "(?:a{2})+"),
            ("a{2}?", "(?:a{2})?"),
            ("a**", "(?:a*)*"),
            ("a*+", "a*+"),
            ("a{x", r"a\{x"),
            (r"(?<y>\d)(b)\k<y>", r"([0-9])(?:b)(?:\1)"),
            ("a(?i)b|c", "a(?i:b|c)"),
            ("(?m:.)", "(?:(?s:.))"),
            ("(?x: a b # c\n)", "(?:ab)"),
            (r"(?<a>.)\g<a>", r"(.)(?:\g<1>)"),
            (r"\u00e9\x41\101\/", "éAA/"),
            (r"\xC3\xA9", "é"),
        ];
        for (ruby, rust) in table {
            assert_eq!(pattern(ruby), rust, "{ruby}");
        }
    }

    #[test]
    fn what_has_no_counterpart_is_refused() {
        let table = [
            ("*a", "target of repeat"),
            ("(a", "unmatched parenthesis"),
            ("a)", "unmatched close"),
            (r"\1", "invalid backref"),
            (r"\k<x>", "undefined name <x>"),
            (r"(?<x>a)\1", "use name"),
            ("(?u)a", "(?u)"),
            (r"\X", r"\X"),
            ("a{3,2}", "repeat range"),
            (r"\xE9", "multibyte"),
            ("[b-a]", "empty range"),
        ];
        for (ruby, why) in table {
            assert!(refused(ruby).contains(why), "{ruby}: {}", refused(ruby));
        }
        assert!(refused(&"(".repeat(500)).contains("deeply"));
    }
}
