//! A file of a journey, in TOML: `[[step]]` tables, `[variables]`, `repeat`.
//!
//! Contract: no text causes a panic. Every key is used or a mistake, which names the file, the line and the step.

use std::collections::BTreeSet;
use std::ops::Range;

use regex::bytes::Regex;
use toml_edit::{Document, Item, TableLike, Value};

use crate::inputs::{amount, statuses};
use crate::journey::{Body, Journey, Step, Take, Template};
use crate::scenario::Think;

/// The most steps; each has figures of its own.
const MOST_STEPS: usize = 100;
/// Variables that every user has.
pub(crate) const OWN: [&str; 2] = ["user", "turn"];

/// Parses a whole file; messages call it `name`.
///
/// # Errors
/// All mistakes, each as `name:line: step "login": what is wrong, and what is expected`.
pub fn journey_file(name: &str, text: &str) -> Result<Journey, Vec<String>> {
    let mut reader =
        Reader { name, text, mistakes: Vec::new(), known: OWN.iter().map(|own| (*own).to_owned()).collect() };
    let journey = match Document::parse(text) {
        Ok(document) => reader.journey(document.as_table()),
        Err(error) => {
            let at = error.span().map_or(0, |span| span.start);
            reader.mistake(at, "", &format!("it is not TOML: {}", error.message().replace('\n', " ")));
            Journey::default()
        }
    };
    if reader.mistakes.is_empty() { Ok(journey) } else { Err(reader.mistakes) }
}

struct Reader<'a> {
    name: &'a str,
    text: &'a str,
    mistakes: Vec<String>,
    /// Variables that have a value at this point of the journey.
    known: BTreeSet<String>,
}

/// A key of a table with its value and place.
struct Entry<'a> {
    key: &'a str,
    item: &'a Item,
    at: usize,
}

fn entries(table: &dyn TableLike) -> Vec<Entry<'_>> {
    let at = |key: &str, item: &Item| {
        let span: Option<Range<usize>> =
            table.key(key).and_then(toml_edit::Key::span).or_else(|| item.span());
        span.map_or(0, |span| span.start)
    };
    table.iter().map(|(key, item)| Entry { key, item, at: at(key, item) }).collect()
}

impl Reader<'_> {
    fn mistake(&mut self, at: usize, step: &str, why: &str) {
        let before = self.text.as_bytes().get(..at).unwrap_or_default();
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        let step = if step.is_empty() { String::new() } else { format!("step {step:?}: ") };
        self.mistakes.push(format!("{}:{line}: {step}{why}", self.name));
    }

    /// Unwraps a value, or notes the mistake.
    fn ok<T>(&mut self, entry: &Entry<'_>, step: &str, read: Result<T, String>) -> Option<T> {
        match read {
            Ok(value) => Some(value),
            Err(why) => {
                self.mistake(entry.at, step, &format!("{}: {why}", entry.key));
                None
            }
        }
    }

    fn journey(&mut self, table: &dyn TableLike) -> Journey {
        let mut journey = Journey::default();
        let (mut steps, mut repeat) = (None, None);
        for entry in entries(table) {
            match entry.key {
                "variables" => journey.variables = self.texts(&entry, ""),
                "repeat" => repeat = Some(entry),
                "step" => steps = Some(entry),
                _ => self.mistake(
                    entry.at,
                    "",
                    &format!("{} is unknown: expected variables, repeat or [[step]]", entry.key),
                ),
            }
        }
        for (name, _) in &journey.variables {
            self.known.insert(name.clone());
        }
        match &steps {
            Some(entry) => self.steps(entry, &mut journey),
            None => self.mistake(0, "", "there is no step: expected at least one [[step]] with a path"),
        }
        if let Some(entry) = repeat {
            journey.repeat = self.repeat(&entry, &journey.steps);
        }
        journey
    }

    fn steps(&mut self, entry: &Entry<'_>, journey: &mut Journey) {
        let Some(tables) = entry.item.as_array_of_tables() else {
            self.mistake(entry.at, "", "step: expected tables that begin with [[step]]");
            return;
        };
        if tables.len() > MOST_STEPS {
            self.mistake(entry.at, "", &format!("{} steps: expected at most {MOST_STEPS}", tables.len()));
            return;
        }
        for (index, table) in tables.iter().enumerate() {
            let at = table.span().map_or(entry.at, |span| span.start);
            let name = table
                .get("name")
                .and_then(Item::as_str)
                .map_or_else(|| (index + 1).to_string(), str::to_owned);
            if journey.steps.iter().any(|step| step.name == name) {
                self.mistake(at, &name, "another step has this name");
            }
            let step = self.step(table, at, name);
            self.known.extend(step.take.iter().map(|(name, _)| name.clone()));
            journey.steps.push(step);
        }
    }

    fn step(&mut self, table: &dyn TableLike, at: usize, name: String) -> Step {
        let mut step = Step {
            name,
            method: String::new(),
            path: Template::default(),
            headers: Vec::new(),
            body: Body::None,
            statuses: Vec::new(),
            text: None,
            take: Vec::new(),
            think: Think::None,
        };
        let (mut bodies, mut has_path) = (Vec::new(), false);
        for entry in entries(table) {
            let name = step.name.clone();
            match entry.key {
                "name" if entry.item.as_str().is_some_and(|name| !name.is_empty()) => {}
                "method" => step.method = self.text(&entry, &name).unwrap_or_default(),
                "path" => {
                    has_path = true;
                    step.path = self.path(&entry, &name).unwrap_or_default();
                }
                "headers" => step.headers = self.headers(&entry, &name),
                "body" => {
                    bodies.push("body");
                    step.body = self.template(&entry, &name).map_or(Body::None, Body::Text);
                }
                "form" => {
                    bodies.push("form");
                    step.body = Body::Form(self.templates(&entry, &name));
                }
                "json" => {
                    bodies.push("json");
                    step.body = self.json(&entry, &name).map_or(Body::None, Body::Json);
                }
                "expect" => self.expect(&entry, &mut step),
                "take" => step.take = self.takes(&entry, &name),
                "think" => {
                    let read = self.text(&entry, &name).map(|text| amount::think(&text));
                    step.think = read.and_then(|read| self.ok(&entry, &name, read)).unwrap_or(Think::None);
                }
                "name" => self.mistake(entry.at, &name, "name: expected a text, such as \"login\""),
                _ => self.mistake(entry.at, &name, &format!(
                    "{} is unknown: expected name, method, path, headers, body, form, json, expect, take or think",
                    entry.key
                )),
            }
        }
        if bodies.len() > 1 {
            self.mistake(at, &step.name, &format!("{}: a request has one body", bodies.join(" and ")));
        }
        if !has_path {
            self.mistake(at, &step.name, "it has no path: expected one such as path = \"/login\"");
        }
        if step.method.is_empty() {
            step.method = if bodies.is_empty() { "GET" } else { "POST" }.to_owned();
        }
        if !text::is_token(step.method.as_bytes()) {
            self.mistake(
                at,
                &step.name,
                &format!("{:?} is not a method: expected one such as GET", step.method),
            );
        }
        step
    }

    fn text(&mut self, entry: &Entry<'_>, step: &str) -> Option<String> {
        let read = scalar(entry.item).ok_or_else(|| "expected a text in quotes".to_owned());
        self.ok(entry, step, read)
    }

    fn template(&mut self, entry: &Entry<'_>, step: &str) -> Option<Template> {
        let text = self.text(entry, step)?;
        let template = self.ok(entry, step, Template::parse(&text))?;
        let unknown: Vec<String> =
            template.variables().filter(|name| !self.known.contains(*name)).map(str::to_owned).collect();
        for name in unknown {
            self.mistake(entry.at, step, &format!(
                "{}: {name} has no value here: expected a variable of [variables], or one that an earlier step takes",
                entry.key
            ));
        }
        Some(template)
    }

    fn path(&mut self, entry: &Entry<'_>, step: &str) -> Option<Template> {
        let text = self.text(entry, step)?;
        if !(text.starts_with('/') || text.starts_with("${"))
            || text.bytes().any(|byte| byte <= b' ' || byte == 0x7f)
        {
            self.mistake(
                entry.at,
                step,
                &format!("path: {text:?}: expected a path from / on, without blanks (%20), such as /login"),
            );
        }
        self.template(entry, step)
    }

    fn table<'a>(&mut self, entry: &Entry<'a>, step: &str) -> Vec<Entry<'a>> {
        match entry.item.as_table_like() {
            Some(table) => entries(table),
            None => {
                self.mistake(
                    entry.at,
                    step,
                    &format!("{}: expected a table, such as {{ name = \"value\" }}", entry.key),
                );
                Vec::new()
            }
        }
    }

    fn templates(&mut self, entry: &Entry<'_>, step: &str) -> Vec<(String, Template)> {
        let all = self.table(entry, step);
        all.iter().filter_map(|entry| Some((entry.key.to_owned(), self.template(entry, step)?))).collect()
    }

    fn texts(&mut self, entry: &Entry<'_>, step: &str) -> Vec<(String, String)> {
        let all = self.table(entry, step);
        all.iter().filter_map(|entry| Some((self.variable(entry, step)?, self.text(entry, step)?))).collect()
    }

    /// Returns the name of a variable to set.
    fn variable(&mut self, entry: &Entry<'_>, step: &str) -> Option<String> {
        let name = entry.key;
        let read = match (crate::journey::is_name(name), OWN.contains(&name)) {
            (true, false) => Ok(name.to_owned()),
            (false, _) => Err("a variable has letters, digits and _ only".to_owned()),
            (_, true) => Err("each user has this variable already: expected another name".to_owned()),
        };
        self.ok(entry, step, read)
    }

    fn headers(&mut self, entry: &Entry<'_>, step: &str) -> Vec<(String, Template)> {
        let all = self.templates(entry, step);
        for (name, _) in &all {
            if !text::is_token(name.as_bytes()) {
                self.mistake(
                    entry.at,
                    step,
                    &format!("headers: {name:?} is not a header name: expected one such as Accept"),
                );
            }
            if ["content-length", "transfer-encoding", "connection"]
                .iter()
                .any(|own| name.eq_ignore_ascii_case(own))
            {
                self.mistake(entry.at, step, &format!("headers: {name} is set by bench itself"));
            }
        }
        all
    }

    /// Serializes the TOML value as JSON; its strings are templates.
    fn json(&mut self, entry: &Entry<'_>, step: &str) -> Option<Template> {
        let value = json(entry.item)
            .ok_or_else(|| "expected a table or array that JSON can have; dates need quotes".to_owned());
        let text = self.ok(entry, step, value)?.to_string();
        let template = self.ok(entry, step, Template::parse(&text))?;
        let unknown: Vec<String> =
            template.variables().filter(|name| !self.known.contains(*name)).map(str::to_owned).collect();
        for name in unknown {
            self.mistake(entry.at, step, &format!("json: {name} has no value here: expected a variable of [variables], or one that an earlier step takes"));
        }
        Some(template)
    }

    fn expect(&mut self, entry: &Entry<'_>, step: &mut Step) {
        let name = step.name.clone();
        for inner in self.table(entry, &name) {
            match inner.key {
                "status" => {
                    let read = self.text(&inner, &name).map(|text| statuses(&text));
                    step.statuses = read.and_then(|read| self.ok(&inner, &name, read)).unwrap_or_default();
                }
                "text" => step.text = self.text(&inner, &name),
                other => self.mistake(
                    inner.at,
                    &name,
                    &format!("expect.{other} is unknown: expected status or text"),
                ),
            }
        }
    }

    fn takes(&mut self, entry: &Entry<'_>, step: &str) -> Vec<(String, Take)> {
        let all = self.table(entry, step);
        all.iter().filter_map(|entry| Some((self.variable(entry, step)?, self.take(entry, step)?))).collect()
    }

    fn take(&mut self, entry: &Entry<'_>, step: &str) -> Option<Take> {
        const EXPECTED: &str = "expected one of { regexp = \"id=(\\\\d+)\" }, { json = \"/data/id\" }, { header = \"Location\" } or { csrf = true }";
        let (mut regexp, mut pointer, mut header, mut csrf) = (None, None, None, false);
        for inner in self.table(entry, step) {
            match inner.key {
                "regexp" => {
                    let text = self.text(&inner, step)?;
                    let read = Regex::new(&text).map_err(|why| {
                        format!(
                            "{text:?} is not a regular expression: {}",
                            why.to_string().replace('\n', " ")
                        )
                    });
                    regexp = Some(self.ok(&inner, step, read)?);
                }
                "json" => {
                    let text = self.text(&inner, step)?;
                    let valid = text.is_empty() || text.starts_with('/');
                    let read = valid
                        .then_some(text)
                        .ok_or_else(|| "a JSON pointer begins with /, such as /data/0/id".to_owned());
                    pointer = Some(self.ok(&inner, step, read)?);
                }
                "header" => header = Some(self.text(&inner, step)?),
                "csrf" => csrf = inner.item.as_bool() == Some(true),
                other => self.mistake(
                    inner.at,
                    step,
                    &format!("take.{}.{other} is unknown: {EXPECTED}", entry.key),
                ),
            }
        }
        match (regexp, pointer, header, csrf) {
            (regexp, None, Some(header), false) => Some(Take::Header(header, regexp)),
            (Some(regexp), None, None, false) => Some(Take::Body(regexp)),
            (None, Some(pointer), None, false) => Some(Take::Json(pointer)),
            (None, None, None, true) => Some(Take::Csrf),
            _ => {
                self.mistake(entry.at, step, &format!("take.{}: {EXPECTED}", entry.key));
                None
            }
        }
    }

    fn repeat(&mut self, entry: &Entry<'_>, steps: &[Step]) -> Option<(usize, u64)> {
        let (mut from, mut times) = (None, None);
        for inner in self.table(entry, "") {
            match inner.key {
                "from" => {
                    let name = self.text(&inner, "")?;
                    let found = steps.iter().position(|step| step.name == name);
                    let names: Vec<&str> = steps.iter().map(|step| step.name.as_str()).collect();
                    let read = found.ok_or_else(|| {
                        format!("there is no step {name:?}: expected one of {}", names.join(", "))
                    });
                    from = Some(self.ok(&inner, "", read)?);
                }
                "times" => {
                    let count = inner
                        .item
                        .as_integer()
                        .and_then(|count| u64::try_from(count).ok())
                        .filter(|count| *count > 0);
                    times = Some(self.ok(
                        &inner,
                        "",
                        count.ok_or_else(|| "expected a whole number from 1 on".to_owned()),
                    )?);
                }
                other => {
                    self.mistake(inner.at, "", &format!("repeat.{other} is unknown: expected from and times"))
                }
            }
        }
        if from.is_none() || times.is_none() {
            self.mistake(entry.at, "", "repeat: expected { from = \"a step\", times = 5 }");
        }
        from.zip(times)
    }
}

/// Returns a text, or a number as text.
fn scalar(item: &Item) -> Option<String> {
    match item.as_value()? {
        Value::String(text) => Some(text.value().clone()),
        Value::Integer(number) => Some(number.value().to_string()),
        Value::Float(number) => Some(number.value().to_string()),
        Value::Boolean(truth) => Some(truth.value().to_string()),
        _ => None,
    }
}

fn json(item: &Item) -> Option<serde_json::Value> {
    if let Some(table) = item.as_table_like() {
        let pairs = table.iter().map(|(key, item)| Some((key.to_owned(), json(item)?)));
        return Some(serde_json::Value::Object(pairs.collect::<Option<_>>()?));
    }
    match item {
        Item::ArrayOfTables(tables) => {
            let all = tables.iter().map(|table| json(&Item::Table(table.clone())));
            Some(serde_json::Value::Array(all.collect::<Option<_>>()?))
        }
        Item::Value(Value::Array(values)) => {
            let all = values.iter().map(|value| json(&Item::Value(value.clone())));
            Some(serde_json::Value::Array(all.collect::<Option<_>>()?))
        }
        Item::Value(Value::String(text)) => Some(text.value().as_str().into()),
        Item::Value(Value::Integer(number)) => Some((*number.value()).into()),
        Item::Value(Value::Float(number)) => serde_json::Number::from_f64(*number.value()).map(Into::into),
        Item::Value(Value::Boolean(truth)) => Some((*truth.value()).into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::Duration;

    const LOGIN: &str = r#"
        repeat = { from = "list", times = 3 }
        [variables]
        password = "secret"
        [[step]]
        name = "form"
        path = "/login"
        take.token = { csrf = true }
        [[step]]
        name = "login"
        path = "/login"
        form = { name = "user${user}", password = "${password}", authenticity_token = "${token}" }
        expect = { status = "302,303" }
        take.next = { header = "Location" }
        think = "0..2s"
        [[step]]
        name = "list"
        path = "/posts?page=${turn}"
        headers = { Accept = "application/json" }
        take.id = { json = "/0/id" }
        [[step]]
        method = "PUT"
        path = "/posts/${id}"
        json = { title = "a \"${token}\"", tags = [1, true] }
        expect.text = "saved"
    "#;

    fn mistakes(text: &str) -> Vec<String> {
        journey_file("a.toml", text).unwrap_err()
    }

    #[test]
    fn a_login_and_two_pages() {
        let journey = journey_file("a.toml", LOGIN).unwrap();
        let names: Vec<&str> = journey.steps.iter().map(|step| step.name.as_str()).collect();
        assert_eq!(names, ["form", "login", "list", "4"]);
        let methods: Vec<&str> = journey.steps.iter().map(|step| step.method.as_str()).collect();
        assert_eq!(methods, ["GET", "POST", "GET", "PUT"]);
        assert_eq!(journey.repeat, Some((2, 3)));
        assert_eq!(journey.steps[1].statuses, [(302, 302), (303, 303)]);
        assert_eq!(journey.steps[1].think, Think::UpTo(Duration::from_secs(2)));
        assert_eq!(journey.steps[3].text.as_deref(), Some("saved"));
        assert!(matches!(&journey.steps[1].body, Body::Form(fields) if fields.len() == 3));
    }

    #[test]
    fn mistakes_name_file_line_and_step() {
        for (text, wanted) in [
            ("", "a.toml:1: there is no step"),
            ("[[step", "a.toml:1: it is not TOML"),
            ("x = 1\n[[step]]\npath = \"/\"", "a.toml:1: x is unknown"),
            ("[[step]]\nname = \"a\"\n", "a.toml:1: step \"a\": it has no path"),
            (
                "[[step]]\npath = \"/\"\n[[step]]\nname = \"b\"\npath = \"x\"",
                "a.toml:5: step \"b\": path: \"x\": expected a path from / on",
            ),
            ("[[step]]\npath = \"/a b\"", "without blanks"),
            ("[[step]]\npath = \"/${id}\"", "a.toml:2: step \"1\": path: id has no value here"),
            ("[[step]]\npath = \"/${id\"", "has no end"),
            (
                "[[step]]\npath = \"/\"\nform = { a = \"1\" }\nbody = \"x\"",
                "form and body: a request has one body",
            ),
            (
                "[[step]]\npath = \"/\"\nexpect = { state = 1 }",
                "a.toml:3: step \"1\": expect.state is unknown",
            ),
            ("[[step]]\npath = \"/\"\nexpect.status = 99", "status: "),
            ("[[step]]\npath = \"/\"\ntake.a = { regexp = \"(\" }", "not a regular expression"),
            ("[[step]]\npath = \"/\"\ntake.a = { json = \"id\" }", "begins with /"),
            ("[[step]]\npath = \"/\"\ntake.a = { csrf = true, json = \"/a\" }", "expected one of"),
            ("[[step]]\npath = \"/\"\ntake.user = { csrf = true }", "has this variable already"),
            ("[[step]]\npath = \"/\"\nthink = \"soon\"", "think: "),
            ("[[step]]\npath = \"/\"\nheaders = { \"a b\" = \"1\" }", "not a header name"),
            ("[[step]]\npath = \"/\"\nheaders = { Connection = \"close\" }", "set by bench itself"),
            ("[[step]]\npath = \"/\"\nmethod = \"GE T\"", "not a method"),
            ("[[step]]\npath = 1.5\nname = 3", "name: expected a text"),
            (
                "repeat = { from = \"b\", times = 2 }\n[[step]]\npath = \"/\"",
                "a.toml:1: from: there is no step \"b\"",
            ),
            ("repeat = { from = \"1\", times = 0 }\n[[step]]\npath = \"/\"", "whole number from 1"),
            ("step = 1", "[[step]]"),
            (
                "[[step]]\nname = \"a\"\npath = \"/\"\n[[step]]\nname = \"a\"\npath = \"/\"",
                "a.toml:4: step \"a\": another step has this name",
            ),
        ] {
            let found = mistakes(text);
            assert!(found.iter().any(|line| line.contains(wanted)), "{text}: {found:?}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_accepted_or_rejected(
            lines in proptest::collection::vec(
                "(\\[\\[step\\]\\]|\\[variables\\]|(path|name|method|form|json|take\\.a|take|expect|think|repeat|headers) = (\"[/$a-z{}]{0,9}\"|[0-9]|\\{ (regexp|json|header|status|from) = \"[/a(]{0,3}\" \\}|\\[\\]|1979-05-27))",
                0..12,
            )
        ) {
            let text = lines.join("\n");
            match journey_file("a.toml", &text) {
                Ok(journey) => prop_assert!(!journey.steps.is_empty()),
                Err(found) => prop_assert!(!found.is_empty() && found.iter().all(|line| line.starts_with("a.toml:")), "{:?}", found),
            }
        }
    }
}
