//! The choice between HTML and JSON for a response of the server's own (RFC 9110 section 12.5.1). Pure.

/// Returns whether a client with these `Accept` fields (RFC 9110 section 12.5.1) prefers JSON to HTML.
/// Clients that accept anything get the page.
pub fn prefers_json<'a>(fields: impl Iterator<Item = &'a [u8]>) -> bool {
    let (mut json, mut html) = (0, 0);
    for range in fields.flat_map(|field| field.split(|byte| *byte == b',')) {
        let mut parts = range.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
        let kind = parts.next().unwrap_or_default().to_ascii_lowercase();
        let quality = parts.find_map(quality).unwrap_or(1000);
        if kind == b"application/json" || kind.starts_with(b"application/") && kind.ends_with(b"+json") {
            json = quality.max(json);
        } else if matches!(kind.as_slice(), b"text/html" | b"application/xhtml+xml" | b"text/*") {
            html = quality.max(html);
        }
    }
    json > html
}

/// Returns the weight in thousandths, if the parameter is one.
fn quality(parameter: &[u8]) -> Option<u32> {
    let (name, value) = parameter.split_at_checked(2)?;
    if !name.eq_ignore_ascii_case(b"q=") {
        return None;
    }
    let value: f64 = std::str::from_utf8(value).ok()?.trim().parse().ok()?;
    Some((value.clamp(0.0, 1.0) * 1000.0) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn json_for(fields: &[&str]) -> bool {
        prefers_json(fields.iter().map(|field| field.as_bytes()))
    }

    #[test]
    fn json_is_for_clients_that_ask_for_it() {
        for accept in [
            "application/json",
            "application/json, */*",
            "application/vnd.api+json",
            "text/html;q=0.5, application/json",
        ] {
            assert!(json_for(&[accept]), "{accept}");
        }
        for accept in [
            "",
            "*/*",
            "text/html",
            "text/html, application/json",
            "application/json;q=0",
            "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
            "application/json;q=0.3, text/*;q=0.4",
        ] {
            assert!(!json_for(&[accept]), "{accept}");
        }
        assert!(json_for(&["text/html;q=0.1", "Application/JSON; charset=utf-8"]));
    }

    proptest! {
        #[test]
        fn any_field_is_read_and_the_order_of_its_ranges_does_not_matter(value: Vec<u8>) {
            let ranges: Vec<&[u8]> = value.split(|byte| *byte == b',').collect();
            let turned = ranges.iter().rev().copied();
            prop_assert_eq!(prefers_json([value.as_slice()].into_iter()), prefers_json(turned));
        }
    }
}
