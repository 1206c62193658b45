//! The queue: `queue.fair` and the table `[queue.classes]`.

use super::named::Reader;
use crate::kind::ValueKind;
use crate::kind::lists::PathPrefixes;
use crate::kind::numbers::Count;
use crate::kind::texts::HeaderName;
use crate::raw::Raw;
use crate::table::queue::FAIR;
use crate::table::taker::Taker;
use crate::value::queue::{NamedValue, Queue, QueueClass};
use crate::written::{Named, Written, WrittenValues};

/// The keys of a class.
const KEYS: [&str; 5] = ["paths", "header", "cookie", "weight", "crawlers"];
const WEIGHT: Count = Count { min: 0, max: QueueClass::HEAVIEST };

pub(super) fn queue(taker: &Taker<'_>, given: &WrittenValues) -> Queue {
    let mut queue = Queue { fair: taker.take(&FAIR).value, classes: Vec::new(), default_weight: 1 };
    for named in &given.queue_classes {
        let reader = Reader { table: "queue.classes", taker, named };
        if named.name == QueueClass::DEFAULT {
            queue.default_weight = reader.default_class();
        } else if queue.classes.len() == QueueClass::MOST {
            reader.refuse("", &named.written, format!("there can be {} classes or less", QueueClass::MOST));
            break;
        } else if let Some(class) = reader.class() {
            queue.classes.push(class);
        }
    }
    queue
}

impl Reader<'_> {
    /// Reads the class of all requests that belong to no other, which has nothing but a weight.
    fn default_class(&self) -> u32 {
        let mut weight = 1;
        for (key, written) in &self.named.keys {
            match key.as_str() {
                "weight" => weight = self.weight(written).unwrap_or(1),
                key if KEYS.contains(&key) => {
                    let problem =
                        "the class default has all requests that belong to no other class, and only a weight";
                    self.refuse(key, written, problem.to_owned());
                }
                key => self.unknown(key, written, &["weight"]),
            }
        }
        weight
    }

    fn class(&self) -> Option<QueueClass> {
        if !self.has_a_name() {
            return None;
        }
        let Named { name, written, keys } = self.named;
        let (mut weight, mut sound) = (None, true);
        let mut class = QueueClass {
            name: name.clone(),
            weight: 1,
            paths: Vec::new(),
            header: None,
            cookie: None,
            crawlers: false,
        };
        for (key, written) in keys {
            match key.as_str() {
                "paths" => match PathPrefixes.read(&written.raw) {
                    Ok(paths) => class.paths = paths,
                    Err(why) => {
                        sound = false;
                        let expected = why.explain(&PathPrefixes.expected());
                        self.refuse(key, written, format!("expected {expected}"));
                    }
                },
                "header" => class.header = self.named_value(key, written, ':', "X-Plan: pro", &mut sound),
                "cookie" => class.cookie = self.named_value(key, written, '=', "plan=pro", &mut sound),
                "weight" => weight = self.weight(written),
                "crawlers" => class.crawlers = self.switch(key, written, false),
                _ => {
                    sound = false;
                    self.unknown(key, written, &KEYS);
                }
            }
        }
        let QueueClass { paths, header, cookie, crawlers, .. } = &class;
        if sound && paths.is_empty() && header.is_none() && cookie.is_none() && !crawlers {
            let problem =
                "expected paths, header, cookie or crawlers = true: which requests belong to the class";
            self.refuse("", written, problem.to_owned());
            return None;
        }
        class.weight = weight.unwrap_or(u32::from(!class.crawlers));
        Some(class)
    }

    fn weight(&self, written: &Written) -> Option<u32> {
        let refuse = |_| {
            let expected = <Count as ValueKind<u32>>::expected(&WEIGHT);
            self.refuse("weight", written, format!("expected {expected}; 0 is the last lane"));
        };
        WEIGHT.read(&written.raw).map_err(refuse).ok()
    }

    /// Reads a name, or a name and a value.
    fn named_value(
        &self,
        key: &str,
        written: &Written,
        separator: char,
        example: &str,
        sound: &mut bool,
    ) -> Option<NamedValue> {
        let text = written.raw.text().unwrap_or_default();
        let (name, value) =
            text.split_once(separator).map_or((text, None), |(name, value)| (name, Some(value.trim())));
        let is_value =
            |value: &str| !value.is_empty() && value.bytes().all(|byte| (b' '..=b'~').contains(&byte));
        match HeaderName.read(&Raw::Text(name.trim().to_owned())) {
            Ok(name) if value.is_none_or(is_value) => {
                Some(NamedValue { name, value: value.map(str::to_owned) })
            }
            _ => {
                *sound = false;
                self.refuse(
                    key,
                    written,
                    format!("expected the name of a {key}, or name and value such as \"{example}\""),
                );
                None
            }
        }
    }
}
