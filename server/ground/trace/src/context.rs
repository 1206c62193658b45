//! Parses `traceparent` strictly (W3C Trace Context, level 1, section 3.2), and writes version 00.

use std::fmt;

/// The length of the field in version 00: `00-` 32 digits `-` 16 digits `-` 2 digits.
const LENGTH: usize = 55;
/// The flag that the caller may have recorded its span.
const SAMPLED: u8 = 0x01;
/// The flags of a parent that are passed on: `sampled`, and level 2's `random-trace-id`, which stays true as
/// long as the id is kept.
const KNOWN: u8 = 0x03;

/// The id of a trace; not all zeros.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceId([u8; 16]);

/// The id of a span; not all zeros.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SpanId([u8; 8]);

impl TraceId {
    /// Returns `None` for zeros, which are invalid.
    pub fn new(bytes: [u8; 16]) -> Option<TraceId> {
        (bytes != [0; 16]).then_some(TraceId(bytes))
    }

    pub fn bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// Returns the right half, which is random even in ids that begin with a time.
    pub fn low(&self) -> u64 {
        self.0[8..].iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
    }
}

impl SpanId {
    /// Returns `None` for zeros, which are invalid.
    pub fn new(bytes: [u8; 8]) -> Option<SpanId> {
        (bytes != [0; 8]).then_some(SpanId(bytes))
    }

    pub fn bytes(&self) -> &[u8; 8] {
        &self.0
    }
}

impl fmt::Debug for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The position of a request in a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceParent {
    pub trace: TraceId,
    /// The span that the request belongs to.
    pub span: SpanId,
    /// The flags that this level of the standard defines.
    pub flags: u8,
}

impl TraceParent {
    /// Parses the value of a field without surrounding blanks. Returns `None` if the standard requires a new
    /// trace.
    ///
    /// An unknown version may have more data after the flags, and may use other flags.
    pub fn parse(value: &[u8]) -> Option<TraceParent> {
        let [version] = hex(value.get(..2)?)?;
        let behind = value.get(LENGTH);
        let fits = match version {
            0 => behind.is_none(),
            0xff => false,
            _ => behind.is_none_or(|byte| *byte == b'-'),
        };
        let dashes = [2, 35, 52].iter().all(|at| value.get(*at) == Some(&b'-'));
        if !fits || !dashes {
            return None;
        }
        let trace = TraceId::new(hex(value.get(3..35)?)?)?;
        let span = SpanId::new(hex(value.get(36..52)?)?)?;
        let [flags] = hex(value.get(53..LENGTH)?)?;
        Some(TraceParent { trace, span, flags: flags & if version == 0 { KNOWN } else { SAMPLED } })
    }

    /// Returns whether the caller may have recorded its span.
    pub fn is_sampled(&self) -> bool {
        self.flags & SAMPLED != 0
    }

    /// Sets the sampling decision.
    pub fn sampled(self, sampled: bool) -> TraceParent {
        let flags = self.flags & !SAMPLED | if sampled { SAMPLED } else { 0 };
        TraceParent { flags, ..self }
    }

    /// Returns the value of the field.
    pub fn write(&self) -> [u8; LENGTH] {
        let mut value = *b"00-00000000000000000000000000000000-0000000000000000-00";
        put(&mut value[3..35], &self.trace.0);
        put(&mut value[36..52], &self.span.0);
        put(&mut value[53..], &[self.flags]);
        value
    }
}

/// Decodes lower-case digits only, as the standard requires.
fn hex<const N: usize>(digits: &[u8]) -> Option<[u8; N]> {
    let value = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; N];
    if digits.len() != 2 * N {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = value(pair[0])? << 4 | value(pair[1])?;
    }
    Some(bytes)
}

fn put(to: &mut [u8], bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for (pair, byte) in to.chunks_exact_mut(2).zip(bytes) {
        pair[0] = DIGITS[usize::from(byte >> 4)];
        pair[1] = DIGITS[usize::from(byte & 15)];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const VALID: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn the_standards_example_is_read() {
        let parent = TraceParent::parse(VALID.as_bytes()).unwrap();
        assert_eq!(format!("{:?}", parent.trace), "0af7651916cd43dd8448eb211c80319c");
        assert_eq!((format!("{:?}", parent.span), parent.is_sampled()), ("b7ad6b7169203331".into(), true));
        assert_eq!(parent.trace.low(), 0x8448_eb21_1c80_319c);
        assert!(!parent.sampled(false).is_sampled());
        assert_eq!(parent.sampled(false).sampled(true), parent);
    }

    #[test]
    fn what_is_not_exactly_right_is_refused() {
        let with = |from: &str, to: &str| VALID.replacen(from, to, 1);
        for wrong in [
            String::new(),
            "00".into(),
            VALID[..54].into(),
            format!("{VALID}-"),
            format!("{VALID}-extra"),
            format!(" {VALID}"),
            with("00-", "ff-"),
            with("00-", "0-"),
            with("00-", "0x-"),
            with("-0af", "-0AF"),
            with("-0af", "_0af"),
            with("0af7651916cd43dd8448eb211c80319c", "00000000000000000000000000000000"),
            with("b7ad6b7169203331", "0000000000000000"),
            with("b7ad6b7169203331", "b7ad6b716920333g"),
            with("-01", "-0x"),
            with("-01", "001"),
        ] {
            assert_eq!(TraceParent::parse(wrong.as_bytes()), None, "{wrong}");
        }
    }

    #[test]
    fn newer_versions_are_read_as_far_as_they_are_known() {
        let newer = VALID.replacen("00-", "cc-", 1);
        for value in [newer.clone(), format!("{newer}-"), format!("{newer}-what-the-future-holds")] {
            assert!(
                TraceParent::parse(value.as_bytes()).is_some_and(|parent| parent.is_sampled()),
                "{value}"
            );
        }
        assert_eq!(TraceParent::parse(format!("{newer}.x").as_bytes()), None);
        let flags = |value: &str| TraceParent::parse(value.as_bytes()).map(|parent| parent.flags);
        assert_eq!(flags(&VALID.replace("-01", "-ff")), Some(KNOWN));
        assert_eq!(flags(&newer.replace("-01", "-ff")), Some(SAMPLED));
        assert_eq!(flags(&VALID.replace("-01", "-02")), Some(0x02), "not sampled");
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(trace: [u8; 16], span: [u8; 8], flags in 0_u8..=KNOWN) {
            let (Some(trace), Some(span)) = (TraceId::new(trace), SpanId::new(span)) else { return Ok(()) };
            let parent = TraceParent { trace, span, flags };
            prop_assert_eq!(TraceParent::parse(&parent.write()), Some(parent));
        }

        #[test]
        fn what_is_read_is_written_the_same(value in "00-[0-9a-f]{32}-[0-9a-f]{16}-0[0-3]") {
            if let Some(parent) = TraceParent::parse(value.as_bytes()) {
                prop_assert_eq!(&parent.write()[..], value.as_bytes());
            }
        }

        #[test]
        fn nothing_panics(value: Vec<u8>, at in 0_usize..55, byte: u8) {
            TraceParent::parse(&value);
            let mut changed = VALID.as_bytes().to_vec();
            changed[at] = byte;
            if let Some(parent) = TraceParent::parse(&changed) {
                prop_assert!(parent.trace.bytes() != &[0; 16] && parent.span.bytes() != &[0; 8]);
            }
        }
    }
}
