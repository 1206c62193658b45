//! Journeys: requests that a user sends one after the other, with values of earlier responses in later requests.
//!
//! `inputs::journey_file` reads them; `traveller` walks one. A journey costs allocations per request; other runs do not pass through here.

mod take;
mod template;

use crate::think::Think;

pub use take::Take;
pub use template::Template;
pub(crate) use template::is_name;

/// The steps of a journey, in order.
#[derive(Debug, Clone, Default)]
pub struct Journey {
    /// Never empty.
    pub steps: Vec<Step>,
    /// Values that hold from the start.
    pub variables: Vec<(String, String)>,
    /// After the last step: the step to go on with, and how often.
    pub repeat: Option<(usize, u64)>,
}

#[derive(Debug, Clone)]
pub struct Step {
    pub name: String,
    pub method: String,
    /// Path and query.
    pub path: Template,
    pub headers: Vec<(String, Template)>,
    pub body: Body,
    /// Ranges of expected statuses, both ends included; empty: those of the run.
    pub statuses: Vec<(u16, u16)>,
    /// A text that the body must contain.
    pub text: Option<String>,
    /// Values of the response by name.
    pub take: Vec<(String, Take)>,
    /// The pause after the response.
    pub think: Think,
}

#[derive(Debug, Clone, Default)]
pub enum Body {
    #[default]
    None,
    Text(Template),
    /// Fields of a form; their values are percent-encoded after the variables are filled in.
    Form(Vec<(String, Template)>),
    /// JSON whose variables stand in strings; their values are escaped.
    Json(Template),
}

impl Body {
    /// Returns the content type, if the step gives none.
    pub(crate) fn content_type(&self) -> Option<&'static str> {
        match self {
            Body::None | Body::Text(_) => None,
            Body::Form(_) => Some("application/x-www-form-urlencoded"),
            Body::Json(_) => Some("application/json"),
        }
    }
}
