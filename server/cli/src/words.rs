//! The words of the command line, for reading the settings again.

use settings::puma::Call;
use settings::{Argument, Environment, Errors, Loaded, RunningValue};

/// The words of the command line, and the surroundings in which they were typed.
#[derive(Clone, Debug)]
pub(crate) struct Words<E> {
    /// `None`: the app is in the process that has started this one.
    pub(crate) arguments: Option<Vec<Argument>>,
    pub(crate) here: E,
}

impl<E: Environment> front::Rereads for Words<E> {
    fn read(&self) -> Result<Loaded, String> {
        let Some(arguments) = &self.arguments else {
            return Err("the app is in the process that has started this one".to_owned());
        };
        settings::load(arguments, &self.here).map_err(|errors| lines(&errors))
    }

    fn evaluated(&self, loaded: &Loaded, calls: &[Call]) -> Result<Loaded, String> {
        loaded.evaluated(&self.here, calls).map_err(|errors| lines(&errors))
    }

    fn changed(&self, loaded: &Loaded, values: &[RunningValue]) -> Result<Loaded, String> {
        loaded.changed(&self.here, values).map_err(|errors| lines(&errors))
    }
}

fn lines(errors: &Errors) -> String {
    errors.0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}
