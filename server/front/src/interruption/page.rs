//! The server's own page for a maintenance, the same as JSON, and the choice between them. Pure.

use crate::access_log::json as escape_json;

/// The text without a message.
const MESSAGE: &str = "We will be back soon.";

/// Returns the page. It needs no other file and no script.
pub(super) fn own(message: Option<&str>) -> String {
    let message = escape_html(message.unwrap_or(MESSAGE)).replace('\n', "<br>\n");
    format!(
        "<!DOCTYPE html>\n\
         <html lang=\"en\">\n\
         <head>\n\
         <meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"robots\" content=\"noindex\">\n\
         <title>Down for maintenance</title>\n\
         <style>\n\
         :root {{ color-scheme: light dark }}\n\
         body {{ margin: 0; min-height: 100vh; display: grid; place-items: center; font: 1.1rem/1.5 system-ui, sans-serif }}\n\
         main {{ max-width: 34rem; padding: 2rem; text-align: center }}\n\
         h1 {{ font-size: 1.6rem; font-weight: 600 }}\n\
         </style>\n\
         </head>\n\
         <body>\n\
         <main>\n\
         <h1>Down for maintenance</h1>\n\
         <p>{message}</p>\n\
         </main>\n\
         </body>\n\
         </html>\n"
    )
}

/// Returns the response to clients that read JSON.
pub(super) fn json(message: Option<&str>) -> Vec<u8> {
    let mut text = b"{\"status\":503,\"error\":\"Service Unavailable\",\"message\":".to_vec();
    escape_json(&mut text, message.unwrap_or("Down for maintenance").as_bytes());
    text.extend_from_slice(b"}\n");
    text
}

fn escape_html(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '&' => escaped.push_str("&amp;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    escaped
}

/// Returns whether a client with these `Accept` fields (RFC 9110 section 12.5.1) prefers JSON to HTML. Clients that accept anything get the
/// page.
pub(super) fn prefers_json<'a>(fields: impl Iterator<Item = &'a [u8]>) -> bool {
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
        for accept in ["application/json", "application/json, */*", "application/vnd.api+json", "text/html;q=0.5, application/json"] {
            assert!(json_for(&[accept]), "{accept}");
        }
        for accept in ["", "*/*", "text/html", "text/html, application/json", "application/json;q=0", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", "application/json;q=0.3, text/*;q=0.4"] {
            assert!(!json_for(&[accept]), "{accept}");
        }
        assert!(json_for(&["text/html;q=0.1", "Application/JSON; charset=utf-8"]));
    }

    #[test]
    fn a_message_is_text_and_no_markup() {
        let page = own(Some("<script>\"&'\nsecond line"));
        assert!(page.contains("&lt;script&gt;&quot;&amp;&#39;<br>\nsecond line") && !page.contains("<script"), "{page}");
        assert!(own(None).contains(MESSAGE));
        let read: serde_json::Value = serde_json::from_slice(&json(Some("a\"\\\nb"))).unwrap();
        assert_eq!(read["message"], "a\"\\\nb");
    }

    proptest! {
        #[test]
        fn any_accept_field_is_read(value: Vec<u8>) {
            let _ = prefers_json([value.as_slice()].into_iter());
        }
    }
}
