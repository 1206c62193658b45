//! Variables in a URL file, as in siege: `HOST=localhost:9292`, then `http://$(HOST)/` or `${HOST}`.

use std::collections::HashMap;

/// Returns the name and the value if the line sets a variable.
pub(super) fn assignment(line: &str) -> Option<(&str, &str)> {
    let (name, value) = line.split_once('=')?;
    let name = name.trim();
    let mut letters = name.chars();
    let first = letters.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
    let rest = letters.all(|c| c.is_ascii_alphanumeric() || c == '_');
    (first && rest).then(|| (name, value.trim()))
}

/// Substitutes the variables in `text`. A `$` without a reference is kept.
///
/// # Errors
/// The name of a variable without a value.
pub(super) fn substituted(
    text: &str,
    known: &HashMap<String, String>,
    environment: &dyn Fn(&str) -> Option<String>,
) -> Result<String, String> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        let behind = &rest[at + 1..];
        let Some((name, after)) = reference(behind) else {
            out.push('$');
            rest = behind;
            continue;
        };
        let value = known.get(name).cloned().or_else(|| environment(name));
        out.push_str(&value.ok_or_else(|| {
            format!(
                "the variable {name} has no value: expected a line {name}=… above, or an environment variable"
            )
        })?);
        rest = after;
    }
    out.push_str(rest);
    Ok(out)
}

/// Returns the name in `(NAME)…` or `{NAME}…`, and the rest.
fn reference(text: &str) -> Option<(&str, &str)> {
    let close = match text.as_bytes().first()? {
        b'(' => ')',
        b'{' => '}',
        _ => return None,
    };
    let (name, after) = text[1..].split_once(close)?;
    let plain = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    plain.then_some((name, after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_references() {
        let known = HashMap::from([("A".to_owned(), "1".to_owned())]);
        let environment = |name: &str| (name == "HOME").then(|| "/root".to_owned());
        let put = |text: &str| substituted(text, &known, &environment);
        assert_eq!(put("$(A)/${A}$A$").as_deref(), Ok("1/1$A$"));
        assert_eq!(put("${HOME}").as_deref(), Ok("/root"));
        assert_eq!(put("$(A").as_deref(), Ok("$(A"));
        assert!(put("x$(B)").unwrap_err().contains("variable B"));
        assert_eq!(assignment("HOST = h:1"), Some(("HOST", "h:1")));
        assert_eq!(assignment("http://h/?a=b"), None);
        assert_eq!(assignment("1A=b"), None);
    }
}
