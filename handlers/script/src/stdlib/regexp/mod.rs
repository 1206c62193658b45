//! Regexp: Ruby's patterns, compiled once and matched by fancy-regex.
//!
//! Contract: a pattern is identified by its key (a digit for its options, then its source), so that Ruby
//! holds nothing that must be freed. Texts are UTF-8 and offsets are in bytes, as in mruby. A match
//! backtracks at most [`STEPS`] times; a call takes at most [`BUDGET`], and its result has at most
//! [`MAX_OUTPUT`] bytes.

mod class;
mod cursor;
mod replace;
mod translate;

use fancy_regex::{Captures, Regex, RegexBuilder, RegexInput};
use mruby::{Tape, TapeValue};
use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::time::{Duration, Instant};
use translate::{Flags, translate};

/// The most backtracking steps of a match: about 20 ms.
const STEPS: usize = 500_000;
/// The most time for one call that finds many matches.
const BUDGET: Duration = Duration::from_secs(1);
/// The most bytes in the result of a replacement.
const MAX_OUTPUT: usize = 64 << 20;
/// The largest size of a compiled pattern and of its lazily computed automaton, in bytes.
const MAX_SIZE: usize = 2 << 20;
/// The most compiled patterns in the cache; a full cache is emptied.
const MAX_CACHED: usize = 500;

#[derive(Default)]
pub(crate) struct Patterns {
    cached: RefCell<HashMap<Box<[u8]>, Rc<Pattern>>>,
}

struct Pattern {
    plain: Regex,
    /// The pattern for texts that end with a line break, after which `^` does not match. Compiled when first needed.
    before_end: Option<OnceCell<Option<Regex>>>,
    translated: String,
    flags: Flags,
    names: Vec<(String, usize)>,
    groups: usize,
}

/// An exception: class and message.
type Fault = (&'static str, String);

impl Patterns {
    fn get(&self, key: &[u8]) -> Result<Rc<Pattern>, Fault> {
        if let Some(pattern) = self.cached.borrow().get(key) {
            return Ok(pattern.clone());
        }
        let pattern = Rc::new(Pattern::of(key).map_err(|why| {
            let source = String::from_utf8_lossy(key.get(1..).unwrap_or_default());
            ("RegexpError", format!("{why}: /{source}/"))
        })?);
        let mut cached = self.cached.borrow_mut();
        if cached.len() >= MAX_CACHED {
            cached.clear();
        }
        cached.insert(key.into(), pattern.clone());
        Ok(pattern)
    }
}

impl Pattern {
    fn of(key: &[u8]) -> Result<Pattern, String> {
        let (digit, source) = key.split_first().ok_or("a pattern without options")?;
        let source = std::str::from_utf8(source).map_err(|_| "invalid multibyte character")?;
        let bit = |bit: u8| digit & bit != 0;
        let flags = Flags { ignore_case: bit(1), extended: bit(2), dot_all: bit(4) };
        let translated = translate(source, flags)?;
        Ok(Pattern {
            plain: compile(&translated.pattern, flags, false)?,
            before_end: translated.has_line_start.then(OnceCell::new),
            translated: translated.pattern,
            flags,
            names: translated.names,
            groups: translated.groups,
        })
    }

    fn regex(&self, text: &str) -> Result<&Regex, Fault> {
        match &self.before_end {
            Some(made) if text.ends_with('\n') => made
                .get_or_init(|| compile(&self.translated, self.flags, true).ok())
                .as_ref()
                .ok_or_else(|| ("RegexpError", String::from("^ cannot be used in this pattern"))),
            _ => Ok(&self.plain),
        }
    }

    /// Returns the first match that starts at `from` or later; with `anchored` only at `from`.
    fn find<'t>(
        &self,
        text: &'t str,
        from: usize,
        anchored: bool,
    ) -> Result<Option<Captures<'t, str>>, Fault> {
        let input = RegexInput::new(text).from_pos(from).anchored(anchored);
        self.regex(text)?.captures_input(input).map_err(limit_exceeded)
    }

    /// Calls `each` for one match after the other, while it returns true. Returns where to continue; `None` at the end.
    fn each<'t>(
        &self,
        text: &'t str,
        from: usize,
        mut each: impl FnMut(Captures<'t, str>) -> Result<bool, Fault>,
    ) -> Result<Option<usize>, Fault> {
        let started = Instant::now();
        let mut from = from;
        while from <= text.len() {
            let Some(found) = self.find(text, from, false)? else { return Ok(None) };
            let (start, end) = found.get(0).map_or((from, from), |whole| (whole.start(), whole.end()));
            from = if end > start { end } else { after(text, end) };
            if !each(found)? {
                return Ok(Some(from));
            }
            if started.elapsed() > BUDGET {
                return Err(("RegexpError", format!("matching took more than {} s", BUDGET.as_secs_f32())));
            }
        }
        Ok(None)
    }
}

fn compile(pattern: &str, flags: Flags, before_end: bool) -> Result<Regex, String> {
    RegexBuilder::new(pattern)
        .multi_line(true)
        .case_insensitive(flags.ignore_case)
        .oniguruma_mode(before_end)
        .backtrack_limit(STEPS)
        .delegate_size_limit(MAX_SIZE)
        .delegate_dfa_size_limit(MAX_SIZE)
        .max_prog_size(MAX_SIZE / 64)
        .build()
        .map_err(|error| error.to_string().lines().collect::<Vec<_>>().join(" "))
}

fn limit_exceeded(error: fancy_regex::Error) -> Fault {
    let why = match error {
        fancy_regex::Error::RuntimeError(_) => {
            format!("matching took more than {STEPS} steps back; make the pattern less ambiguous")
        }
        other => other.to_string(),
    };
    ("RegexpError", why)
}

/// Returns the offset after the character at `at`.
fn after(text: &str, at: usize) -> usize {
    at + text[at..].chars().next().map_or(1, char::len_utf8)
}

/// The common arguments of all calls: the pattern, the text and the start.
struct Search<'a> {
    pattern: Rc<Pattern>,
    text: &'a str,
    /// The start; `None` if it is outside of the text.
    from: Option<usize>,
}

fn search<'a>(patterns: &Patterns, args: &[TapeValue<'a>]) -> Result<Search<'a>, Fault> {
    let bytes = |index: usize| args.get(index).and_then(TapeValue::text).unwrap_or_default();
    let pattern = patterns.get(bytes(0))?;
    let text = std::str::from_utf8(bytes(1)).map_err(|_| {
        ("ArgumentError", String::from("invalid byte sequence in UTF-8: a Regexp needs UTF-8"))
    })?;
    let from = usize::try_from(args.get(2).and_then(TapeValue::int).unwrap_or_default()).ok();
    let from = from
        .filter(|from| *from <= text.len())
        .map(|from| (from..=text.len()).find(|from| text.is_char_boundary(*from)).unwrap_or(text.len()));
    Ok(Search { pattern, text, from })
}

fn finish(tape: &mut Tape, result: Result<(), Fault>) {
    if let Err((class, message)) = result {
        tape.clear().fault(class, message);
    }
}

/// Writes start and end of the match and of each group; nil for groups that did not match.
fn put(tape: &mut Tape, found: &Captures<'_, str>) {
    tape.array(2 * found.len() as u32);
    for index in 0..found.len() {
        match found.get(index) {
            Some(group) => tape.int(group.start() as i64).int(group.end() as i64),
            None => tape.nil().nil(),
        };
    }
}

/// `key`: returns `[groups, {name => [numbers]}]`.
pub(super) fn check(patterns: &Patterns, args: &[TapeValue<'_>], tape: &mut Tape) {
    match patterns.get(args.first().and_then(TapeValue::text).unwrap_or_default()) {
        Ok(pattern) => {
            let mut names: Vec<(&str, Vec<usize>)> = Vec::new();
            for (name, number) in &pattern.names {
                match names.iter_mut().find(|(known, _)| known == name) {
                    Some((_, numbers)) => numbers.push(*number),
                    None => names.push((name, vec![*number])),
                }
            }
            tape.array(2).int(pattern.groups as i64).hash(names.len() as u32);
            for (name, numbers) in names {
                tape.str(name).array(numbers.len() as u32);
                for number in numbers {
                    tape.int(number as i64);
                }
            }
        }
        Err((class, message)) => drop_answer(tape.fault(class, message)),
    }
}

fn drop_answer(_: &mut Tape) {}

/// `key, text, from, anchored`: returns offsets, or nil.
pub(super) fn find(patterns: &Patterns, args: &[TapeValue<'_>], tape: &mut Tape) {
    let result = search(patterns, args).and_then(|search| {
        let Some(from) = search.from else { return Ok(None) };
        search.pattern.find(search.text, from, args.get(3) == Some(&TapeValue::Bool(true)))
    });
    let result = result.map(|found| match found {
        Some(found) => put(tape, &found),
        None => drop_answer(tape.nil()),
    });
    finish(tape, result);
}

/// `key, text, from`: returns whether the pattern matches.
pub(super) fn test(patterns: &Patterns, args: &[TapeValue<'_>], tape: &mut Tape) {
    let result = search(patterns, args).and_then(|search| {
        let Some(from) = search.from else { return Ok(false) };
        let input = RegexInput::new(search.text).from_pos(from);
        search.pattern.regex(search.text)?.is_match_input(input).map_err(limit_exceeded)
    });
    let result = result.map(|matches| drop_answer(tape.bool(matches)));
    finish(tape, result);
}

/// `key, text, from`: returns offsets of the last match that starts at `from` or before.
pub(super) fn last(patterns: &Patterns, args: &[TapeValue<'_>], tape: &mut Tape) {
    let result = search(patterns, args).and_then(|search| {
        let Some(from) = search.from else { return Ok(None) };
        let started = Instant::now();
        for from in (0..=from).rev().filter(|from| search.text.is_char_boundary(*from)) {
            if let Some(found) = search.pattern.find(search.text, from, true)? {
                return Ok(Some(found));
            }
            if started.elapsed() > BUDGET {
                return Err(("RegexpError", format!("matching took more than {} s", BUDGET.as_secs_f32())));
            }
        }
        Ok(None)
    });
    let result = result.map(|found| match found {
        Some(found) => put(tape, &found),
        None => drop_answer(tape.nil()),
    });
    finish(tape, result);
}

/// `key, text, from, most`: returns `[where to continue or nil, offsets, ...]`.
pub(super) fn all(patterns: &Patterns, args: &[TapeValue<'_>], tape: &mut Tape) {
    let most = args.get(3).and_then(TapeValue::int).unwrap_or(1);
    let result = search(patterns, args).and_then(|search| {
        let mut matches = Vec::new();
        let further = match search.from {
            Some(from) => search.pattern.each(search.text, from, |found| {
                matches.push(found);
                Ok((matches.len() as i64) < most)
            })?,
            None => None,
        };
        tape.array(1 + matches.len() as u32);
        match further {
            Some(from) => tape.int(from as i64),
            None => tape.nil(),
        };
        matches.iter().for_each(|found| put(tape, found));
        Ok(())
    });
    finish(tape, result);
}

/// `key, text, template, whether all`: returns `[new text, offsets of the last match]`, or nil without a match.
pub(super) fn replace(patterns: &Patterns, args: &[TapeValue<'_>], tape: &mut Tape) {
    let template = args.get(2).and_then(TapeValue::text).unwrap_or_default();
    let all = args.get(3) == Some(&TapeValue::Bool(true));
    let result = search(patterns, &args[..args.len().min(2)]).and_then(|search| {
        let template = replace::Template::read(template, &search.pattern.names)?;
        let (mut out, mut copied, mut last) = (Vec::with_capacity(search.text.len() + 32), 0, None);
        search.pattern.each(search.text, 0, |found| {
            let (start, end) = found.get(0).map_or((0, 0), |whole| (whole.start(), whole.end()));
            out.extend_from_slice(&search.text.as_bytes()[copied..start]);
            template.fill(&mut out, search.text, &found);
            copied = end;
            last = Some(found);
            if out.len() > MAX_OUTPUT {
                return Err(("ArgumentError", format!("the result has more than {MAX_OUTPUT} bytes")));
            }
            Ok(all)
        })?;
        match last {
            Some(found) => {
                out.extend_from_slice(&search.text.as_bytes()[copied..]);
                tape.array(2).str(&out);
                put(tape, &found);
            }
            None => drop_answer(tape.nil()),
        }
        Ok(())
    });
    finish(tape, result);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_pattern_compiles_or_is_refused(source: String, options in b'0'..b'8', text: String) {
            let key = [&[options], source.as_bytes()].concat();
            if let Ok(pattern) = Pattern::of(&key)
                && let Ok(Some(found)) = pattern.find(&text, 0, false)
            {
                prop_assert_eq!(found.len(), pattern.groups + 1);
            }
        }

        #[test]
        fn patterns_with_comments_compile_or_are_refused(source in r"[ab(?#<>x:) \n]{0,20}", options in b'0'..b'8') {
            let key = [&[options], source.as_bytes()].concat();
            if let Ok(pattern) = Pattern::of(&key)
                && let Ok(Some(found)) = pattern.find("ab", 0, false)
            {
                prop_assert_eq!(found.len(), pattern.groups + 1, "{}", pattern.translated);
            }
        }

        #[test]
        fn patterns_of_syntax_compile_or_are_refused(source in r"[ab().*+?|\[\]^$\\dwkg<>{}0-9,:=!&-]{0,20}", text in "[ab\n]{0,8}") {
            let key = [b"0", source.as_bytes()].concat();
            if let Ok(pattern) = Pattern::of(&key)
                && let Ok(Some(found)) = pattern.find(&text, 0, false)
            {
                prop_assert_eq!(found.len(), pattern.groups + 1, "{}", pattern.translated);
            }
        }
    }
}
