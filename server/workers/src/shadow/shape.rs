//! The parts of a response that are compared, each with a name and a value.
//!
//! Contract: a shape has the names and types of a body, not its values; it is bounded in number and length; the same
//! response always has the same shape.

use super::parts::{STATUS, Shape};
use super::{fields, html, json};
use handler::Fields;

/// The longest body that is read, in bytes. Of longer ones only the length is compared.
pub(crate) const LONGEST_BODY: usize = 512 << 10;

/// Returns the shape of a response with this body, which has `length` bytes and may be cut off.
pub fn shape(status: u16, headers: &Fields, body: &[u8], length: u64) -> Shape {
    let mut shape = Shape::default();
    shape.put(STATUS, &status.to_string());
    fields::put(headers, &mut shape);
    let media_type = fields::media_type(headers);
    let whole = body.len() as u64 == length;
    match media_type.as_str() {
        _ if length == 0 => {}
        json if whole && (json.ends_with("/json") || json.ends_with("+json")) => json::put(body, &mut shape),
        "text/html" | "application/xhtml+xml" if whole => html::put(body, &mut shape),
        _ => shape.put("length", &length_class(length)),
    }
    shape
}

/// Returns within which power of two a length is.
fn length_class(length: u64) -> String {
    let least = 1u64 << length.max(1).ilog2();
    format!("{least} to {} bytes", least.saturating_mul(2) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(media_type: &str, body: &[u8]) -> Shape {
        let mut fields = Fields::default();
        fields.push(b"Content-Type", media_type.as_bytes());
        shape(200, &fields, body, body.len() as u64)
    }

    #[test]
    fn other_types_and_bodies_that_are_cut_off_have_a_length() {
        let length = |shape: &Shape| shape.get("length").map(str::to_owned);
        assert_eq!(length(&of("text/css", &[b'x'; 700])).as_deref(), Some("512 to 1023 bytes"));
        assert_eq!(length(&of("application/json", b"{}")), None);
        let mut fields = Fields::default();
        fields.push(b"Content-Type", b"application/json");
        assert_eq!(length(&shape(200, &fields, b"{", 4000)).as_deref(), Some("2048 to 4095 bytes"));
    }

    proptest! {
        /// Any bytes of any type have a bounded shape, always the same.
        #[test]
        fn a_shape_is_bounded(
            media_type in prop_oneof![Just("application/json"), Just("text/html"), Just("text/plain"), Just("x")],
            body in prop::collection::vec(any::<u8>(), 0..4000),
        ) {
            let one = of(media_type, &body);
            prop_assert!(one.parts().count() <= 1000);
            prop_assert!(one.parts().all(|(name, value)| name.len() <= 200 && value.len() <= 200));
            prop_assert_eq!(one, of(media_type, &body));
        }

        /// Values of JSON do not matter, keys and types do.
        #[test]
        fn json_of_other_values_has_the_same_shape(one: u32, other: u32, texts in prop::collection::vec("[a-z<>\"]{0,20}", 2)) {
            let json = |number: u32, text: &str| {
                let text = serde_json::to_string(text).unwrap();
                format!("{{\"id\":{number},\"posts\":[{{\"title\":{text}}},{{\"title\":null}}]}}")
            };
            let (one, other) = (json(one, &texts[0]), json(other, &texts[1]));
            prop_assert_eq!(of("application/json", one.as_bytes()), of("application/json", other.as_bytes()));
        }
    }
}
