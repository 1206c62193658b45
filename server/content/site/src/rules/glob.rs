//! Matches globs against decoded paths: `*` matches any run without `/`, `**` any run, other characters
//! themselves. The whole path must match.
//!
//! Contract: the results are those of the regular expression `^…$` with `[^/]*` and `.*`, in time
//! proportional to pattern times path (no backtracking), so no path can make a rule slow. Captures are
//! greedy.

/// A compiled glob.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Glob {
    /// The literal beginning of every match.
    prefix: Vec<u8>,
    /// The rest; empty or begins with a wildcard.
    rest: Vec<Token>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token {
    Byte(u8),
    /// `*`
    Star,
    /// `**`
    Any,
}

impl Token {
    fn is_wild(self) -> bool {
        !matches!(self, Token::Byte(_))
    }

    /// Returns whether the token can match this byte.
    fn takes(self, byte: u8) -> bool {
        match self {
            Token::Byte(own) => own == byte,
            Token::Star => byte != b'/',
            Token::Any => true,
        }
    }
}

impl Glob {
    /// Compiles a pattern; any text is valid.
    pub fn new(pattern: &str) -> Glob {
        let mut tokens = Vec::new();
        let mut left = pattern.as_bytes();
        while let Some((&first, after)) = left.split_first() {
            left = after;
            tokens.push(match first {
                b'*' if left.first() == Some(&b'*') => {
                    left = &left[1..];
                    Token::Any
                }
                b'*' => Token::Star,
                byte => Token::Byte(byte),
            });
        }
        let literal = tokens.iter().take_while(|token| !token.is_wild()).count();
        let rest = tokens.split_off(literal);
        let prefix = pattern.as_bytes()[..literal].to_vec();
        Glob { prefix, rest }
    }

    /// Returns the number of wildcards.
    pub fn wildcards(&self) -> usize {
        self.rest.iter().filter(|token| token.is_wild()).count()
    }

    /// Returns whether the whole path matches.
    pub fn matches(&self, path: &str) -> bool {
        let Some(text) = path.as_bytes().strip_prefix(self.prefix.as_slice()) else { return false };
        match self.rest.as_slice() {
            [] => text.is_empty(),
            [Token::Any] => true,
            [Token::Star] => !text.contains(&b'/'),
            tokens => simulate(tokens, text),
        }
    }

    /// Returns the text that each wildcard matched, in order, if the whole path matches.
    pub fn captures(&self, path: &str) -> Option<Vec<String>> {
        if !self.matches(path) {
            return None;
        }
        let text = &path.as_bytes()[self.prefix.len()..];
        let table = Table::new(&self.rest, text);
        let mut captures = Vec::new();
        let mut at = 0;
        for (index, token) in self.rest.iter().enumerate() {
            if !token.is_wild() {
                at += 1;
                continue;
            }
            let longest = text[at..].iter().take_while(|&&byte| token.takes(byte)).count();
            let end = (at..=at + longest).rev().find(|&end| table.can(index + 1, end))?;
            captures.push(String::from_utf8_lossy(&text[at..end]).into_owned());
            at = end;
        }
        Some(captures)
    }

    /// Returns whether this glob matches every path that `other` matches. Checks only easy cases; never wrongly true.
    pub fn covers(&self, other: &Glob) -> bool {
        if self == other {
            return true;
        }
        match self.rest.as_slice() {
            [Token::Any] => other.prefix.starts_with(&self.prefix),
            [Token::Star] => {
                other.prefix.strip_prefix(self.prefix.as_slice()).is_some_and(|more| !more.contains(&b'/'))
                    && other.rest.iter().all(|token| !matches!(token, Token::Any | Token::Byte(b'/')))
            }
            _ if other.rest.is_empty() => {
                std::str::from_utf8(&other.prefix).is_ok_and(|path| self.matches(path))
            }
            _ => false,
        }
    }
}

/// Tracks all positions of the pattern at once, one byte of the text after the other.
fn simulate(tokens: &[Token], text: &[u8]) -> bool {
    let mut now = vec![false; tokens.len() + 1];
    let mut next = now.clone();
    now[0] = true;
    skip_wildcards(tokens, &mut now);
    for &byte in text {
        next.fill(false);
        let mut alive = false;
        for (index, token) in tokens.iter().enumerate() {
            if now[index] && token.takes(byte) {
                next[if token.is_wild() { index } else { index + 1 }] = true;
                alive = true;
            }
        }
        if !alive {
            return false;
        }
        skip_wildcards(tokens, &mut next);
        std::mem::swap(&mut now, &mut next);
    }
    now[tokens.len()]
}

/// Marks the states after a wildcard, which may match nothing.
fn skip_wildcards(tokens: &[Token], states: &mut [bool]) {
    for (index, token) in tokens.iter().enumerate() {
        if states[index] && token.is_wild() {
            states[index + 1] = true;
        }
    }
}

/// Which suffixes of the pattern match which suffixes of the text.
struct Table {
    cells: Vec<bool>,
    width: usize,
}

impl Table {
    fn new(tokens: &[Token], text: &[u8]) -> Table {
        let width = text.len() + 1;
        let mut table = Table { cells: vec![false; width * (tokens.len() + 1)], width };
        table.cells[tokens.len() * width + text.len()] = true;
        for (index, token) in tokens.iter().enumerate().rev() {
            for at in (0..width).rev() {
                let takes = text.get(at).is_some_and(|&byte| token.takes(byte));
                table.cells[index * width + at] = if token.is_wild() {
                    table.can(index + 1, at) || takes && table.can(index, at + 1)
                } else {
                    takes && table.can(index + 1, at + 1)
                };
            }
        }
        table
    }

    fn can(&self, token: usize, at: usize) -> bool {
        self.cells[token * self.width + at]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use regex::Regex;

    #[test]
    fn globs_as_documented() {
        let cases = [
            ("/*.html", "/baz.html", true),
            ("/*.html", "/bar/baz.html", false),
            ("/route/**", "/route/", true),
            ("/route/**", "/route/foo/bar", true),
            ("/route/**", "/route", false),
            ("/**", "/", true),
            ("/*", "/", true),
            ("/*", "/a/", false),
            ("/", "/", true),
            ("/", "/index.html", false),
            ("/a.b", "/axb", false),
            ("/[a]?(b)|c", "/[a]?(b)|c", true),
            ("/**/x", "/x", false),
            ("/**/x", "/a/b/x", true),
            ("/a*b*c", "/axbxbxc", true),
            ("", "/", false),
        ];
        for (pattern, path, expected) in cases {
            assert_eq!(Glob::new(pattern).matches(path), expected, "{pattern} {path}");
        }
    }

    #[test]
    fn a_hostile_path_takes_bounded_time() {
        let glob = Glob::new(&format!("/{}b", "**a*".repeat(30)));
        assert!(!glob.matches(&format!("/{}", "a".repeat(8000))));
        assert_eq!(glob.captures(&format!("/{}b", "a".repeat(2000))).unwrap().len(), 60);
    }

    #[test]
    fn covering() {
        let covers = |wide: &str, narrow: &str| Glob::new(wide).covers(&Glob::new(narrow));
        assert!(
            covers("/**", "/a/*")
                && covers("/a/*", "/a/*.js")
                && covers("/*.js", "/a.js")
                && covers("/a", "/a")
        );
        assert!(
            !covers("/a/*", "/a/**")
                && !covers("/a/*", "/a/b/*")
                && !covers("/a/*", "/*")
                && !covers("/b/**", "/a")
        );
    }

    /// Returns the equivalent expression, with a group for each wildcard.
    fn specified(pattern: &str) -> Regex {
        let mut text = String::from("(?s)\\A");
        let mut left = pattern;
        while !left.is_empty() {
            if let Some(after) = left.strip_prefix("**") {
                text.push_str("(.*)");
                left = after;
            } else if let Some(after) = left.strip_prefix('*') {
                text.push_str("([^/]*)");
                left = after;
            } else {
                let (literal, after) = left.split_at(left.find('*').unwrap_or(left.len()));
                text.push_str(&regex::escape(literal));
                left = after;
            }
        }
        text.push_str("\\z");
        Regex::new(&text).unwrap()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(3000))]

        #[test]
        fn same_as_the_regular_expression(pattern in "/?([ab./é]|\\*\\*?){0,8}", path in "/?[ab./é]{0,12}") {
            let glob = Glob::new(&pattern);
            let regex = specified(&pattern);
            prop_assert_eq!(glob.matches(&path), regex.is_match(&path));
            let groups = regex.captures(&path).map(|found| {
                found.iter().skip(1).map(|group| group.unwrap().as_str().to_owned()).collect::<Vec<_>>()
            });
            prop_assert_eq!(glob.captures(&path), groups);
        }

        #[test]
        fn covers_is_never_wrongly_true(wide in "/([ab/]|\\*\\*?){0,5}", narrow in "/([ab/]|\\*\\*?){0,5}", path in "/[ab/]{0,8}") {
            let (wide, narrow) = (Glob::new(&wide), Glob::new(&narrow));
            if wide.covers(&narrow) && narrow.matches(&path) {
                prop_assert!(wide.matches(&path));
            }
        }
    }
}
