//! The reason why a text was refused.

/// A refused text: the valid values, and the most similar one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mistake {
    /// A description of valid values that fits after "expected"; `None`: the reader's general description.
    pub expected: Option<String>,
    /// The most similar valid value, if there is one.
    pub nearest: Option<String>,
}

impl Mistake {
    /// Returns a mistake with a more precise explanation than the general description.
    pub fn expected(what: impl Into<String>) -> Mistake {
        Mistake { expected: Some(what.into()), nearest: None }
    }

    /// Adds the value that was probably meant.
    #[must_use]
    pub fn near(mut self, nearest: Option<impl Into<String>>) -> Mistake {
        self.nearest = nearest.map(Into::into);
        self
    }

    /// Returns what fits after "expected": `30s or 1m30s; did you mean "1m30s"?`.
    pub fn explain(&self, general: &str) -> String {
        let expected = self.expected.as_deref().unwrap_or(general);
        let near = self.nearest.as_ref().map(|near| format!("; did you mean {near:?}?")).unwrap_or_default();
        format!("{expected}{near}")
    }

    /// Returns the message of a command: `"1m30" is not a duration: expected 30s or 1m30s; did you mean "1m30s"?`.
    pub fn about(&self, text: &str, what: &str, general: &str) -> String {
        format!("{text:?} is not {what}: expected {}", self.explain(general))
    }
}

/// Turns `None` into a mistake without details.
pub trait OrMistake<T> {
    /// # Errors
    /// The value is `None`.
    fn or_mistake(self) -> Result<T, Mistake>;
}

impl<T> OrMistake<T> for Option<T> {
    fn or_mistake(self) -> Result<T, Mistake> {
        self.ok_or_else(Mistake::default)
    }
}
