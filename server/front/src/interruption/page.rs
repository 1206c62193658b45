//! The server's own page for a maintenance, and the same as JSON. Pure.

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_text_and_no_markup() {
        let page = own(Some("<script>\"&'\nsecond line"));
        assert!(
            page.contains("&lt;script&gt;&quot;&amp;&#39;<br>\nsecond line") && !page.contains("<script"),
            "{page}"
        );
        assert!(own(None).contains(MESSAGE));
        let read: serde_json::Value = serde_json::from_slice(&json(Some("a\"\\\nb"))).unwrap();
        assert_eq!(read["message"], "a\"\\\nb");
    }
}
