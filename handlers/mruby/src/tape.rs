//! Values passed between Ruby and the server, in the format of `mruby-sys/src/shim.h`.
//!
//! Reading borrows: the texts of a [`TapeValue`] point into the tape.

/// The maximum depth of a value; deeper values are refused.
const MAX_DEPTH: usize = 100;

/// A value on a tape.
#[derive(Debug, Clone, PartialEq)]
pub enum TapeValue<'a> {
    /// `nil`
    Nil,
    /// `true`, `false`
    Bool(bool),
    /// Integer
    Int(i64),
    Float(f64),
    /// String: bytes of any encoding
    Str(&'a [u8]),
    /// Symbol
    Sym(&'a [u8]),
    Array(Vec<TapeValue<'a>>),
    /// Hash, in its order
    Hash(Vec<(TapeValue<'a>, TapeValue<'a>)>),
}

impl<'a> TapeValue<'a> {
    /// Reads the only value of a tape. `None` if it is malformed.
    pub fn read(tape: &'a [u8]) -> Option<TapeValue<'a>> {
        let mut reader = Reader { rest: tape };
        let value = reader.value(0)?;
        reader.rest.is_empty().then_some(value)
    }

    /// Returns the bytes of a String or Symbol.
    pub fn text(&self) -> Option<&'a [u8]> {
        match self {
            TapeValue::Str(text) | TapeValue::Sym(text) => Some(text),
            _ => None,
        }
    }

    /// Returns an Integer, or a Float without a fraction.
    pub fn int(&self) -> Option<i64> {
        match self {
            TapeValue::Int(number) => Some(*number),
            TapeValue::Float(number) if number.fract() == 0.0 && number.abs() < 9e15 => Some(*number as i64),
            _ => None,
        }
    }

    /// Returns an Integer or a Float.
    pub fn float(&self) -> Option<f64> {
        match self {
            TapeValue::Int(number) => Some(*number as f64),
            TapeValue::Float(number) => Some(*number),
            _ => None,
        }
    }

    /// Returns the elements of an Array.
    pub fn array(&self) -> Option<&[TapeValue<'a>]> {
        match self {
            TapeValue::Array(values) => Some(values),
            _ => None,
        }
    }
}

/// Reads a tape from its start, where building a [`TapeValue`] would cost too much.
#[derive(Debug, Clone, Copy)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Returns a reader at the start of a tape.
    pub fn new(tape: &'a [u8]) -> Reader<'a> {
        Reader { rest: tape }
    }

    /// Reads the head of an Array and returns the number of its elements, which follow. Returns `None` and
    /// reads nothing if the next value is not an Array.
    pub fn array(&mut self) -> Option<usize> {
        self.tagged(b'[', Reader::count)
    }

    /// Reads an Integer. Returns `None` and reads nothing if the next value is not one.
    pub fn int(&mut self) -> Option<i64> {
        self.tagged(b'i', |reader| reader.eight().map(i64::from_ne_bytes))
    }

    /// Reads the bytes of a String or Symbol. Returns `None` and reads nothing if the next value is neither.
    pub fn text(&mut self) -> Option<&'a [u8]> {
        let tag = *self.rest.first().filter(|tag| matches!(tag, b's' | b':'))?;
        self.tagged(tag, |reader| {
            let length = reader.count()?;
            reader.bytes(length)
        })
    }

    /// Reads the next value.
    pub fn any(&mut self) -> Option<TapeValue<'a>> {
        self.value(0)
    }

    fn tagged<T>(&mut self, tag: u8, read: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        let mut ahead = Reader { rest: self.rest.strip_prefix(&[tag])? };
        let given = read(&mut ahead)?;
        *self = ahead;
        Some(given)
    }

    fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(bytes)
    }

    fn eight(&mut self) -> Option<[u8; 8]> {
        self.bytes(8)?.try_into().ok()
    }

    fn count(&mut self) -> Option<usize> {
        Some(u32::from_ne_bytes(self.bytes(4)?.try_into().ok()?) as usize)
    }

    fn value(&mut self, depth: usize) -> Option<TapeValue<'a>> {
        if depth > MAX_DEPTH {
            return None;
        }
        Some(match self.bytes(1)?[0] {
            b'n' => TapeValue::Nil,
            b't' => TapeValue::Bool(true),
            b'f' => TapeValue::Bool(false),
            b'i' => TapeValue::Int(i64::from_ne_bytes(self.eight()?)),
            b'd' => TapeValue::Float(f64::from_ne_bytes(self.eight()?)),
            b's' => {
                let length = self.count()?;
                TapeValue::Str(self.bytes(length)?)
            }
            b':' => {
                let length = self.count()?;
                TapeValue::Sym(self.bytes(length)?)
            }
            b'[' => {
                let count = self.count()?;
                // The count may be larger than the rest of the tape.
                let mut values = Vec::with_capacity(count.min(self.rest.len()));
                for _ in 0..count {
                    values.push(self.value(depth + 1)?);
                }
                TapeValue::Array(values)
            }
            b'{' => {
                let count = self.count()?;
                let mut pairs = Vec::with_capacity(count.min(self.rest.len()));
                for _ in 0..count {
                    pairs.push((self.value(depth + 1)?, self.value(depth + 1)?));
                }
                TapeValue::Hash(pairs)
            }
            _ => return None,
        })
    }
}

/// A tape to write on.
#[derive(Debug, Default, Clone)]
pub struct Tape {
    bytes: Vec<u8>,
}

impl Tape {
    pub fn new() -> Tape {
        Tape::default()
    }

    /// Returns the written bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Removes the content but keeps the memory.
    pub fn clear(&mut self) -> &mut Tape {
        self.bytes.clear();
        self
    }

    /// Ends a chain of calls.
    pub fn done(&mut self) {}

    pub fn nil(&mut self) -> &mut Tape {
        self.bytes.push(b'n');
        self
    }

    pub fn bool(&mut self, value: bool) -> &mut Tape {
        self.bytes.push(if value { b't' } else { b'f' });
        self
    }

    pub fn int(&mut self, value: i64) -> &mut Tape {
        self.bytes.push(b'i');
        self.bytes.extend_from_slice(&value.to_ne_bytes());
        self
    }

    pub fn float(&mut self, value: f64) -> &mut Tape {
        self.bytes.push(b'd');
        self.bytes.extend_from_slice(&value.to_ne_bytes());
        self
    }

    /// Writes a String. Bytes beyond 4 GiB are cut off.
    pub fn str(&mut self, text: impl AsRef<[u8]>) -> &mut Tape {
        self.text(b's', text.as_ref())
    }

    pub fn sym(&mut self, name: &str) -> &mut Tape {
        self.text(b':', name.as_bytes())
    }

    /// Begins an Array of the next `count` values.
    pub fn array(&mut self, count: u32) -> &mut Tape {
        self.bytes.push(b'[');
        self.bytes.extend_from_slice(&count.to_ne_bytes());
        self
    }

    /// Begins a Hash of the next `count` pairs.
    pub fn hash(&mut self, count: u32) -> &mut Tape {
        self.bytes.push(b'{');
        self.bytes.extend_from_slice(&count.to_ne_bytes());
        self
    }

    /// Writes an exception of the class `class` (a path below Object, such as `Redis::CommandError`).
    pub fn fault(&mut self, class: &str, message: impl AsRef<[u8]>) -> &mut Tape {
        self.bytes.push(b'!');
        self.str(class).str(message)
    }

    pub fn value(&mut self, value: &TapeValue<'_>) -> &mut Tape {
        match value {
            TapeValue::Nil => self.nil(),
            TapeValue::Bool(value) => self.bool(*value),
            TapeValue::Int(number) => self.int(*number),
            TapeValue::Float(number) => self.float(*number),
            TapeValue::Str(text) => self.str(text),
            TapeValue::Sym(name) => self.text(b':', name),
            TapeValue::Array(values) => {
                self.array(values.len() as u32);
                values.iter().fold(self, Tape::value)
            }
            TapeValue::Hash(pairs) => {
                self.hash(pairs.len() as u32);
                pairs.iter().fold(self, |tape, (key, value)| tape.value(key).value(value))
            }
        }
    }

    fn text(&mut self, tag: u8, text: &[u8]) -> &mut Tape {
        let length = u32::try_from(text.len()).unwrap_or(u32::MAX);
        self.bytes.reserve(5 + length as usize);
        self.bytes.push(tag);
        self.bytes.extend_from_slice(&length.to_ne_bytes());
        self.bytes.extend_from_slice(&text[..length as usize]);
        self
    }
}
