//! A text with variables: `/posts/${id}`.

/// Text and names of variables in turn. `$${` is a `${` of the text itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Template(Vec<Segment>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Segment {
    Text(String),
    Variable(String),
}

impl Template {
    /// Parses a template.
    ///
    /// # Errors
    /// A reference without its end or name.
    pub fn parse(text: &str) -> Result<Template, String> {
        let (mut segments, mut plain, mut rest) = (Vec::new(), String::new(), text);
        while let Some(at) = rest.find("${") {
            if rest[..at].ends_with('$') {
                plain.push_str(&rest[..at]);
                plain.push('{');
                rest = &rest[at + 2..];
                continue;
            }
            plain.push_str(&rest[..at]);
            let (name, behind) = rest[at + 2..].split_once('}').ok_or_else(|| {
                format!(
                    "{:?} has no end: expected a variable such as ${{token}}, or $${{ for the text itself",
                    &rest[at..]
                )
            })?;
            if !is_name(name) {
                return Err(format!(
                    "${{{name}}} is not a variable: expected letters, digits and _, such as ${{token}}"
                ));
            }
            if !plain.is_empty() {
                segments.push(Segment::Text(std::mem::take(&mut plain)));
            }
            segments.push(Segment::Variable(name.to_owned()));
            rest = behind;
        }
        plain.push_str(rest);
        if !plain.is_empty() {
            segments.push(Segment::Text(plain));
        }
        Ok(Template(segments))
    }

    /// Returns the names of its variables.
    pub fn variables(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|segment| match segment {
            Segment::Variable(name) => Some(name.as_str()),
            Segment::Text(_) => None,
        })
    }

    /// Fills in the values, each after `encode`. A variable without a value is empty.
    pub(crate) fn fill<'a>(
        &self,
        value: impl Fn(&str) -> &'a str,
        encode: impl Fn(&str, &mut String),
    ) -> String {
        let mut out = String::new();
        for segment in &self.0 {
            match segment {
                Segment::Text(text) => out.push_str(text),
                Segment::Variable(name) => encode(value(name), &mut out),
            }
        }
        out
    }
}

/// Returns whether a text is a name of a variable.
pub(crate) fn is_name(text: &str) -> bool {
    let first = text.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_');
    first && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn filled(text: &str) -> String {
        Template::parse(text)
            .unwrap()
            .fill(|name| if name == "a" { "1" } else { "" }, |value, out| out.push_str(value))
    }

    #[test]
    fn values_are_filled_in() {
        for (text, wanted) in
            [("/x/${a}/y", "/x/1/y"), ("${a}${a}", "11"), ("$a $ {a}", "$a $ {a}"), ("$${a} ${b}", "${a} ")]
        {
            assert_eq!(filled(text), wanted, "{text}");
        }
        for text in ["${", "${}", "x${a b}", "${1}", "${a"] {
            assert!(Template::parse(text).is_err(), "{text}");
        }
        assert_eq!(Template::parse("${a}-${b}").unwrap().variables().collect::<Vec<_>>(), ["a", "b"]);
    }

    proptest! {
        #[test]
        fn any_text_without_references_is_itself(text in "[^{]{0,30}") {
            prop_assert_eq!(filled(&text), text);
        }

        #[test]
        fn any_text_is_accepted_or_rejected(text in "[$a-c{}]{0,20}") {
            let _ = Template::parse(&text);
        }
    }
}
