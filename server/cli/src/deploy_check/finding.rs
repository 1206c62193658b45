//! A finding: the light of a question, its sentence, its figures, and the lines to paste.
//!
//! Contract: a finding has a figure or a name, and one that is not green has a line to paste. A figure is never a secret.

use serde_json::{Map, Value, json};

/// The light of a finding, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum TrafficLight {
    Green,
    /// It may go wrong in production.
    Yellow,
    /// It goes wrong in production.
    Red,
}

impl TrafficLight {
    /// Returns the word for people and programs.
    pub(crate) fn word(self) -> &'static str {
        match self {
            TrafficLight::Green => "green",
            TrafficLight::Yellow => "yellow",
            TrafficLight::Red => "red",
        }
    }
}

/// Lines to paste, and the place for them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PasteLine {
    /// A file, or `shell`, `environment`, `command line`.
    pub(crate) place: String,
    /// One line, or a section with its line.
    pub(crate) text: String,
}

/// The answer to a question.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct DeployFinding {
    pub(crate) question: &'static str,
    pub(crate) light: TrafficLight,
    /// A sentence without a full stop.
    pub(crate) text: String,
    /// The figures and names that the sentence rests on, by name.
    pub(crate) figures: Vec<(&'static str, Value)>,
    pub(crate) paste: Vec<PasteLine>,
}

impl DeployFinding {
    pub(crate) fn green(question: &'static str, text: impl Into<String>) -> DeployFinding {
        let (light, text) = (TrafficLight::Green, text.into());
        DeployFinding { question, light, text, figures: Vec::new(), paste: Vec::new() }
    }

    pub(crate) fn yellow(question: &'static str, text: impl Into<String>) -> DeployFinding {
        DeployFinding { light: TrafficLight::Yellow, ..DeployFinding::green(question, text) }
    }

    pub(crate) fn red(question: &'static str, text: impl Into<String>) -> DeployFinding {
        DeployFinding { light: TrafficLight::Red, ..DeployFinding::green(question, text) }
    }

    /// Adds a figure or a name.
    pub(crate) fn with(mut self, name: &'static str, value: impl Into<Value>) -> DeployFinding {
        self.figures.push((name, value.into()));
        self
    }

    /// Adds lines to paste.
    pub(crate) fn paste(mut self, place: impl Into<String>, text: impl Into<String>) -> DeployFinding {
        self.paste.push(PasteLine { place: place.into(), text: text.into() });
        self
    }

    /// Adds other lines to paste.
    pub(crate) fn paste_line(mut self, line: PasteLine) -> DeployFinding {
        self.paste.push(line);
        self
    }

    pub(crate) fn json(&self) -> Value {
        let figures: Map<String, Value> =
            self.figures.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        let paste: Vec<Value> =
            self.paste.iter().map(|line| json!({ "place": line.place, "text": line.text })).collect();
        json!({
            "question": self.question,
            "light": self.light.word(),
            "text": self.text,
            "figures": figures,
            "paste": paste,
        })
    }
}
