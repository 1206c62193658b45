//! The `[services]` table.

use std::time::Duration;

use super::named::Reader;
use crate::kind::ValueKind;
use crate::kind::numbers::Period;
use crate::raw::Raw;
use crate::table::taker::Taker;
use crate::value::service::{Program, Restart, Service, StopSignal, words};
use crate::written::{Named, Written, WrittenValues};

/// The keys of a service.
const KEYS: [&str; 7] =
    ["command", "env", "restart", "stop_signal", "stop_timeout", "environments", "prefix"];

/// Returns all services in the order of the file.
pub(super) fn services(taker: &Taker<'_>, given: &WrittenValues) -> Vec<Service> {
    given.services.iter().filter_map(|named| service(taker, named)).collect()
}

fn service(taker: &Taker<'_>, named: &Named) -> Option<Service> {
    let reader = Reader { table: "services", taker, named };
    if !reader.has_a_name() {
        return None;
    }
    let (mut command, mut env) = (None, Vec::new());
    let mut service = Service::new(&named.name, &named.written.origin.to_string(), Program::Block);
    for (key, written) in &named.keys {
        if let Some(name) = key.strip_prefix("env.") {
            env.extend(reader.variable(key, name, written));
            continue;
        }
        match key.as_str() {
            "command" => command = Some(reader.command(written)),
            "env" => reader.refuse(key, written, "expected a table such as { QUEUE = \"mails\" }".to_owned()),
            "restart" => service.restart = reader.word(key, written, &Restart::WORDS),
            "stop_signal" => service.stop_signal = reader.signal(written),
            "stop_timeout" => service.stop_timeout = reader.period(key, written),
            "environments" => {
                service.environments = reader.texts(key, written, "an environment such as \"production\"")
            }
            "prefix" => service.prefix = reader.switch(key, written, true),
            _ => reader.unknown(key, written, &KEYS),
        }
    }
    let Some(command) = command else {
        reader.refuse(
            "",
            &named.written,
            format!("expected a command, such as {} = \"bin/{}\"", named.name, named.name),
        );
        return None;
    };
    service.program = Program::Command { words: command?, env };
    Some(service)
}

impl Reader<'_> {
    fn command(&self, written: &Written) -> Option<Vec<String>> {
        let expected = "expected a command such as \"bin/jobs\", or a list such as [\"bin/jobs\", \"start\"]";
        let (problem, words) = match &written.raw {
            Raw::Text(line) => match words(line) {
                Ok(words) => (String::new(), Some(words)),
                Err(why) => (format!("{expected}; {why}"), None),
            },
            Raw::List(parts) => {
                let words: Option<Vec<String>> =
                    parts.iter().map(|part| part.text().map(str::to_owned)).collect();
                let has_program = |words: &Vec<String>| words.first().is_some_and(|first| !first.is_empty());
                (expected.to_owned(), words.filter(has_program))
            }
            _ => (expected.to_owned(), None),
        };
        match words {
            Some(words) if words.iter().any(|word| word.contains('\0')) => {
                self.refuse("command", written, "expected words without NUL".to_owned());
                None
            }
            Some(words) => Some(words),
            None => {
                self.refuse("command", written, problem);
                None
            }
        }
    }

    fn variable(&self, key: &str, name: &str, written: &Written) -> Option<(String, String)> {
        let value = match &written.raw {
            Raw::Text(text) => Some(text.clone()),
            Raw::Integer(number) => Some(number.to_string()),
            Raw::Float(number) => Some(number.to_string()),
            _ => None,
        };
        let usable =
            |value: &String| !value.contains('\0') && !name.is_empty() && !name.contains(['=', '\0']);
        let Some(value) = value.filter(usable) else {
            self.refuse(
                key,
                written,
                "expected a variable and its text, such as QUEUE = \"mails\"".to_owned(),
            );
            return None;
        };
        Some((name.to_owned(), value))
    }

    fn signal(&self, written: &Written) -> StopSignal {
        let text = written.raw.text().unwrap_or_default().to_ascii_uppercase();
        StopSignal::named(&text).unwrap_or_else(|| self.word("stop_signal", written, &StopSignal::WORDS))
    }

    fn period(&self, key: &str, written: &Written) -> Duration {
        Period::ANY.read(&written.raw).unwrap_or_else(|why| {
            self.refuse(key, written, format!("expected {}", why.explain(&Period::ANY.expected())));
            Service::STOP_TIMEOUT
        })
    }
}
