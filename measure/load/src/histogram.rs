//! A histogram of microseconds that is serialized as text: base64 of HdrHistogram's compressed format (V2), which the
//! HdrHistogram tools can read.

use std::io::Cursor;
use std::ops::{Deref, DerefMut};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};
use serde::de::Error as _;
use serde::ser::Error as _;

const LONGEST_US: u64 = 3_600_000_000;
const DIGITS: u8 = 3;

/// Values are microseconds from 1 to one hour, with three significant digits; longer values count as one hour.
#[derive(Debug, Clone)]
pub struct Histogram(hdrhistogram::Histogram<u64>);

impl Default for Histogram {
    fn default() -> Histogram {
        let histogram = hdrhistogram::Histogram::new_with_bounds(1, LONGEST_US, DIGITS);
        Histogram(histogram.expect("the bounds are constants that hdrhistogram accepts"))
    }
}

impl Histogram {
    /// Adds the counts of another histogram.
    pub fn take(&mut self, other: &Histogram) {
        // Both have the same bounds, so this cannot fail.
        if let Err(error) = self.0.add(&other.0) {
            unreachable!("histograms of equal bounds: {error}");
        }
    }

    /// Corrects for coordinated omission: for every value longer than `interval_us`, adds the values of the
    /// requests that would have been sent meanwhile at that interval. An interval of 0 changes nothing.
    #[must_use]
    pub fn corrected(&self, interval_us: u64) -> Histogram {
        Histogram(self.0.clone_correct(interval_us))
    }
}

impl PartialEq for Histogram {
    fn eq(&self, other: &Histogram) -> bool {
        self.0 == other.0
    }
}

impl Deref for Histogram {
    type Target = hdrhistogram::Histogram<u64>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl DerefMut for Histogram {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

impl serde::Serialize for Histogram {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut bytes = Vec::new();
        V2DeflateSerializer::new().serialize(&self.0, &mut bytes).map_err(S::Error::custom)?;
        serializer.serialize_str(&STANDARD.encode(bytes))
    }
}

impl<'de> serde::Deserialize<'de> for Histogram {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Histogram, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        let bytes = STANDARD.decode(text.as_bytes()).map_err(D::Error::custom)?;
        let read: hdrhistogram::Histogram<u64> =
            Deserializer::new().deserialize(&mut Cursor::new(bytes)).map_err(D::Error::custom)?;
        // Copied into the usual bounds, so that any deserialized histogram can be merged.
        let mut histogram = Histogram::default();
        histogram.0.add(read).map_err(D::Error::custom)?;
        Ok(histogram)
    }
}
