//! A profile for pprof: the message `perftools.profiles.Profile` of its `profile.proto`, not compressed, which pprof reads as well.
//!
//! Each sample has the labels `state`, `path` and `route`.

use profile::Profile;
use std::collections::HashMap;

/// The table of strings. The first is empty.
struct Strings {
    numbers: HashMap<String, u64>,
    all: Vec<String>,
}

impl Strings {
    fn new() -> Strings {
        Strings { numbers: HashMap::from([(String::new(), 0)]), all: vec![String::new()] }
    }

    fn number(&mut self, text: &str) -> u64 {
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        let number = self.all.len() as u64;
        self.numbers.insert(text.to_owned(), number);
        self.all.push(text.to_owned());
        number
    }
}

/// A message of protocol buffers.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn number(&mut self, field: u64, value: u64) -> &mut Message {
        self.varint(field << 3);
        self.varint(value);
        self
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) -> &mut Message {
        self.varint(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
        self
    }

    fn packed(&mut self, field: u64, values: impl IntoIterator<Item = u64>) -> &mut Message {
        let mut packed = Message::default();
        values.into_iter().for_each(|value| packed.varint(value));
        self.bytes(field, &packed.0)
    }
}

pub(crate) fn render(profile: &Profile) -> Vec<u8> {
    let (mut strings, mut out) = (Strings::new(), Message::default());
    let value_type = |strings: &mut Strings, kind: &str, unit: &str| {
        let (kind, unit) = (strings.number(kind), strings.number(unit));
        let mut message = Message::default();
        message.number(1, kind).number(2, unit);
        message
    };
    let kind = if profile.clock == "cpu" { "cpu" } else { "wall" };
    let time = value_type(&mut strings, kind, "microseconds");
    out.bytes(1, &time.0);
    // A location is a frame at a line; a function is a frame.
    let mut locations: HashMap<(u32, u32), u64> = HashMap::new();
    let of_stack: Vec<u64> = profile
        .stacks
        .iter()
        .map(|stack| {
            let next = locations.len() as u64 + 1;
            *locations.entry((stack.frame, stack.line)).or_insert(next)
        })
        .collect();
    for sample in &profile.samples {
        let (mut stack, mut at) = (Vec::new(), sample.stack);
        while let Some(number) = at {
            stack.push(of_stack[number as usize]);
            at = profile.stacks[number as usize].parent;
        }
        let mut message = Message::default();
        message.packed(1, stack).packed(2, [sample.us]);
        let request = sample.request.and_then(|at| profile.requests.get(at as usize));
        let labels = [
            ("state", Some(sample.state.name())),
            ("path", request.map(|request| request.path.as_str())),
            ("route", request.map(|request| request.route.as_str()).filter(|route| !route.is_empty())),
        ];
        for (key, value) in labels {
            let Some(value) = value else { continue };
            let mut label = Message::default();
            label.number(1, strings.number(key)).number(2, strings.number(value));
            message.bytes(3, &label.0);
        }
        out.bytes(2, &message.0);
    }
    let mut places: Vec<((u32, u32), u64)> = locations.into_iter().collect();
    places.sort_by_key(|(_, number)| *number);
    for ((frame, line), number) in places {
        let (mut place, mut at) = (Message::default(), Message::default());
        at.number(1, u64::from(frame) + 1).number(2, line.into());
        place.number(1, number).bytes(4, &at.0);
        out.bytes(4, &place.0);
    }
    for (at, frame) in (1..).zip(&profile.frames) {
        let (name, file) =
            (strings.number(&frame.name), strings.number(frame.file.as_deref().unwrap_or_default()));
        let mut function = Message::default();
        function.number(1, at).number(2, name).number(3, name).number(4, file);
        out.bytes(5, &function.0);
    }
    let period = value_type(&mut strings, kind, "microseconds");
    for text in &strings.all {
        out.bytes(6, text.as_bytes());
    }
    let every_us = 1_000_000 / u64::from(profile.hz.max(1));
    out.number(10, (profile.seconds * 1e9) as u64).bytes(11, &period.0).number(12, every_us);
    out.0
}
