//! The cookies of a request (RFC 6265 section 4.2.1).

use crate::Fields;

/// Returns the values of the cookies with this name, as they were sent. HTTP/2 and HTTP/3 may split the field
/// (RFC 9113 section 8.2.3).
pub fn cookies<'f>(fields: &'f Fields, name: &'f str) -> impl Iterator<Item = &'f [u8]> {
    let pairs = fields.all("cookie").flat_map(|field| field.split(|byte| *byte == b';'));
    pairs.filter_map(move |pair| {
        let pair = pair.trim_ascii_start();
        pair.strip_prefix(name.as_bytes())?.strip_prefix(b"=").map(<[u8]>::trim_ascii)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(values: &[&str], name: &str) -> Vec<String> {
        let mut fields = Fields::default();
        values.iter().for_each(|value| fields.push(b"Cookie", value.as_bytes()));
        cookies(&fields, name).map(|value| String::from_utf8_lossy(value).into_owned()).collect()
    }

    #[test]
    fn a_cookie_is_a_name_and_a_value() {
        assert_eq!(of(&["a=1; b=2;a=3"], "a"), ["1", "3"]);
        assert_eq!(of(&["a=1", "b=2", "a=3; c"], "a"), ["1", "3"]);
        assert_eq!(of(&["a=1=2; aa=3; xa=4; A=5; a"], "a"), ["1=2"]);
        assert_eq!(of(&[" a= ; a"], "a"), [""]);
        assert!(of(&[], "a").is_empty() && of(&[""], "a").is_empty());
    }

    proptest! {
        /// A cookie is found wherever it stands, and other text adds none.
        #[test]
        fn a_cookie_is_found_where_it_is(around in "[a-c=; ]{0,20}", value in "[a-z0-9]{1,9}") {
            let within = format!("{around}; tenant={value}; {around}");
            prop_assert_eq!(of(&[&within], "tenant"), [value]);
        }
    }
}
