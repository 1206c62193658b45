//! ROUTE: the name that the app has for what a request is for, such as `posts#show`. RESPONSE and END have only its number.

use crate::Malformed;
use crate::frame::{self, Frame, FrameKind};

/// The largest number of a route. Requests of further routes have none.
pub const MOST: u16 = 1_000;
/// The longest name, in bytes.
pub const LONGEST: usize = 200;

/// Appends a ROUTE frame. The name must be one that [`is_name`] accepts.
pub fn append(out: &mut Vec<u8>, number: u16, name: &str) {
    let start = out.len();
    frame::append(out, FrameKind::Route, 0, 0, name.as_bytes());
    frame::set_route(&mut out[start..], number);
}

/// Returns whether a text can be the name of a route: it has one to [`LONGEST`] bytes and no control characters.
pub fn is_name(name: &str) -> bool {
    (1..=LONGEST).contains(&name.len()) && !name.chars().any(char::is_control)
}

/// Decodes a ROUTE frame. Returns the name.
///
/// # Errors
/// Fails if the number is not in 1 to [`MOST`], or the payload is not a name.
pub fn name<'a>(frame: &Frame<'a>) -> Result<&'a str, Malformed> {
    if !(1..=MOST).contains(&frame.header.route) {
        return Err(Malformed("the number of a route is not in 1 to 1,000"));
    }
    let name = std::str::from_utf8(frame.payload).ok().filter(|name| is_name(name));
    name.ok_or(Malformed("the name of a route is not one to 200 bytes of text"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(bytes: &[u8]) -> Option<(u16, String)> {
        let (frame, used) = Frame::cut(bytes).ok()??;
        assert_eq!(used, bytes.len());
        name(&frame).ok().map(|name| (frame.header.route, name.to_owned()))
    }

    proptest! {
        #[test]
        fn names_survive_the_round_trip_or_are_refused(number: u16, name in "\\PC{0,120}|.{0,8}") {
            let mut out = Vec::new();
            append(&mut out, number, &name);
            let expected = ((1..=MOST).contains(&number) && is_name(&name)).then_some((number, name));
            prop_assert_eq!(read(&out), expected);
        }

        #[test]
        fn any_payload_is_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let mut out = Vec::new();
            frame::append(&mut out, FrameKind::Route, 0, 0, &bytes);
            frame::set_route(&mut out, 1);
            let expected = String::from_utf8(bytes).ok().filter(|name| is_name(name));
            prop_assert_eq!(read(&out).map(|(_, name)| name), expected);
        }
    }
}
