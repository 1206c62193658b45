//! The live screen: shows updates from the server and handles keys, until the user quits.

use crate::Failure;
use crate::draw;
use crate::options::Options;
use crate::source::{self, Command, Update};
use crate::state::{Action, State};
use crate::terminal::{Screen, TerminalEvent};
use crate::theme::Theme;
use control::client::ControlClient;
use std::io;
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};

/// The longest delay until an update is shown.
const LAG: Duration = Duration::from_millis(50);
/// The redraw interval for elapsed times.
const CLOCK: Duration = Duration::from_secs(1);

pub(crate) fn run(client: &ControlClient, options: &Options) -> Result<(), Failure> {
    let screen = Screen::open().map_err(terminal_error)?;
    show(screen, client, options).map(drop).map_err(terminal_error)
}

/// Shows the server on an existing screen. Returns the screen if the user wants to go back (Esc), and `None`
/// at the end.
pub(crate) fn show(screen: Screen, client: &ControlClient, options: &Options) -> io::Result<Option<Screen>> {
    let (commands, updates) = source::start(client.clone(), options.interval);
    let live = Live {
        screen,
        commands,
        updates,
        state: State::new(options.interval),
        theme: Theme::new(options.colour),
    };
    live.run(client)
}

pub(crate) fn terminal_error(error: io::Error) -> Failure {
    Failure::Run(format!("cannot use the terminal: {error}; `firebrick top --once` needs none"))
}

struct Live {
    screen: Screen,
    commands: Sender<Command>,
    updates: Receiver<Update>,
    state: State,
    theme: Theme,
}

impl Live {
    fn run(mut self, client: &ControlClient) -> io::Result<Option<Screen>> {
        let address = client.address().to_string();
        let mut drawn: Option<Instant> = None;
        loop {
            if self.apply_updates() {
                drawn = None;
            }
            if drawn.is_none_or(|at| at.elapsed() >= CLOCK) {
                let (state, theme, address) = (&self.state, self.theme, address.as_str());
                self.screen.draw(|buffer| draw::screen(buffer, state, theme, address))?;
                drawn = Some(Instant::now());
            }
            let action = match self.screen.wait(LAG)? {
                TerminalEvent::Nothing => continue,
                TerminalEvent::Key(key) => self.state.key_pressed(key),
                TerminalEvent::Changed => Action::Redraw,
                TerminalEvent::Suspend => Action::Suspend,
                TerminalEvent::End(signal) => return self.screen.end_by(signal).map(|()| None),
            };
            match action {
                Action::Quit => return Ok(None),
                Action::Back => return Ok(Some(self.screen)),
                Action::Suspend => self.screen.suspend()?,
                Action::Redraw => self.screen.redraw()?,
                Action::Interval(interval) => self.send(Command::Interval(interval)),
                Action::Backtrace(request) => {
                    let seen = self.state.view.as_ref().map_or_else(Instant::now, |view| view.sample.at);
                    self.send(Command::Trace(request, seen));
                }
                Action::Nothing => {}
            }
            drawn = None;
        }
    }

    fn send(&self, command: Command) {
        // The receiving thread ends only after this one.
        let _ = self.commands.send(command);
    }

    /// Applies pending updates. Returns whether there were any.
    fn apply_updates(&mut self) -> bool {
        let mut new = false;
        for update in self.updates.try_iter() {
            new = true;
            match update {
                Update::Sample(sample) => self.state.sampled(sample.map(|sample| *sample)),
                Update::Trace { request, passed, response } => {
                    self.state.show_backtrace(&request, response, passed)
                }
            }
        }
        new
    }
}
