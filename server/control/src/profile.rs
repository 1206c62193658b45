//! `POST /profile`: orders a profile of all workers, which comes when its time is over. The client of `firebrick profile`.
//!
//! Blank lines before the document show that the server is alive. They are white space in JSON.

use crate::client::{ControlClient, Error};
use std::time::Duration;

/// The longest profile.
pub const LONGEST: Duration = Duration::from_secs(600);
/// The highest rate of samples, per second.
pub const MOST_HZ: u16 = 1_000;

/// An order to take a profile.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ProfileOrder {
    /// At most [`LONGEST`].
    pub time: Duration,
    /// Samples per second, from 1 to [`MOST_HZ`].
    pub hz: u16,
    /// Count processor time instead of the time that passes.
    pub cpu: bool,
}

impl Default for ProfileOrder {
    fn default() -> ProfileOrder {
        ProfileOrder { time: Duration::from_secs(10), hz: 100, cpu: false }
    }
}

impl ProfileOrder {
    /// Reads the parameters of the order; those left out have their defaults.
    ///
    /// # Errors
    /// Which parameter is wrong, and what it may be.
    pub(crate) fn read<'a>(given: impl Fn(&str) -> Option<&'a str>) -> Result<ProfileOrder, String> {
        let mut order = ProfileOrder::default();
        if let Some(text) = given("seconds") {
            order.time = seconds(text).ok_or_else(|| {
                format!("seconds is a number from 0.1 to {}, not {text:?}", LONGEST.as_secs())
            })?;
        }
        if let Some(text) = given("hz") {
            let hz = text.parse().ok().filter(|hz| (1..=MOST_HZ).contains(hz));
            order.hz = hz.ok_or_else(|| format!("hz is a number from 1 to {MOST_HZ}, not {text:?}"))?;
        }
        order.cpu = match given("clock") {
            None | Some("wall") => false,
            Some("cpu") => true,
            Some(text) => return Err(format!("clock is wall or cpu, not {text:?}")),
        };
        Ok(order)
    }

    fn target(self) -> String {
        let clock = if self.cpu { "cpu" } else { "wall" };
        format!("/profile?seconds={}&hz={}&clock={clock}", self.time.as_secs_f64(), self.hz)
    }
}

fn seconds(text: &str) -> Option<Duration> {
    let seconds: f64 = text.parse().ok()?;
    (0.1..=LONGEST.as_secs_f64()).contains(&seconds).then(|| Duration::from_secs_f64(seconds))
}

/// Has a profile taken, and waits for it. Returns its document.
///
/// # Errors
/// As [`ControlClient::get`]; the text of [`Error::Refused`] is the server's reason.
pub fn take(client: &ControlClient, order: ProfileOrder) -> Result<String, Error> {
    client.document(&order.target())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_read_or_named() {
        let read = |query: &'static str| {
            let pairs: Vec<(&str, &str)> = query.split('&').filter_map(|pair| pair.split_once('=')).collect();
            ProfileOrder::read(|name| pairs.iter().find(|(given, _)| *given == name).map(|(_, value)| *value))
        };
        assert_eq!(read(""), Ok(ProfileOrder::default()));
        let order = ProfileOrder { time: Duration::from_millis(2_500), hz: 1_000, cpu: true };
        assert_eq!(read("seconds=2.5&hz=1000&clock=cpu"), Ok(order));
        assert_eq!(order.target(), "/profile?seconds=2.5&hz=1000&clock=cpu");
        for (query, what) in [
            ("seconds=0", "from 0.1 to 600"),
            ("seconds=NaN", "from 0.1 to 600"),
            ("seconds=601", "from 0.1 to 600"),
            ("hz=0", "from 1 to 1000"),
            ("hz=1001", "from 1 to 1000"),
            ("clock=sun", "wall or cpu"),
        ] {
            assert!(read(query).unwrap_err().contains(what), "{query}");
        }
    }
}
