//! The heap of a worker: the stream that its forked child writes, read into counts by class and place.
//!
//! The stream is a sequence of lines of JSON: those of Ruby's `ObjectSpace.dump_all`, and some of the worker's own
//! (`worker/lib/firebrick/heap.rb`): `stopped_us`, `before` and `after` the child's collection, and as the last one `done` or `error`. While
//! allocations are recorded, lines with `route` and `name` number the routes, and the lines of objects have such a number (`server/ground/wire/src/dump.rs`).
//!
//! Contract:
//! 1. [`HeapReader`] takes any bytes. Its memory is bounded by the numbers of classes, places and routes, not by the length of the stream or
//!    of a line, and all these numbers are bounded.
//! 2. The content of an object is never kept, except for masked beginnings of Strings if they were asked for.
//! 3. A stream without `done` is an error, whatever it had before.

use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt::Write as _;

/// The most groups of a snapshot; the largest are kept.
const MOST_GROUPS: usize = 20_000;
/// The most groups and classes while a stream is read. Further ones count as `(other)`.
const MOST_READ: usize = 500_000;
/// Lines of more bytes lose their references and the content of the String; those that are still longer are skipped.
const LONG: usize = 64 << 10;
/// The most examples of a group, and the most characters of one.
const EXAMPLES: usize = 3;
const EXAMPLE: usize = 60;
/// The longest chain of classes that is followed to a name.
const CHAIN: usize = 64;
/// The longest name of a route, in bytes.
const LONGEST_ROUTE: usize = 200;

/// The wishes of a client about a worker's heap, as the query of `POST /heap`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HeapWish {
    /// The number of the worker; `None`: the one with the most memory.
    pub worker: Option<u32>,
    /// Its process id. If another process has its place, the order fails.
    pub pid: Option<u32>,
    /// Record for so many seconds where objects are allocated; 0: no longer.
    pub trace_s: Option<u32>,
    /// Only start or end the recording.
    pub without_dump: bool,
    /// Keep masked beginnings of Strings.
    pub examples: bool,
}

/// The line that answers it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HeapLine {
    Heap(Box<HeapSnapshot>),
    /// Why there is none.
    #[serde(alias = "error")]
    Failed(String),
}

/// The heap of a worker at one moment, after a full collection in a forked child.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HeapSnapshot {
    pub worker: u32,
    pub pid: u32,
    /// Requests that it had finished.
    pub requests: u64,
    /// Its resident memory.
    pub rss_bytes: u64,
    /// How long the worker stood still for the fork.
    pub stopped_ms: f64,
    /// How long the child took for its collection and its dump.
    pub dump_ms: f64,
    /// The length of the stream.
    pub dump_bytes: u64,
    /// Before the child's collection, as the worker was.
    pub before: HeapFigures,
    /// After it.
    pub after: HeapFigures,
    pub objects: u64,
    /// The memory of these objects, with what they hold from malloc.
    pub bytes: u64,
    /// Lines of the stream that could not be read.
    pub unreadable: u64,
    /// The largest group that is not listed, in bytes; 0 if all are.
    pub unlisted_bytes: u64,
    /// Objects by class and place, the most bytes first.
    pub groups: Vec<HeapGroup>,
}

/// The objects of a group that requests of one route have allocated.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HeapRoute {
    /// `(other)`: requests without a route; `(none)`: code that serves no request; `(unknown)`: it was not recorded.
    pub route: String,
    pub count: u64,
    pub bytes: u64,
}

/// The figures of Ruby's heap and of malloc.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HeapFigures {
    /// The pages of Ruby's heap.
    pub pages_bytes: u64,
    pub live_slots: u64,
    pub free_slots: u64,
    /// `None`: the allocator does not tell.
    pub allocator: Option<String>,
    /// The memory that malloc has from the system.
    pub malloc_held: Option<u64>,
    /// The part of it that is in use.
    pub malloc_used: Option<u64>,
    /// Whether allocations are being recorded.
    pub traced: bool,
}

/// Objects of one class, allocated in one place.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HeapGroup {
    pub class: String,
    /// `FILE:LINE`; `None` if it was not recorded.
    pub at: Option<String>,
    pub count: u64,
    pub bytes: u64,
    /// The same by route, the most bytes first, if places were recorded.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<HeapRoute>,
    /// Masked beginnings of some of its Strings, if asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub examples: Vec<String>,
}

/// The object in which Ruby notes where objects were allocated: it grows with each of them as long as places are recorded, which is no leak
/// of the app.
const TRACER: &str = "ObjectTracing/allocation_info_tracer";

/// The fields of a line that count.
#[derive(Deserialize)]
struct Line<'a> {
    #[serde(rename = "type", borrow)]
    kind: Option<Cow<'a, str>>,
    #[serde(borrow)]
    address: Option<Cow<'a, str>>,
    #[serde(borrow)]
    class: Option<Cow<'a, str>>,
    #[serde(borrow)]
    superclass: Option<Cow<'a, str>>,
    #[serde(borrow)]
    name: Option<Cow<'a, str>>,
    #[serde(default)]
    singleton: bool,
    #[serde(borrow)]
    imemo_type: Option<Cow<'a, str>>,
    /// The kind of an object of an extension in C.
    #[serde(rename = "struct", borrow)]
    data: Option<Cow<'a, str>>,
    memsize: Option<u64>,
    #[serde(borrow)]
    file: Option<Cow<'a, str>>,
    line: Option<u64>,
    route: Option<u16>,
    stopped_us: Option<u64>,
    before: Option<HeapFigures>,
    after: Option<HeapFigures>,
    done: Option<bool>,
    error: Option<String>,
}

/// The content of a String.
#[derive(Deserialize)]
struct Content<'a> {
    #[serde(borrow)]
    value: Option<Cow<'a, str>>,
}

/// A class, by its address in the heap.
struct HeapClass {
    name: Option<String>,
    superclass: u64,
    singleton: bool,
}

#[derive(Default)]
struct Counted {
    count: u64,
    bytes: u64,
    examples: Vec<String>,
}

/// A number and the bytes of so many objects.
type Sum = (u64, u64);

/// The mark of an omission in a long line.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Skip {
    Nothing,
    /// Until the end of the references.
    References,
    /// Until the end of the String's content; `escaped`: the next byte is the second one of an escape.
    Content {
        escaped: bool,
    },
    /// Until the end of the line.
    Line,
}

/// Reads a stream.
pub struct HeapReader {
    examples: bool,
    /// The part of a line that has come.
    part: Vec<u8>,
    skip: Skip,
    snapshot: HeapSnapshot,
    classes: HashMap<u64, HeapClass>,
    /// Groups by class (its address, or a number in `labels`) and place (a number in `places`).
    groups: HashMap<(u64, u32), Counted>,
    places: HashMap<String, u32>,
    /// Parts of the groups by the numbers of routes; `None`: not recorded.
    parts: HashMap<(u64, u32, Option<u16>), Sum>,
    /// Names of the routes, by number; empty if the dump has no routes.
    routes: HashMap<u16, String>,
    /// Names for objects without a class of their own.
    labels: Vec<String>,
    done: bool,
    error: Option<String>,
}

/// The place that is not known.
const NOWHERE: u32 = 0;
/// The name of a route that is not known.
const UNKNOWN: &str = "(unknown)";

impl HeapRoute {
    /// Returns the routes of a group, the most bytes first.
    fn all(sums: HashMap<&str, Sum>) -> Vec<HeapRoute> {
        let route =
            |(route, (count, bytes)): (&str, Sum)| HeapRoute { route: route.to_owned(), count, bytes };
        let mut all: Vec<HeapRoute> = sums.into_iter().map(route).collect();
        all.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.route.cmp(&b.route)));
        all
    }
}

impl HeapReader {
    /// `examples`: keep masked beginnings of Strings.
    pub fn new(examples: bool) -> HeapReader {
        HeapReader {
            examples,
            part: Vec::new(),
            skip: Skip::Nothing,
            snapshot: HeapSnapshot::default(),
            classes: HashMap::new(),
            groups: HashMap::new(),
            places: HashMap::new(),
            parts: HashMap::new(),
            routes: HashMap::new(),
            labels: vec!["(other)".to_owned()],
            done: false,
            error: None,
        }
    }

    /// Reads the next bytes of the stream.
    pub fn read(&mut self, mut bytes: &[u8]) {
        self.snapshot.dump_bytes += bytes.len() as u64;
        while !bytes.is_empty() {
            bytes = match self.skip {
                Skip::Nothing => self.read_line(bytes),
                Skip::References => self.skip_to(bytes, |byte| byte == b']'),
                Skip::Content { escaped } => self.skip_content(bytes, escaped),
                Skip::Line => self.skip_to(bytes, |_| false),
            };
        }
    }

    /// Returns the snapshot when the stream has ended.
    ///
    /// # Errors
    /// The stream is not complete; the text says why, as far as it is known.
    pub fn finish(mut self) -> Result<HeapSnapshot, String> {
        if let Some(error) = self.error {
            return Err(error);
        }
        if !self.done {
            return Err("the worker ended before its dump was complete".to_owned());
        }
        let mut names: HashMap<u64, String> = HashMap::new();
        let mut places = vec![None; self.places.len() + 1];
        for (place, number) in std::mem::take(&mut self.places) {
            places[number as usize] = Some(place);
        }
        // Several classes may share a name: singleton classes, and classes that were defined again.
        let mut merged: HashMap<(String, u32), Counted> = HashMap::new();
        for ((class, place), counted) in std::mem::take(&mut self.groups) {
            let name = names.entry(class).or_insert_with(|| self.name(class)).clone();
            let into = merged.entry((name, place)).or_default();
            into.count += counted.count;
            into.bytes = into.bytes.saturating_add(counted.bytes);
            into.examples.extend(counted.examples);
            into.examples.truncate(EXAMPLES);
        }
        let mut routes: HashMap<(String, u32), HashMap<&str, Sum>> = HashMap::new();
        for ((class, place, route), (count, bytes)) in std::mem::take(&mut self.parts) {
            let name = names.entry(class).or_insert_with(|| self.name(class)).clone();
            let route = route.and_then(|route| self.routes.get(&route)).map_or(UNKNOWN, String::as_str);
            let sum = routes.entry((name, place)).or_default().entry(route).or_default();
            *sum = (sum.0 + count, sum.1.saturating_add(bytes));
        }
        let group = |(key, Counted { count, bytes, examples }): ((String, u32), Counted)| {
            let routes = HeapRoute::all(routes.remove(&key).unwrap_or_default());
            HeapGroup { class: key.0, at: places[key.1 as usize].clone(), count, bytes, routes, examples }
        };
        let mut groups: Vec<HeapGroup> = merged.into_iter().map(group).collect();
        groups.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| (&a.class, &a.at).cmp(&(&b.class, &b.at))));
        self.snapshot.unlisted_bytes = groups.get(MOST_GROUPS).map_or(0, |group| group.bytes);
        groups.truncate(MOST_GROUPS);
        self.snapshot.groups = groups;
        Ok(self.snapshot)
    }

    /// Reads to the end of a line, or keeps all bytes as the part of one. Returns the rest.
    fn read_line<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let Some(end) = bytes.iter().position(|&byte| byte == b'\n') else {
            self.part.extend_from_slice(bytes);
            if self.part.len() > LONG {
                self.shorten();
            }
            return &[];
        };
        if self.part.is_empty() {
            self.line(&bytes[..end]);
        } else {
            self.part.extend_from_slice(&bytes[..end]);
            self.end_line();
        }
        &bytes[end + 1..]
    }

    fn end_line(&mut self) {
        let mut part = std::mem::take(&mut self.part);
        self.line(&part);
        part.clear();
        self.part = part;
    }

    /// Decides what to leave out of the line, which is long.
    fn shorten(&mut self) {
        const REFERENCES: &[u8] = br#""references":["#;
        const VALUE: &[u8] = br#""value":""#;
        // A quotation mark within a String is escaped, so neither is found in one.
        let find = |part: &[u8], what: &[u8]| {
            let at = part.windows(what.len()).rposition(|window| window == what)?;
            Some(at + what.len())
        };
        if let Some(from) = find(&self.part, REFERENCES) {
            match self.part[from..].iter().position(|&byte| byte == b']') {
                None => {
                    self.part.truncate(from);
                    self.skip = Skip::References;
                    return;
                }
                Some(end) => drop(self.part.drain(from..from + end)),
            }
        }
        if let Some(from) = find(&self.part, VALUE) {
            match end_of_text(&self.part[from..], false) {
                (None, escaped) => {
                    self.part.truncate(from);
                    self.skip = Skip::Content { escaped };
                    return;
                }
                (Some(end), _) => drop(self.part.drain(from..from + end)),
            }
        }
        if self.part.len() > LONG {
            self.part.clear();
            self.snapshot.unreadable += 1;
            self.skip = Skip::Line;
        }
    }

    /// Skips to such a byte, or to the end of the line.
    fn skip_to<'a>(&mut self, bytes: &'a [u8], ends: impl Fn(u8) -> bool) -> &'a [u8] {
        match bytes.iter().position(|&byte| byte == b'\n' || ends(byte)) {
            Some(at) => self.go_on(&bytes[at..]),
            None => &[],
        }
    }

    fn skip_content<'a>(&mut self, bytes: &'a [u8], escaped: bool) -> &'a [u8] {
        // The line of a child that was killed may end anywhere.
        let line = bytes.iter().position(|&byte| byte == b'\n');
        let (end, escaped) = end_of_text(&bytes[..line.unwrap_or(bytes.len())], escaped);
        match end.or(line) {
            Some(at) => self.go_on(&bytes[at..]),
            None => {
                self.skip = Skip::Content { escaped };
                &[]
            }
        }
    }

    fn go_on<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let whole = self.skip != Skip::Line;
        self.skip = Skip::Nothing;
        if whole { bytes } else { &bytes[1..] }
    }

    fn line(&mut self, line: &[u8]) {
        if line.iter().all(u8::is_ascii_whitespace) {
            return;
        }
        match serde_json::from_slice::<Line<'_>>(line) {
            Ok(read) => self.take(read, line),
            Err(_) => self.snapshot.unreadable += 1,
        }
    }

    fn take(&mut self, read: Line<'_>, line: &[u8]) {
        let Some(kind) = &read.kind else { return self.take_fact(read) };
        let route = read.route;
        let Some(bytes) = read.memsize else { return };
        if read.data.as_deref() == Some(TRACER) {
            return;
        }
        let class = address(read.class.as_deref());
        if matches!(&**kind, "CLASS" | "MODULE") && self.classes.len() < MOST_READ {
            let named = HeapClass {
                name: read.name.map(Cow::into_owned),
                superclass: address(read.superclass.as_deref()),
                singleton: read.singleton,
            };
            self.classes.insert(address(read.address.as_deref()), named);
        }
        let class = match &**kind {
            "CLASS" => self.label("Class"),
            "MODULE" => self.label("Module"),
            "IMEMO" => {
                let name = format!("(internal: {})", read.imemo_type.as_deref().unwrap_or("imemo"));
                self.label(&name)
            }
            kind if class == 0 => {
                let name = format!("(internal: {})", kind.to_lowercase());
                self.label(&name)
            }
            _ => class,
        };
        let place = match (read.file, read.line) {
            (Some(file), Some(number)) => self.place(&file, number),
            _ => NOWHERE,
        };
        self.snapshot.objects += 1;
        self.snapshot.bytes = self.snapshot.bytes.saturating_add(bytes);
        let full = self.groups.len() >= MOST_READ;
        let key =
            if full && !self.groups.contains_key(&(class, place)) { (0, NOWHERE) } else { (class, place) };
        let counted = self.groups.entry(key).or_default();
        counted.count += 1;
        counted.bytes = counted.bytes.saturating_add(bytes);
        if key.1 != NOWHERE && !self.routes.is_empty() {
            let mut part = (key.0, key.1, route);
            if self.parts.len() >= MOST_READ && !self.parts.contains_key(&part) {
                part.2 = None;
            }
            let sum = self.parts.entry(part).or_default();
            *sum = (sum.0 + 1, sum.1.saturating_add(bytes));
        }
        if self.examples && kind == "STRING" && counted.examples.len() < EXAMPLES {
            counted.examples.extend(example(line));
        }
    }

    fn take_fact(&mut self, read: Line<'_>) {
        if let (Some(route), Some(name)) = (read.route, read.name)
            && name.len() <= LONGEST_ROUTE
        {
            self.routes.insert(route, name.into_owned());
        }
        if let Some(us) = read.stopped_us {
            self.snapshot.stopped_ms = us as f64 / 1e3;
        }
        if let Some(figures) = read.before {
            self.snapshot.before = figures;
        }
        if let Some(figures) = read.after {
            self.snapshot.after = figures;
        }
        self.done |= read.done == Some(true);
        // The first one is nearest to the cause.
        self.error = self.error.take().or(read.error);
    }

    fn label(&mut self, name: &str) -> u64 {
        let at = self.labels.iter().position(|label| label == name).unwrap_or_else(|| {
            // The kinds of Ruby's objects are a few dozen.
            if self.labels.len() == 1_000 {
                return 0;
            }
            self.labels.push(name.to_owned());
            self.labels.len() - 1
        });
        at as u64
    }

    fn place(&mut self, file: &str, line: u64) -> u32 {
        let mut place = String::with_capacity(file.len() + 8);
        // Writing to a String cannot fail.
        let _ = write!(place, "{file}:{line}");
        if let Some(number) = self.places.get(&place) {
            return *number;
        }
        if self.places.len() >= MOST_READ {
            return NOWHERE;
        }
        let number = self.places.len() as u32 + 1;
        self.places.insert(place, number);
        number
    }

    fn name(&self, class: u64) -> String {
        if let Some(label) = usize::try_from(class).ok().and_then(|class| self.labels.get(class)) {
            return label.clone();
        }
        let (mut at, mut anonymous) = (class, false);
        for _ in 0..CHAIN {
            let Some(found) = self.classes.get(&at) else { break };
            match &found.name {
                Some(name) if anonymous => return format!("(anonymous subclass of {name})"),
                Some(name) => return name.clone(),
                None => anonymous |= !found.singleton,
            }
            at = found.superclass;
        }
        "(anonymous class)".to_owned()
    }
}

/// Returns the position of the quotation mark that ends a text, and whether its last byte begins an escape.
fn end_of_text(bytes: &[u8], mut escaped: bool) -> (Option<usize>, bool) {
    for (at, &byte) in bytes.iter().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return (Some(at), false),
            _ => {}
        }
    }
    (None, escaped)
}

/// Reads an address such as `0x7f8d7a70fe68`; 0 if there is none.
fn address(text: Option<&str>) -> u64 {
    text.and_then(|text| u64::from_str_radix(text.strip_prefix("0x")?, 16).ok()).unwrap_or(0)
}

/// Returns the beginning of a String's content, without secrets and control characters.
fn example(line: &[u8]) -> Option<String> {
    let content: Content<'_> = serde_json::from_slice(line).ok()?;
    let value = content.value?;
    let masked = text::masked(&value);
    let shown: String = masked.split_whitespace().map(hidden).collect::<Vec<_>>().join(" ");
    let mut begin: String = shown.chars().filter(|letter| !letter.is_control()).take(EXAMPLE).collect();
    if shown.chars().nth(EXAMPLE).is_some() {
        begin.push('…');
    }
    (!begin.is_empty()).then_some(begin)
}

/// Hides a word that may be a key: it has a long run of letters and digits.
fn hidden(word: &str) -> Cow<'_, str> {
    let runs =
        word.split(|letter: char| !letter.is_ascii_alphanumeric() && !matches!(letter, '+' | '_' | '-'));
    let is_key = |part: &str| {
        part.len() >= 16
            && part.bytes().any(|b| b.is_ascii_digit())
            && part.bytes().any(|b| b.is_ascii_alphabetic())
    };
    if runs.into_iter().any(is_key) { Cow::Borrowed(text::MASK) } else { Cow::Borrowed(word) }
}

#[cfg(test)]
#[path = "heap_tests.rs"]
mod tests;
