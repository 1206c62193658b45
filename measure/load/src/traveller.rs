//! One user on a journey: the next step, its message, and what its response says.

use std::cell::RefCell;
use std::collections::HashMap;
use std::time::SystemTime;

use crate::clock::Moment;
use crate::cookies::Jar;
use crate::exchange::Incoming;
use crate::job::{Failure, Job};
use crate::journey::{Body, Journey, Step};
use crate::prepare::{PreparedRequest, authority, url};
use crate::scenario::{Checks, Origin};

/// The longest value that is kept, in bytes; a longer one fails its step, because no later request could hold it.
const LONGEST_VALUE: usize = 64 * 1024;

/// The state of one user.
#[derive(Debug)]
pub(crate) struct Traveller {
    /// The number of this user, from 1.
    user: u64,
    /// Journeys begun.
    turn: u64,
    values: HashMap<String, String>,
    /// The next step of the journey under way; `None` between two journeys.
    next: Option<usize>,
    /// How often the journey still goes back.
    repeats: u64,
    began: Moment,
    counted: bool,
    jar: Jar,
    /// The path of the last request, without the query.
    path: RefCell<String>,
}

/// The end of a step.
#[derive(Debug, PartialEq)]
pub(crate) enum Arrived {
    /// The journey goes on, after a pause.
    On(std::time::Duration),
    /// It is complete; it began at this time. The pause follows.
    Complete { began: Moment, counted: bool, pause: std::time::Duration },
}

impl Traveller {
    pub(crate) fn new(user: u64) -> Traveller {
        Traveller {
            user,
            turn: 0,
            values: HashMap::new(),
            next: None,
            repeats: 0,
            began: 0,
            counted: false,
            jar: Jar::default(),
            path: RefCell::default(),
        }
    }

    /// Returns the next step of the journey under way.
    pub(crate) fn next(&self, now: Moment) -> Option<Job> {
        self.next.map(|kind| Job { kind, due: now, counted: self.counted })
    }

    /// Begins a journey as a new visitor; returns its first step.
    pub(crate) fn begin(&mut self, journey: &Journey, job: Job) -> Job {
        self.turn += 1;
        self.jar = Jar::default();
        self.values.clear();
        self.values.extend(journey.variables.iter().cloned());
        self.values.insert("user".to_owned(), self.user.to_string());
        self.values.insert("turn".to_owned(), self.turn.to_string());
        self.repeats = journey.repeat.map_or(0, |(_, times)| times);
        (self.began, self.counted, self.next) = (job.due, job.counted, Some(0));
        Job { kind: 0, ..job }
    }

    /// Ends the journey after a failed request.
    pub(crate) fn abandon(&mut self) {
        self.next = None;
    }

    fn value(&self, name: &str) -> &str {
        self.values.get(name).map_or("", String::as_str)
    }

    /// Returns the message of a step. `kind` has the fields that all steps have.
    pub(crate) fn message(&self, step: &Step, origin: &Origin, kind: &PreparedRequest) -> Box<[u8]> {
        let (path, head, rest) = self.parts(step, origin, &kind.common);
        path.split('?').next().unwrap_or_default().clone_into(&mut self.path.borrow_mut());
        let line = self.jar.line(kind.cookie.as_deref(), origin, &self.path.borrow(), SystemTime::now());
        let cookies = line.map(|line| format!("Cookie: {line}\r\n")).unwrap_or_default();
        [head, cookies.into_bytes(), rest].concat().into_boxed_slice()
    }

    /// Stores the cookies that the last response sets.
    pub(crate) fn keep_cookies(&mut self, fields: &[Vec<u8>], origin: &Origin) {
        for field in fields {
            self.jar.set(field, origin, &self.path.borrow(), SystemTime::now());
        }
    }

    /// Returns the path of a step, its head without cookies and the empty line, and the rest of its message.
    fn parts(&self, step: &Step, origin: &Origin, common: &[(String, String)]) -> (String, Vec<u8>, Vec<u8>) {
        let value = |name: &str| self.value(name);
        let raw = |text: &str, out: &mut String| out.push_str(text);
        let path = path(&step.path.fill(value, raw), origin);
        let mut fields: Vec<(String, String)> =
            step.headers.iter().map(|(name, text)| (name.clone(), text.fill(value, in_field))).collect();
        let body = match &step.body {
            Body::None => String::new(),
            Body::Text(text) => text.fill(value, raw),
            Body::Json(text) => text.fill(value, in_json),
            Body::Form(pairs) => {
                let pairs = pairs
                    .iter()
                    .map(|(name, text)| format!("{}={}", encoded(name), encoded(&text.fill(value, raw))));
                pairs.collect::<Vec<_>>().join("&")
            }
        };
        let given = |fields: &[(String, String)], name: &str| {
            fields.iter().any(|(known, _)| known.eq_ignore_ascii_case(name))
        };
        if let Some(kind) = step.body.content_type().filter(|_| !given(&fields, "content-type")) {
            fields.push(("Content-Type".to_owned(), kind.to_owned()));
        }
        for (name, text) in common {
            if !given(&fields, name) {
                fields.push((name.clone(), text.clone()));
            }
        }
        if !given(&fields, "host") {
            fields.insert(0, ("Host".to_owned(), authority(origin)));
        }
        if !body.is_empty() || matches!(step.method.as_str(), "POST" | "PUT" | "PATCH") {
            fields.push(("Content-Length".to_owned(), body.len().to_string()));
        }
        let mut head = format!("{} {path} HTTP/1.1\r\n", step.method).into_bytes();
        for (name, text) in &fields {
            head.extend_from_slice(format!("{name}: {text}\r\n").as_bytes());
        }
        (path, head, [b"\r\n", body.as_bytes()].concat())
    }

    /// Checks the response of a step and takes values from it.
    ///
    /// # Errors
    /// The value that the step expected and did not get.
    pub(crate) fn judge(
        &mut self,
        step: &Step,
        checks: &Checks,
        incoming: &Incoming,
    ) -> Result<(), (Failure, String)> {
        self.check(step, checks, incoming.response.status, &incoming.fields, incoming.kept())
    }

    fn check(
        &mut self,
        step: &Step,
        checks: &Checks,
        status: u16,
        fields: &[(String, Vec<u8>)],
        body: &[u8],
    ) -> Result<(), (Failure, String)> {
        let name = &step.name;
        let accepted = match step.statuses.as_slice() {
            [] => checks.accepts(status),
            ranges => ranges.iter().any(|(first, last)| (*first..=*last).contains(&status)),
        };
        if !accepted {
            return Err((Failure::Status, format!("step {name:?}: status {status}")));
        }
        if let Some(text) = &step.text
            && memchr::memmem::find(body, text.as_bytes()).is_none()
        {
            return Err((Failure::Body, format!("step {name:?}: the body does not contain {text:?}")));
        }
        for (variable, take) in &step.take {
            match take.of(fields, body) {
                Some(value) if value.len() <= LONGEST_VALUE => {
                    self.values.insert(variable.clone(), value);
                }
                Some(_) => {
                    return Err((
                        Failure::Body,
                        format!(
                            "step {name:?}: the value of {variable} is longer than {LONGEST_VALUE} bytes"
                        ),
                    ));
                }
                None => {
                    return Err((
                        Failure::Body,
                        format!("step {name:?}: the response has no {variable} to take (status {status})"),
                    ));
                }
            }
        }
        Ok(())
    }

    /// Goes on after a successful step.
    pub(crate) fn arrived(&mut self, journey: &Journey, kind: usize) -> Arrived {
        let pause = journey.steps.get(kind).map_or(std::time::Duration::ZERO, |step| step.think.pause());
        self.next = match journey.repeat {
            _ if kind + 1 < journey.steps.len() => Some(kind + 1),
            Some((from, _)) if self.repeats > 0 => {
                self.repeats -= 1;
                Some(from)
            }
            _ => None,
        };
        match self.next {
            Some(_) => Arrived::On(pause),
            None => Arrived::Complete { began: self.began, counted: self.counted, pause },
        }
    }
}

/// Returns a path as it may be sent. A `Location` of the same server becomes its path.
fn path(text: &str, origin: &Origin) -> String {
    let text = text.strip_prefix(&url(origin)).unwrap_or(text);
    let text = text.split('#').next().unwrap_or_default();
    let mut out = String::with_capacity(text.len());
    if !text.starts_with('/') {
        out.push('/');
    }
    for byte in text.bytes() {
        match byte {
            0x21..=0x7e => out.push(char::from(byte)),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

/// Percent-encodes a name or value of a form.
fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'*' => out.push(char::from(byte)),
            b' ' => out.push('+'),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

/// Escapes a value inside of a JSON string.
fn in_json(value: &str, out: &mut String) {
    let quoted = serde_json::Value::from(value).to_string();
    out.push_str(&quoted[1..quoted.len() - 1]);
}

/// A value in a field: without the bytes that would end it (RFC 9110, 5.5).
fn in_field(value: &str, out: &mut String) {
    out.extend(value.chars().map(|c| if c.is_control() { ' ' } else { c }));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inputs::journey_file::journey_file;
    use proptest::prelude::*;

    fn origin() -> Origin {
        Origin { tls: false, host: "localhost".to_owned(), port: 9292 }
    }

    const FILE: &str = r#"
        repeat = { from = "post", times = 1 }
        [[step]]
        path = "/form"
        take.token = { regexp = "t=(.*)" }
        [[step]]
        name = "post"
        path = "/p/${token}"
        headers = { X-Token = "${token}" }
        form = { token = "${token}", user = "${user}" }
        [[step]]
        path = "/json"
        json = { token = "${token}" }
    "#;

    fn begun(value: &str) -> (Journey, Traveller) {
        let journey = journey_file("a", FILE).unwrap();
        let mut user = Traveller::new(7);
        user.begin(&journey, Job { kind: 9, due: 5, counted: true });
        let body = format!("t={value}");
        user.check(&journey.steps[0], &Checks::default(), 200, &[], body.as_bytes()).unwrap();
        (journey, user)
    }

    fn sent(user: &Traveller, step: &Step) -> String {
        let (_, head, rest) = user.parts(
            step,
            &origin(),
            &[("X-Token".to_owned(), "no".to_owned()), ("A".to_owned(), "b".to_owned())],
        );
        String::from_utf8([head, rest].concat()).unwrap()
    }

    #[test]
    fn values_are_encoded_where_they_stand() {
        let (journey, user) = begun("a+b &\"\u{1}ü");
        assert_eq!(
            sent(&user, &journey.steps[1]),
            "POST /p/a+b%20&\"%01%C3%BC HTTP/1.1\r\nHost: localhost:9292\r\nX-Token: a+b &\" ü\r\n\
             Content-Type: application/x-www-form-urlencoded\r\nA: b\r\nContent-Length: 35\r\n\r\ntoken=a%2Bb+%26%22%01%C3%BC&user=7"
                .replace("35", &"token=a%2Bb+%26%22%01%C3%BC&user=7".len().to_string())
        );
        assert!(
            sent(&user, &journey.steps[2]).ends_with(r#"{"token":"a+b &\"\u0001ü"}"#),
            "{}",
            sent(&user, &journey.steps[2])
        );
    }

    #[test]
    fn steps_follow_each_other_and_repeat() {
        let (journey, mut user) = begun("x");
        let mut seen = Vec::new();
        let end = loop {
            let job = user.next(9).unwrap();
            seen.push(job.kind);
            match user.arrived(&journey, job.kind) {
                Arrived::On(_) => {}
                end @ Arrived::Complete { .. } => break end,
            }
        };
        assert_eq!(seen, [0, 1, 2, 1, 2]);
        assert_eq!(end, Arrived::Complete { began: 5, counted: true, pause: std::time::Duration::ZERO });
        assert_eq!(user.next(9), None);
    }

    #[test]
    fn expectations_are_explained() {
        let journey = journey_file("a", "[[step]]\npath = \"/\"\nexpect = { status = \"2xx\", text = \"hi\" }\ntake.a = { header = \"X\" }").unwrap();
        let mut user = Traveller::new(1);
        let mut of = |status, body: &[u8]| {
            user.check(&journey.steps[0], &Checks::default(), status, &[], body).unwrap_err().1
        };
        assert_eq!(of(404, b"hi"), "step \"1\": status 404");
        assert!(of(200, b"ho").contains("does not contain \"hi\""));
        assert!(of(200, b"hi").contains("no a to take"));
    }

    #[test]
    fn a_location_of_the_same_server_is_a_path() {
        assert_eq!(path("http://localhost:9292/a?b#c", &origin()), "/a?b");
        assert_eq!(path("a", &origin()), "/a");
    }

    proptest! {
        #[test]
        fn no_value_ends_a_line_of_the_head(value in "[ -~\u{0}-\u{1f}é]{0,20}") {
            let mut user = Traveller::new(1);
            user.values.insert("token".to_owned(), value);
            let journey = journey_file("a", FILE).unwrap();
            let text = sent(&user, &journey.steps[1]);
            let head = text.split("\r\n\r\n").next().unwrap();
            prop_assert_eq!(head.split('\n').count(), 6, "{}", text);
            prop_assert_eq!(head.split("\r\n").next().unwrap().split(' ').count(), 3);
        }
    }
}
