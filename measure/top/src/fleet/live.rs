//! The live screen of a fleet. Enter opens the screen of one server, and Esc returns to the fleet.

use super::model::{Fleet, View};
use super::once::apply;
use super::poll::{self, Pace, PollResult};
use super::screen::{self, Action, Screen as Choices};
use super::target::List;
use crate::options::Options;
use crate::terminal::{Screen, TerminalEvent};
use crate::theme::Theme;
use crate::{Failure, live};
use control::client::ControlClient;
use std::io;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant, SystemTime};

/// The longest delay until an update is shown.
const LAG: Duration = Duration::from_millis(50);
/// The shortest time between two drawings of reports.
const DRAWN: Duration = Duration::from_millis(250);

pub(crate) fn run(list: List, token: Option<String>, options: &Options) -> Result<(), Failure> {
    crate::needs_a_terminal()?;
    let pace = Pace::new(options.interval);
    let reports = poll::start(list, token.clone(), pace.clone());
    let screen = Screen::open().map_err(live::terminal_error)?;
    let fleet = Fleet::new(options.interval, Instant::now());
    let choices = Choices::new(options.interval);
    let view = fleet.view(Instant::now());
    let theme = Theme::new(options.colour);
    Live { screen, reports, pace, fleet, choices, view, theme, token, options: options.clone() }
        .run()
        .map_err(live::terminal_error)
}

struct Live {
    screen: Screen,
    reports: Receiver<PollResult>,
    pace: Pace,
    fleet: Fleet,
    choices: Choices,
    view: View,
    theme: Theme,
    token: Option<String>,
    options: Options,
}

impl Live {
    fn run(mut self) -> io::Result<()> {
        let mut drawn: Option<Instant> = None;
        loop {
            self.take_in();
            if drawn.is_none_or(|at| at.elapsed() >= DRAWN) {
                if !self.choices.paused {
                    self.view = self.fleet.view(Instant::now());
                }
                let (choices, view, theme) = (&self.choices, &self.view, self.theme);
                self.screen.draw(|buffer| screen::draw(buffer, choices, view, theme))?;
                drawn = Some(Instant::now());
            }
            let action = match self.screen.wait(LAG)? {
                TerminalEvent::Nothing => continue,
                TerminalEvent::Key(key) => self.choices.key_pressed(key, &self.view),
                TerminalEvent::Changed => Action::Redraw,
                TerminalEvent::Suspend => Action::Suspend,
                TerminalEvent::End(signal) => return self.screen.end_by(signal),
            };
            match action {
                Action::Quit => return Ok(()),
                Action::Suspend => self.screen.suspend()?,
                Action::Redraw => self.screen.redraw()?,
                Action::Interval(interval) => {
                    self.pace.set(interval);
                    self.fleet.set_interval(interval);
                }
                Action::Open(address) => {
                    if let Some(address) = self.fleet.address(&address) {
                        let client = ControlClient::new(address.clone(), self.token.clone());
                        let options = Options { interval: self.choices.interval, ..self.options.clone() };
                        match live::show(self.screen, &client, &options)? {
                            Some(screen) => self.screen = screen,
                            None => return Ok(()),
                        }
                        self.screen.redraw()?;
                    }
                }
                Action::Nothing => {}
            }
            drawn = None;
        }
    }

    fn take_in(&mut self) {
        while let Ok(report) = self.reports.try_recv() {
            apply(&mut self.fleet, report);
        }
        self.fleet.tick(Instant::now(), SystemTime::now());
    }
}
