//! The times of a request in its worker, as sent in RESPONSE and END.

use crate::{Malformed, cursor::Cursor};

/// The bytes of [`Times`] in a payload.
pub const LEN: usize = 12;
/// The value for a time that was not measured or cannot be measured.
pub const UNKNOWN: u32 = u32::MAX;

/// Times in microseconds, saturating, counted from the moment a thread took the request up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Times {
    /// The total time.
    pub app_us: u32,
    /// The processor time of the thread; `None` if it was not measured.
    pub cpu_us: Option<u32>,
    /// The wait for Ruby's global lock; `None` if it was not measured, or cannot be.
    pub gvl_us: Option<u32>,
}

impl Times {
    /// Returns the encoded form. A measured value that is too large is replaced by the largest that can be
    /// encoded.
    #[inline]
    pub fn to_bytes(self) -> [u8; LEN] {
        let known = |us: Option<u32>| us.map_or(UNKNOWN, |us| us.min(UNKNOWN - 1));
        let mut out = [0; LEN];
        out[0..4].copy_from_slice(&self.app_us.to_le_bytes());
        out[4..8].copy_from_slice(&known(self.cpu_us).to_le_bytes());
        out[8..12].copy_from_slice(&known(self.gvl_us).to_le_bytes());
        out
    }

    #[inline]
    pub(crate) fn read(cursor: &mut Cursor<'_>) -> Result<Times, Malformed> {
        let (app_us, cpu, gvl) = (cursor.u32()?, cursor.u32()?, cursor.u32()?);
        let known = |us: u32| (us != UNKNOWN).then_some(us);
        Ok(Times { app_us, cpu_us: known(cpu), gvl_us: known(gvl) })
    }

    /// Decodes the payload of an END frame.
    ///
    /// # Errors
    /// Fails if the payload is not twelve bytes long.
    pub fn decode(payload: &[u8]) -> Result<Times, Malformed> {
        let mut cursor = Cursor::new(payload);
        let times = Times::read(&mut cursor)?;
        if cursor.rest.is_empty() { Ok(times) } else { Err(Malformed("END is longer than twelve bytes")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_unknown_is_all_ones_and_never_a_time() {
        let times = Times { app_us: 1, cpu_us: None, gvl_us: Some(u32::MAX) };
        let bytes = times.to_bytes();
        assert_eq!(bytes, [1, 0, 0, 0, 255, 255, 255, 255, 254, 255, 255, 255]);
        assert_eq!(Times::decode(&bytes), Ok(Times { gvl_us: Some(u32::MAX - 1), ..times }));
        assert!(Times::decode(&bytes[..11]).is_err() && Times::decode(&[0; 13]).is_err());
    }

    proptest! {
        #[test]
        fn times_survive_the_round_trip(app_us: u32, cpu in proptest::option::of(0..u32::MAX), gvl in proptest::option::of(0..u32::MAX)) {
            let times = Times { app_us, cpu_us: cpu, gvl_us: gvl };
            prop_assert_eq!(Times::decode(&times.to_bytes()), Ok(times));
        }
    }
}
