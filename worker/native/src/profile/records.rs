//! The records of a profile: frames, stacks as a tree, requests and samples, numbered and written as [`wire::profile`] says.
//!
//! Limits of a worker: [`MOST_NODES`], [`MOST_REQUESTS`] and [`MOST_BYTES`]. The rest is cut off or left out, and the profile says so.

use crate::raw::gvl::Gvl;
use crate::raw::ruby::Value;
use crate::raw::sampling::Frame;
use crate::raw::slots::RootSlot;
use crate::worker::worker;
use rustc_hash::FxBuildHasher;
use std::collections::HashMap;
use wire::profile::{MOST_NODES, Record, SampledState};

/// The most requests with samples.
const MOST_REQUESTS: u32 = 100_000;
/// The most bytes that a worker sends for one profile.
const MOST_BYTES: usize = 16 << 20;

/// Slots that keep frames of earlier profiles, for reuse.
static SPARE: crate::raw::gvl::Guarded<Vec<&'static RootSlot>> = crate::raw::gvl::Guarded::new(Vec::new());

pub(super) struct Recorder {
    out: Vec<u8>,
    /// The bytes that have been written.
    written: usize,
    truncated: bool,
    /// Numbers of frames, by the objects that stand for their code.
    by_object: HashMap<usize, u32, FxBuildHasher>,
    kept: Vec<&'static RootSlot>,
    spare: Vec<&'static RootSlot>,
    /// Numbers of frames, by path, a zero byte and label.
    by_name: HashMap<Box<[u8]>, u32, FxBuildHasher>,
    /// The frames in whose callers the server's own code begins.
    outermost: Vec<u32>,
    /// Whether each frame is a function in C, by number less one.
    native: Vec<bool>,
    count: u32,
    /// Numbers of frames and lines, by the lines of backtraces.
    by_line: HashMap<Box<[u8]>, (u32, u32), FxBuildHasher>,
    nodes: HashMap<(u32, u32, u32), u32, FxBuildHasher>,
    /// Whether the frame of each node is in Ruby, by number less one.
    in_ruby: Vec<bool>,
    requests: u32,
    /// The samples since the last cut.
    samples: HashMap<(u32, u32, u8), u32, FxBuildHasher>,
    /// A stack, between two calls of Ruby.
    pub(super) frames: Vec<Frame>,
}

impl Recorder {
    pub(super) fn new(gvl: &Gvl) -> Recorder {
        worker(gvl, |w| w.tasks.iter().for_each(|task| task.thread.seat.begin(gvl)));
        Recorder {
            out: Vec::new(),
            written: 0,
            truncated: false,
            by_object: HashMap::default(),
            kept: Vec::new(),
            spare: SPARE.with(gvl, std::mem::take),
            by_name: HashMap::default(),
            outermost: Vec::new(),
            native: Vec::new(),
            count: 0,
            by_line: HashMap::default(),
            nodes: HashMap::default(),
            in_ruby: Vec::new(),
            requests: 0,
            samples: HashMap::default(),
            frames: Vec::new(),
        }
    }

    /// Lets the frames' objects go.
    pub(super) fn retire(self, gvl: &Gvl) {
        let slots = self.kept.into_iter().chain(self.spare);
        let slots = slots.inspect(|slot| slot.set(crate::raw::ruby::NIL)).collect();
        SPARE.with(gvl, |spare| *spare = slots);
    }

    pub(super) fn bytes(&self) -> usize {
        self.out.len()
    }

    /// Returns a slot for a frame's object, if one is free.
    pub(super) fn spare_slot(&mut self) -> Option<&'static RootSlot> {
        self.spare.pop()
    }

    /// Returns the frames of the stack that have no number, each once.
    pub(super) fn unknown(&self) -> Vec<Value> {
        let mut unknown: Vec<Value> = Vec::new();
        for (frame, _) in &self.frames {
            let id = frame.id();
            if !self.by_object.contains_key(&id) && unknown.iter().all(|other| other.id() != id) {
                unknown.push(*frame);
            }
        }
        unknown
    }

    /// Returns the node of the stack, whose frames have numbers.
    pub(super) fn stack(&mut self) -> u32 {
        let mut node = 0;
        for (frame, line) in std::mem::take(&mut self.frames).into_iter().rev() {
            let number = self.by_object.get(&frame.id()).copied();
            node = number.map_or(node, |number| self.node(node, number, line));
        }
        node
    }

    /// Gives a frame a number. `slot` holds its object.
    pub(super) fn named(
        &mut self,
        object: Value,
        slot: &'static RootSlot,
        path: &[u8],
        label: &[u8],
        full: &[u8],
    ) {
        self.kept.push(slot);
        let path = if is_internal(path) { b"" } else { path };
        let number = self.frame(path, label, full);
        self.by_object.insert(object.id(), number);
    }

    fn frame(&mut self, path: &[u8], label: &[u8], full: &[u8]) -> u32 {
        let key = [path, b"\0", label, b"\0", full].concat().into_boxed_slice();
        if let Some(number) = self.by_name.get(&key) {
            return *number;
        }
        self.count += 1;
        self.by_name.insert(key, self.count);
        if is_outermost(path, label, full) {
            self.outermost.push(self.count);
        }
        self.native.push(path.is_empty());
        self.write(&Record::Frame { path, label, full });
        self.count
    }

    /// Returns the number of the place below `parent`. Beyond the limit, the place is that of `parent`.
    pub(super) fn node(&mut self, parent: u32, frame: u32, line: u32) -> u32 {
        if self.outermost.contains(&frame) {
            return 0;
        }
        let native = self.native.get((frame as usize).saturating_sub(1)).copied().unwrap_or(false);
        let line = if native { 0 } else { line };
        let number = self.nodes.len() as u32 + 1;
        if let Some(node) = self.nodes.get(&(parent, frame, line)) {
            return *node;
        }
        if number > MOST_NODES || self.is_full() {
            self.truncate();
            return parent;
        }
        self.nodes.insert((parent, frame, line), number);
        self.in_ruby.push(!native);
        self.write(&Record::Node { parent, frame, line });
        number
    }

    /// Returns whether the innermost frame is in Ruby.
    pub(super) fn is_ruby(&self, node: u32) -> bool {
        let at = (node as usize).checked_sub(1);
        at.and_then(|at| self.in_ruby.get(at)).copied().unwrap_or(false)
    }

    /// Returns the node of a backtrace, the innermost call first.
    pub(super) fn backtrace(&mut self, lines: &[&[u8]]) -> u32 {
        let mut node = 0;
        // The thread itself may be reading a stack for the profile.
        let asked = lines.iter().take_while(|line| parse(line).label.ends_with(b"backtrace")).count();
        let lines = &lines[asked..];
        // The part of the server that lets other fibers run. It stands for the function in C that the app has called.
        let inner = lines.iter().take_while(|line| is_scheduler(parse(line).path)).count();
        let (inner, lines) = lines.split_at(inner);
        let (mut caller, mut waits) = (None, false);
        for line in lines.iter().rev() {
            let place = parse(line);
            waits = caller.as_ref().is_some_and(|caller| is_native(&place, caller));
            let (frame, number) = self.line(line, &place, waits);
            node = self.node(node, frame, number);
            caller = caller.filter(|caller: &Line<'_>| place.is_at(caller)).or(Some(place));
        }
        if let Some(called) = inner.last().filter(|_| !waits) {
            let frame = self.frame(b"", method(parse(called).label), b"");
            node = self.node(node, frame, 0);
        }
        node
    }

    /// Returns the frame and the line number of a line of a backtrace.
    fn line(&mut self, line: &[u8], place: &Line<'_>, native: bool) -> (u32, u32) {
        let key = [&[u8::from(native)], line].concat().into_boxed_slice();
        if let Some(known) = self.by_line.get(&key) {
            return *known;
        }
        let native = native || is_internal(place.path);
        let (path, number) = if native { (&b""[..], 0) } else { (place.path, place.line) };
        let known = (self.frame(path, method(place.label), b""), number);
        self.by_line.insert(key, known);
        known
    }

    pub(super) fn request(&mut self, link: u32, id: u32, method: &[u8], path: &[u8]) -> u32 {
        if self.requests == MOST_REQUESTS || self.is_full() {
            self.truncate();
            return 0;
        }
        self.requests += 1;
        self.write(&Record::Request { link, id, method, path });
        self.requests
    }

    pub(super) fn ended(&mut self, request: u32, us: u64, route: &[u8]) {
        self.write(&Record::Ended { request, us, route });
    }

    pub(super) fn sample(&mut self, node: u32, request: u32, seen: SampledState, us: u32) {
        let sum = self.samples.entry((node, request, seen as u8)).or_default();
        *sum = sum.saturating_add(us);
    }

    /// Cuts off what has been recorded since the last time.
    pub(super) fn cut(&mut self, requests: u64, ticks: u64, late: u64) -> Vec<u8> {
        for ((node, request, seen), us) in std::mem::take(&mut self.samples) {
            if self.is_full() {
                self.truncate();
                break;
            }
            let seen = SampledState::ALL[usize::from(seen)];
            self.write(&Record::Sample { node, request, seen, us });
        }
        self.write(&Record::Totals { requests, ticks, late });
        std::mem::take(&mut self.out)
    }

    /// Records that the worker cannot take a profile.
    pub(super) fn lacks(&mut self, what: &[u8]) {
        self.write(&Record::Lacks { what });
    }

    fn is_full(&self) -> bool {
        self.written >= MOST_BYTES
    }

    fn truncate(&mut self) {
        if !std::mem::replace(&mut self.truncated, true) {
            self.write(&Record::Truncated);
        }
    }

    fn write(&mut self, record: &Record<'_>) {
        let before = self.out.len();
        record.write(&mut self.out);
        self.written += self.out.len() - before;
    }
}

/// Returns whether the frame is the last of the server's own above the app: all that called it is left out.
fn is_outermost(path: &[u8], label: &[u8], full: &[u8]) -> bool {
    full == b"Firebrick::Native.serve"
        || full == b"Firebrick::Native.fiber_body"
        || (path.ends_with(b"/firebrick/worker.rb") && (label == b"serve" || label.ends_with(b"#serve")))
        || (path.ends_with(b"/firebrick/fibers.rb") && label.starts_with(b"block "))
}

/// A line of a backtrace.
struct Line<'a> {
    path: &'a [u8],
    line: u32,
    label: &'a [u8],
}

impl Line<'_> {
    fn is_at(&self, other: &Line<'_>) -> bool {
        self.path == other.path && self.line == other.line
    }
}

/// Reads ``path:line:in `label'``, since Ruby 3.4 `path:line:in 'label'`.
fn parse(text: &[u8]) -> Line<'_> {
    let find = |what: &[u8]| text.windows(what.len()).rposition(|window| window == what);
    let at = find(b":in `").or_else(|| find(b":in '"));
    let (place, label) = at.map_or((text, &b""[..]), |at| (&text[..at], &text[at + 5..]));
    let label = label.strip_suffix(b"'").unwrap_or(label);
    let colon = place.iter().rposition(|byte| *byte == b':');
    let number = colon.and_then(|at| std::str::from_utf8(&place[at + 1..]).ok()?.parse().ok());
    match (colon, number) {
        (Some(colon), Some(line)) => Line { path: &place[..colon], line, label },
        _ => Line { path: place, line: 0, label },
    }
}

/// Returns the method of a label, as `rb_profile_frames` does: a block in a method is the method.
fn method(label: &[u8]) -> &[u8] {
    let parts = [&b"block "[..], b"rescue in ", b"ensure in "];
    let within = label.windows(4).rposition(|window| window == b" in ").map(|at| &label[at + 4..]);
    match within {
        Some(method) if parts.iter().any(|part| label.starts_with(part)) && !method.starts_with(b"<") => {
            method
        }
        _ => label,
    }
}

/// Returns whether the path is that of Ruby's own methods in Ruby, which count as functions in C.
fn is_internal(path: &[u8]) -> bool {
    path.starts_with(b"<internal:")
}

/// Returns whether the file is a part of the scheduler of fibers.
fn is_scheduler(path: &[u8]) -> bool {
    const FOLDER: &[u8] = b"/firebrick/fibers/";
    path.windows(FOLDER.len()).any(|window| window == FOLDER)
}

/// Returns whether the line is that of a function in C, which a backtrace shows at the place of its caller in Ruby. `caller`: the outermost
/// line there. A line with its label is that method again.
fn is_native(place: &Line<'_>, caller: &Line<'_>) -> bool {
    let in_ruby = [&b"block "[..], b"rescue in", b"ensure in", b"<"];
    place.is_at(caller)
        && !in_ruby.iter().any(|prefix| place.label.starts_with(prefix))
        && method(place.label) != method(caller.label)
}
